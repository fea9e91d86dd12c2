"""The chains of sites that compare `masked` and `proxy` on known tables."""

import itertools

import numpy as np
import pytest

from benchmarks.chains import chain, indices, settings_of


@pytest.mark.parametrize("common", [1, 2, 3])
def test_neighbours_share_so_many_columns_and_others_none(common):
    sites, classes = chain("wine", 3, common, 0)
    columns = {site: set(frame.columns) for site, frame in sites.items()}
    shared = {(a, b): len(columns[a] & columns[b]) for a, b in itertools.combinations(sites, 2)}
    assert shared == {("s0", "s1"): common, ("s1", "s2"): common, ("s0", "s2"): 0}
    assert sum(len(frame) for frame in sites.values()) == 178
    assert {site: len(y) for site, y in classes.items()} == {site: len(frame) for site, frame in sites.items()}


def test_iris_has_too_few_columns_for_five_sites():
    assert chain("iris", 5, 1, 0) is None


def test_every_setting_has_an_index():
    assert settings_of("proxy w", 3) == {"w": 2.0}
    assert settings_of("proxy w", 2) == {"w": 1.05}
    assert settings_of("masked A", 1) == {"method": "A"}
    found = indices(chain("iris", 3, 1, 0), 1, 0)
    assert len(found) == 5
    assert np.isfinite(found).all()
