"""docs/algorithms/portfolio.md says of spoilt rows what `benchmarks.spoilt_rows` measures."""

import pytest

from benchmarks.spoilt_rows import CLUSTERS, SHARES, measured
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "algorithms" / "portfolio.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("algorithm", ["portfolio", "lloyd"])
def test_centers_are_found_where_more_rows_are_trimmed_than_are_spoilt(algorithm: str) -> None:
    found = {share: (centers, index) for share, centers, index in measured(algorithm, seed=0)}
    assert tuple(found) == SHARES
    assert found[0.0][0] == 0
    assert found[0.1][0] == CLUSTERS
    assert found[0.1][1] > 0.995
    assert f"| `{algorithm}` | 0 of 10 |" in PAGE
    assert f"| `{algorithm}`, `trim_rows=0.1` | 10 of 10 | 1.00 |" in PAGE
