"""Algorithm 2 on chains of sites that share few columns: the power of the distance follows from how many."""

import logging

import numpy as np
import pytest

from flareclust.aggregators.proxy import _best_merges
from flareclust.data.tables import Table
from flareclust.executors.proxy import ProxyParams
from flareclust.preparation.result import warnings
from tests.unit.algorithms.different_columns_cases import agreement, run


def chain(common, seed, n=100):
    """Overlapping clusters at five sites, each with `common` columns of the last one; and the cluster of each row."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 6, (4, 15 + common))
    sites, true = {}, {}
    for i in range(5):
        y, own = rng.integers(4, size=n), range(3 * i, 3 * i + 3 + common)
        rows = centers[y][:, own] + rng.normal(size=(n, len(own)))
        sites[f"s{i}"], true[f"s{i}"] = Table(rows, tuple(f"c{j}" for j in own)), y
    return sites, true


@pytest.mark.parametrize(("common", "w"), [(1, 1.05), (2, 1.05), (3, 2.0)])
def test_w_is_the_papers_where_sites_share_three_columns(common, w, caplog):
    found = run("proxy", chain(common, 1)[0], 4, scale="standard")
    assert found.rounds[1]["diagnostics"]["left_out"] == 0
    assert found.rounds[1]["diagnostics"]["w"] == found.arrays["w"] == w
    reported = [text for text in warnings(found.arrays, 0) if "no finite mean" in text]
    assert len(reported) == (common == 1)
    assert ("no finite mean" in caplog.text) == (common == 1)


def test_a_w_that_is_set_is_kept_and_warned_of():
    found = run("proxy", chain(2, 0)[0], 4, w=2.0)
    assert found.arrays["w"] == 2
    (reported,) = [text for text in warnings(found.arrays, 0) if "no finite mean" in text]
    assert "no more than 2 common columns with spread, where the attraction with w=2" in reported
    assert 'set w="auto"' in reported


def test_with_two_columns_in_common_no_cluster_takes_the_others_rows():
    found = {"auto": [], 2.0: []}
    for w, figures in found.items():
        for seed in range(6):
            sites, true = chain(2, seed)
            outcome = run("proxy", sites, 4, seed, w=w, scale="standard")
            largest = np.bincount(np.concatenate(list(outcome.labels.values()))).max() / 500
            figures.append((agreement(outcome, true), largest))
    (auto, share), (paper, worst) = np.mean(found["auto"], axis=0), np.mean(found[2.0], axis=0)
    assert auto > paper + 0.1
    assert share < 0.3 < worst


def noisy(common, seed):
    """As `chain`, with a column of noise that all sites share."""
    sites, true = chain(common, seed)
    rng = np.random.default_rng(seed + 100)
    more = {
        site: Table(np.column_stack([table.X, rng.normal(size=len(table.X))]), (*table.columns, "noise"))
        for site, table in sites.items()
    }
    return more, true


def test_noise_that_all_sites_share_does_not_match_their_clusters(caplog):
    found = {"auto": [], 2.0: []}
    for w, figures in found.items():
        for seed in (1, 3, 4):
            sites, true = noisy(3, seed)
            with caplog.at_level(logging.INFO, "flareclust.aggregators.proxy"):
                outcome = run("proxy", sites, 4, seed, w=w, scale="standard")
            assert (outcome.rounds[1]["diagnostics"]["left_out"] > 0) == (w == "auto")
            figures.append(agreement(outcome, true))
    assert min(found["auto"]) > 0.6
    assert max(found[2.0]) < 0.2
    assert "without columns that hardly separate them: noise" in caplog.text


def test_clusters_that_only_weak_columns_link_are_compared_by_them():
    # Columns: x at site 0, y at site 1, z at both. Without z no cluster of one site could be compared with one of the other.
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, np.nan, 0.0], [9.0, np.nan, 1.0], [np.nan, 0.0, 0.0], [np.nan, 9.0, 1.0]])
    cluster = np.repeat(np.arange(4), 30)
    points = centers[cluster] + 0.1 * rng.normal(size=(120, 3))
    found = _best_merges(points, cluster, (centers, np.full(4, 30), np.array([0, 0, 1, 1])), 2, ProxyParams(k=2))
    assert not found.left_out.any()
    np.testing.assert_array_equal(found.tree.force > 0, [True, True, True])
