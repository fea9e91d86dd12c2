"""Proxy clusters as a whole: sites of different columns, numbers of clusters, settings."""

import numpy as np

from flareclust.data.tables import Table
from tests.unit.algorithms.different_columns_cases import CHAIN, agreement, far_apart, names, run, tables

# ---- the whole ----


def test_clusters_are_found_where_no_site_has_all_of_them():
    owned = {"a": (0, 1, 2), "b": (1, 2, 3), "c": (2, 3, 4), "d": (3, 4, 5)}
    clusters = {"a": [0, 1], "b": [0, 1, 2], "c": [1, 2, 3], "d": [2, 3]}
    sites, classes = tables(owned, far_apart(4, 6, 4), clusters=clusters)
    outcome = run("proxy", sites, k=4, k_local={site: len(own) for site, own in clusters.items()})
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
    outcome = run("proxy", sites, k=3)
    assert [record["step"] for record in outcome.rounds] == ["describe", "cluster", "assess"]
    assert outcome.n_rounds == 1


def test_the_number_of_clusters_can_be_chosen():
    sites, classes = tables(CHAIN, far_apart(3, 6))
    outcome = run("proxy", sites, k=6, choose_k=True, k_local=3)
    assert len(outcome.arrays["centroids"]) == 3
    assert agreement(outcome, classes) == 1.0
    assert outcome.rounds[1]["diagnostics"]["clusters"] == 3


def test_a_site_may_have_more_local_clusters_than_there_are_clusters():
    """Assumption 3 of the paper, no mixed local cluster, can always be had by enough of them."""
    rng = np.random.default_rng(0)
    long = np.column_stack([np.linspace(0, 30, 200), np.zeros(200)])  # k-means cuts both across
    rows = np.concatenate([long, long + np.array([0.0, 10.0])]) + 0.3 * rng.normal(size=(400, 2))
    sites, classes = {"a": Table(rows, names((0, 1)))}, {"a": np.repeat([0, 1], 200)}
    few, many = run("proxy", sites, k=2), run("proxy", sites, k=2, k_local=6)
    assert agreement(few, classes) < 0.1
    assert agreement(many, classes) == 1.0
    assert many.arrays["centroids"].shape == (2, 2)


def test_two_numbers_of_clusters_come_from_one_tree():
    sites, _ = tables(CHAIN, far_apart(4, 6))
    four, two = run("proxy", sites, k=4, k_local=4).arrays, run("proxy", sites, k=4, k_local=4, choose_k=True).arrays
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
    outcome = run("proxy", sites, k=2, distribution="dirichlet")
    assert agreement(outcome, classes) == 1.0


# ---- settings, trouble ----
