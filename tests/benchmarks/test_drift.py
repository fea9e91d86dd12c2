"""docs/tables.md says of sites that measure differently what `benchmarks.drift` measures."""

import numpy as np
import pytest

from benchmarks.answers import Cell, table
from benchmarks.drift import shares_of


@pytest.mark.parametrize("skewed", [False, True])
def test_sites_are_named_where_zeros_differ_and_not_where_they_do_not(skewed: bool) -> None:
    cell = Cell("round", 3, 2, 5, 60, skewed, 7)
    sites = table(cell)[0]
    share, named = shares_of(sites, cell.k, cell.seed)
    assert share < 0.05
    assert not named
    zeros = np.random.default_rng(1).normal(size=(len(sites), cell.d))
    moved = {site: X + zero for (site, X), zero in zip(sites.items(), zeros, strict=True)}
    assert shares_of(moved, cell.k, cell.seed)[1]
