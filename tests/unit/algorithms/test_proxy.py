"""Proxy clusters as a whole: sites of different columns, numbers of clusters, settings."""

import logging

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from flareclust.data.tables import Table
from flareclust.executors.proxy import ProxyExecutor
from tests.unit.algorithms.proxy_cases import CHAIN, far_apart, in_order, names, run, tables


def agreement(outcome, classes):
    sites = list(classes)
    found = np.concatenate([outcome.labels[site] for site in sites])
    return adjusted_rand_score(np.concatenate([classes[site] for site in sites]), found)


# ---- the whole ----


@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_found_across_sites_with_different_columns(seed):
    centers = far_apart(3, 6, seed)
    sites, classes = tables(CHAIN, centers, seed=seed)
    outcome = run(sites, k=3, seed=seed)
    assert agreement(outcome, classes) == 1.0
    found = in_order(outcome, 6)
    gaps = np.linalg.norm(centers[:, None] - found[None], axis=2)
    assert gaps.min(axis=1).max() < 1.0
    assert sorted(gaps.argmin(axis=1)) == [0, 1, 2]
    assert outcome.arrays["counts"].tolist() == [120, 120, 120]


def test_clusters_are_found_where_no_site_has_all_of_them():
    owned = {"a": (0, 1, 2), "b": (1, 2, 3), "c": (2, 3, 4), "d": (3, 4, 5)}
    clusters = {"a": [0, 1], "b": [0, 1, 2], "c": [1, 2, 3], "d": [2, 3]}
    sites, classes = tables(owned, far_apart(4, 6, 4), clusters=clusters)
    outcome = run(sites, k=4, k_local={site: len(own) for site, own in clusters.items()})
    assert agreement(outcome, classes) == 1.0
    mask = outcome.arrays["mask"]
    truth = np.array([np.concatenate([classes[s] for s in sites]) == r for r in range(4)])
    found = np.concatenate([outcome.labels[s] for s in sites])
    for r in range(4):  # an entry is known exactly where a site that has the column has the cluster
        (label,) = np.unique(found[truth[r]])
        holders = [owned[site] for site in owned if r in clusters[site]]
        known = {
            int(name[1:])
            for name, is_known in zip(outcome.arrays["column_names"], mask[label], strict=True)
            if is_known
        }
        assert known == set().union(*holders)


def test_one_exchange_is_enough():
    sites, _ = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=3)
    assert [record["step"] for record in outcome.rounds] == ["describe", "cluster", "assess"]
    assert outcome.n_rounds == 1


def test_standardized_columns_end_in_the_units_of_the_data():
    centers = far_apart(3, 6)
    sites, classes = tables(CHAIN, centers)
    unit = np.array([1e-3, 1.0, 1e3, 1.0, 1e4, 7.0])
    scaled = {site: Table(table.X * unit[list(CHAIN[site])], table.columns) for site, table in sites.items()}
    outcome = run(scaled, k=3, scale="standard")
    assert agreement(outcome, classes) == 1.0
    gaps = np.abs(centers[:, None] - in_order(outcome, 6)[None] / unit).max(axis=2)
    assert gaps.min(axis=1).max() < 1.0


@pytest.mark.parametrize(
    "params", [{"covariance": "ledoit-wolf"}, {"covariance": "diagonal"}, {"boxes": True}, {"phi": "cosine"}]
)
def test_every_description_and_distance_finds_separate_clusters(params):
    centers = far_apart(3, 6) - 20.0  # around 0, so that directions differ, too
    owned = {"a": (0, 1, 2, 3), "b": (2, 3, 4, 5), "c": (4, 5, 0, 1)}
    centers[:, ::2] = [[20, 20, 20], [-20, 20, -20], [20, -20, -20]]
    centers[:, 1::2] = [[0, 0, 0], [20, -20, 20], [-20, 20, -20]]
    sites, classes = tables(owned, centers)
    assert agreement(run(sites, k=3, **params), classes) == 1.0


def test_the_number_of_clusters_can_be_chosen():
    sites, classes = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=6, choose_k=True, k_local=3)
    assert len(outcome.arrays["centroids"]) == 3
    assert agreement(outcome, classes) == 1.0
    assert outcome.rounds[1]["diagnostics"]["clusters"] == 3


def test_a_site_may_have_more_local_clusters_than_there_are_clusters():
    """Assumption 3 of the paper, no mixed local cluster, can always be had by enough of them."""
    rng = np.random.default_rng(0)
    long = np.column_stack([np.linspace(0, 30, 200), np.zeros(200)])  # k-means cuts both across
    rows = np.concatenate([long, long + np.array([0.0, 10.0])]) + 0.3 * rng.normal(size=(400, 2))
    sites, classes = {"a": Table(rows, names((0, 1)))}, {"a": np.repeat([0, 1], 200)}
    few, many = run(sites, k=2), run(sites, k=2, k_local=6)
    assert agreement(few, classes) < 0.1
    assert agreement(many, classes) == 1.0
    assert many.arrays["centroids"].shape == (2, 2)


def test_two_numbers_of_clusters_come_from_one_tree():
    sites, _ = tables(CHAIN, far_apart(4, 6))
    four, two = run(sites, k=4, k_local=4).arrays, run(sites, k=4, k_local=4, choose_k=True).arrays
    for name in ("tree_left", "tree_right", "tree_force", "tree_size", "received_centroids"):
        np.testing.assert_array_equal(four[name], two[name])
    assert len(four["tree_left"]) == 11


# ---- shares ----


def shares(owned, alphas, per_cluster=60, seed=0):
    rng = np.random.default_rng(seed)
    sites, classes = {}, {}
    for site, places in owned.items():
        classes[site] = np.repeat(np.arange(len(alphas)), per_cluster)
        rows = np.concatenate([rng.dirichlet(alpha[list(places)], size=per_cluster) for alpha in alphas])
        sites[site] = Table(rows, names(places))
    return sites, classes


ALPHAS = np.array([[60.0, 5, 60, 5, 60, 5], [5, 60, 5, 60, 5, 60]])


def test_shares_of_a_whole_are_clustered_by_their_dirichlet_distributions():
    sites, classes = shares({"a": (0, 1, 2, 3), "b": (2, 3, 4, 5), "c": (4, 5, 0, 1)}, ALPHAS)
    outcome = run(sites, k=2, distribution="dirichlet")
    assert agreement(outcome, classes) == 1.0


# ---- settings, trouble ----


def test_settings_for_sites_that_are_not_there_are_named(caplog):
    with caplog.at_level(logging.WARNING):
        ProxyExecutor(3, k_local={"nort": 2}, clusterer={"west": "kmedoids"}).check_sites(["north", "south"])
    assert "k_local names 'nort' (did you mean 'north'?)" in caplog.text
    assert "clusterer names 'west'" in caplog.text


def test_sites_may_cluster_in_their_own_ways():
    sites, classes = tables(CHAIN, far_apart(3, 6))
    outcome = run(sites, k=3, clusterer={"a": "agglomerative", "b": "kmedoids"}, k_local={"a": "silhouette"})
    assert agreement(outcome, classes) == 1.0
