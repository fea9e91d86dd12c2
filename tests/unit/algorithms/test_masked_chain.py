"""Algorithm 1 on chains of sites with columns that are the same for all clusters: constant ones, noise; and local clusters cut in two."""

import numpy as np
import pytest

from flareclust.data.tables import Table
from tests.unit.algorithms.different_columns_cases import agreement, chain_sites, run, window_sites

SEEDS = range(4)


def noise(rng, i):
    return rng.normal(size=100)


def test_sites_that_share_nothing_but_noise_and_their_neighbours_columns_are_grouped_by_the_latter():
    found = [
        agreement(run("masked", sites, 4, seed, scale="standard"), true)
        for seed in SEEDS
        for sites, true in [chain_sites(seed, noise)]
    ]
    assert np.mean(found) > 0.9
    assert min(found) > 0.7


def test_the_columns_left_out_are_named():
    outcome = run("masked", chain_sites(0, noise)[0], 4, scale="standard")
    assert "without columns that hardly separate clusters: more" in str(outcome.arrays["verdict"])


def test_sites_that_look_for_more_clusters_than_they_have_are_grouped_by_method_b_in_a_chain():
    """Local clusters cut in two are put into one group, which method A cannot."""
    rng = np.random.default_rng(0)
    centers = 10.0 * np.stack([rng.permutation(4) for _ in range(12)], axis=1)
    sites, true = {}, {}
    held_and_own = [(range(4), range(4)), ([0, 1], range(2, 10)), ([2, 3], range(2, 10)), (range(4), range(8, 12))]
    for i, (held, own) in enumerate(held_and_own):
        true[f"site-{i}"] = np.repeat(held, 40)
        rows = centers[true[f"site-{i}"]][:, own] + rng.normal(size=(40 * len(held), len(own)))
        sites[f"site-{i}"] = Table(rows, tuple(f"c{j}" for j in own))
    start = {method: run("masked", sites, 4, method=method, rounds=0) for method in ("auto", "A")}
    assert str(start["auto"].arrays["method"]) == "B"
    assert "Method B was taken" in str(start["auto"].arrays["verdict"])
    halves = {
        method: found.arrays["received_group"][found.arrays["received_site"] == 1] for method, found in start.items()
    }
    assert {method: len(np.unique(of)) for method, of in halves.items()} == {"auto": 2, "A": 4}
    assert agreement(start["auto"], true) == 1


@pytest.mark.parametrize("seed", [1, 4, 5])
def test_a_site_whose_columns_have_other_meanings_is_named_and_healthy_ones_are_not(seed):
    sites, _, _ = window_sites(k=4, m=4, d=4, width=4, n=100, seed=seed)
    assert run("masked", sites, 4, seed, scale="standard").warnings == []
    other = Table(np.ascontiguousarray(sites["site-2"].X[:, [2, 3, 0, 1]]), sites["site-2"].columns)
    alone, batch = "site-2 is better off alone: ", "may be a batch effect"
    reported = run("masked", sites | {"site-2": other}, 4, seed, scale="standard").warnings
    assert sum(warning.startswith(alone) for warning in reported) == 1
    # Without it the spread of the rows is not sent. Clusters that are the site's may be seen in both.
    unscaled = run("masked", sites | {"site-2": other}, 4, seed).warnings
    assert all(batch in warning and "site-2" in warning for warning in unscaled)
    assert all(warning.startswith(alone) or (batch in warning and "site-2" in warning) for warning in reported)
