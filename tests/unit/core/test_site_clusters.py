"""The clustering of a site's rows: three methods, refinement, what may be sent, and settings."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, ward
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.errors import Aborted, Refusal, UserError
from flareclust._foundation.typing import never_abort
from flareclust.core import site_clusters as module
from flareclust.core.local import local_clusters, sendable
from flareclust.core.site_clusters import (
    _CLUSTERERS_AT_SITES,
    _kmedoids,
    check_clusterer,
    check_k_local,
    of_site,
    refine,
    warn_of_unknown_sites,
)
from tests.examples import examples
from tests.twins import distance, first_min, mu, points
from tests.unit.core.site_clusters_cases import blobs, clusters


def in_order(centroids):
    return centroids[np.lexsort(centroids.T[::-1])]


# ---- the methods ----


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("k_local", [None, "silhouette"])
def test_separated_clusters_are_found_and_described_by_the_means_of_their_rows(clusterer, k_local):
    data, y = blobs(4, 30)
    found = clusters(data, 4, clusterer=clusterer, k_local=k_local)
    assert adjusted_rand_score(y, found.labels) == 1
    assert found.counts.tolist() == [30] * 4
    for r in range(4):
        np.testing.assert_allclose(found.centroids[r], data[found.labels == r].mean(axis=0), atol=1e-12)


def test_kmeans_is_that_of_the_other_algorithms():
    data = np.random.default_rng(1).normal(size=(80, 3))
    other = local_clusters(data, 5, np.random.default_rng(7), n_init=3, min_count=2, aborted=never_abort)
    for ours, theirs in zip(clusters(data, 5, seed=7, n_init=3), other, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_agglomeration_is_that_of_scikit_learn_for_every_number_of_clusters(k):
    data = np.random.default_rng(2).normal(size=(80, 3))
    found = clusters(data, k, clusterer="agglomerative", min_count=1)
    expected = AgglomerativeClustering(n_clusters=k).fit_predict(data)
    alone = np.bincount(expected)[expected] == 1  # a cluster of one row is not sent
    assert (found.labels == -1).tolist() == alone.tolist()
    assert adjusted_rand_score(expected[~alone], found.labels[~alone]) == 1


def test_the_tree_is_cut_as_scipy_cuts_it():
    data = np.random.default_rng(3).normal(size=(30, 2))
    merged = module._ward_tree(data)
    for k in range(1, 31):
        assert adjusted_rand_score(fcluster(ward(data), k, "maxclust"), module._cut(merged, k)) == 1


def twin_kmedoids(X, medoids, max_iter):
    """Alternating k-medoids by loops: medoids and labels are numbers of rows and of medoids."""
    near = range(len(medoids))
    S = [first_min(near, key=lambda r: distance(x, X[medoids[r]])) for x in X]
    for _ in range(max_iter):
        moved = []
        for r in near:
            members = [i for i, s in enumerate(S) if s == r]
            moved.append(first_min(members, key=lambda i: sum(distance(X[i], X[j]) for j in members)))
        if moved == medoids:
            break
        medoids = moved
        S = [first_min(near, key=lambda r: distance(x, X[medoids[r]])) for x in X]
    return medoids, S


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 40), st.integers(1, 6), st.integers(1, 8))
def test_kmedoids_is_its_literal_twin(seed, n, k, max_iter):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(n, 2)) + 4 * rng.integers(3, size=(n, 1))
    start = rng.choice(n, min(k, n), replace=False)
    found = _kmedoids(data, start, max_iter, never_abort)
    medoids, labels = twin_kmedoids(points(data), start.tolist(), max_iter)
    np.testing.assert_array_equal(found.centroids, data[medoids])
    assert found.labels.tolist() == labels
    own = np.sqrt(((data - data[medoids][labels]) ** 2).sum(axis=1))
    assert found.inertia == pytest.approx(own.sum())


def test_a_medoid_ignores_an_outlier_that_drags_a_mean_along():
    data = np.array([[0.0], [1], [2], [3], [1000]])
    assert _kmedoids(data, np.array([0]), 10, never_abort).centroids.tolist() == [[2]]
    sent = clusters(data, 1, clusterer="kmedoids")
    assert sent.centroids.tolist() == [[1006 / 5]]  # what is sent is a mean all the same


def test_sums_over_many_members_are_the_same_in_blocks(monkeypatch):
    data = np.random.default_rng(5).normal(size=(50, 3)) + 1e6
    whole = _kmedoids(data, np.array([0, 1]), 20, never_abort)
    monkeypatch.setattr(module, "_BLOCK", 7)
    np.testing.assert_array_equal(_kmedoids(data, np.array([0, 1]), 20, never_abort).centroids, whole.centroids)


def test_several_starts_of_kmedoids_are_no_worse_than_one():
    data, _ = blobs(6, 15, spread=3.0)
    drawn = [module._best_kmedoids(data, 6, np.random.default_rng(s), 1, never_abort).inertia for s in range(8)]
    best = [module._best_kmedoids(data, 6, np.random.default_rng(s), 10, never_abort).inertia for s in range(8)]
    assert max(best) <= np.median(drawn)
    assert len(set(drawn)) > 1


# ---- going on from centroids ----


def twin_refine(X, C, local_iter):
    """Lloyd by loops: clusters without rows are dropped."""
    for _ in range(local_iter):
        groups = [[] for _ in C]
        for x in X:
            groups[first_min(range(len(C)), key=lambda c: distance(x, C[c]))].append(x)
        groups = [group for group in groups if group]
        C = [mu(group) for group in groups]
    return C, [len(group) for group in groups]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 12), st.sampled_from(["kmeans", "agglomerative"]))
def test_refinement_is_its_literal_twin(seed, k, local_iter, clusterer):
    rng = np.random.default_rng(seed)
    data, start = rng.normal(size=(30, 2)), 2 * rng.normal(size=(k, 2))
    found = refine(data, start, clusterer=clusterer, local_iter=local_iter, aborted=never_abort)
    C, sizes = twin_refine(points(data), points(start), local_iter)
    np.testing.assert_allclose(found.centroids, C, atol=1e-12)
    assert found.counts.tolist() == sizes
    assert found.counts.tolist() == np.bincount(found.labels).tolist()


def test_refinement_ends_where_kmeans_of_scikit_learn_ends():
    data, _ = blobs(4, 25, spread=2.0)
    start = data[[0, 30, 60, 90]]
    found = refine(data, start, clusterer="kmeans", local_iter=300, aborted=never_abort)
    expected = KMeans(4, init=start, n_init=1, tol=0).fit(data)
    np.testing.assert_allclose(in_order(found.centroids), in_order(expected.cluster_centers_), atol=1e-9)


def test_refined_medoids_start_at_the_nearest_rows_and_describe_means():
    data = np.array([[0.0], [1], [2], [10], [11], [13]])
    found = refine(data, np.array([[0.9], [1.1], [10.2]]), clusterer="kmedoids", local_iter=1, aborted=never_abort)
    assert found.centroids.tolist() == [[1], [34 / 3]]  # two centroids have the same nearest row
    assert found.counts.tolist() == [3, 3]


def test_a_cluster_that_loses_its_rows_is_dropped():
    data = np.array([[0.0], [1], [9], [10]])
    found = refine(data, np.array([[0.5], [9.5], [99.0]]), clusterer="kmeans", local_iter=5, aborted=never_abort)
    assert found.centroids.tolist() == [[0.5], [9.5]]


# ---- what may be sent, and whether it can be repeated ----


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("min_count", [1, 2, 4])
def test_no_row_and_no_small_cluster_is_returned(clusterer, min_count):
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(40, 2))
    for data in (
        np.concatenate([ordinary, 1e3 * np.eye(2)]),
        np.concatenate([ordinary, np.full((20, 2), 99.0)]),
        rng.integers(0, 6, size=(60, 2)).astype(float),
    ):
        found = clusters(data, 8, clusterer=clusterer, min_count=min_count)
        assert np.abs(found.centroids[:, None] - data[None]).max(axis=2).min() > 1e-12
        assert found.counts.min() >= max(2, min_count)
        kept = found.labels[found.labels >= 0]
        assert np.bincount(kept, minlength=len(found.counts)).tolist() == found.counts.tolist()


@pytest.mark.parametrize("clusterer", _CLUSTERERS_AT_SITES)
@pytest.mark.parametrize("k_local", [None, 3, "silhouette"])
def test_clusters_can_be_repeated_with_a_generator_in_the_same_state(clusterer, k_local):
    data = np.random.default_rng(8).normal(size=(60, 3))
    before = data.copy()
    first, again = (clusters(data, 6, seed=3, clusterer=clusterer, k_local=k_local, n_init=2) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(data, before)


def test_a_site_with_too_few_rows_refuses():
    with pytest.raises(Refusal, match="min_count=5"):
        clusters(np.ones((4, 2)), 2, min_count=5)


@pytest.mark.parametrize("clusterer", ["kmedoids", "agglomerative"])
def test_too_many_rows_to_compare_all_pairs_are_refused_with_advice(monkeypatch, clusterer):
    monkeypatch.setattr(module, "PAIRS_OF_ROWS", 20)
    with pytest.raises(Refusal, match='clusterer="kmeans"'):
        clusters(np.random.default_rng(0).normal(size=(21, 2)), 2, clusterer=clusterer)
    assert clusters(np.random.default_rng(0).normal(size=(21, 2)), 2).counts.sum() == 21


@pytest.mark.parametrize("clusterer", ["kmeans", "kmedoids"])
def test_work_stops_when_aborted(clusterer):
    data, start = np.random.default_rng(0).normal(size=(50, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(Aborted):
        clusters(data, 4, clusterer=clusterer, aborted=lambda: True)
    with pytest.raises(Aborted):
        refine(data, start, clusterer=clusterer, local_iter=3, aborted=lambda: True)
    with pytest.raises(Aborted):
        clusters(data, 4, clusterer="agglomerative", k_local="silhouette", aborted=lambda: True)


def test_clusters_that_are_kept_are_numbered_anew():
    data = np.array([[0.0], [1], [5], [9], [10]])
    found = module._as_clustering(data, np.array([0, 0, 1, 2, 2]))
    kept = sendable(found, np.array([True, False, True]))
    assert kept.labels.tolist() == [0, 0, -1, 1, 1]
    assert kept.centroids.tolist() == [[0.5], [9.5]]
    assert kept.counts.tolist() == [2, 2]
    assert kept.source.tolist() == [0, 2]


# ---- settings ----


def test_settings_hold_for_all_sites_or_by_site():
    assert check_clusterer("kmedoids") == "kmedoids"
    assert check_clusterer({"a": "agglomerative"}) == {"a": "agglomerative"}
    assert check_k_local(None, 3) is None
    assert check_k_local(3, 3) == 3
    assert check_k_local("silhouette", 3) == "silhouette"
    assert check_k_local({"a": 2, "b": "silhouette"}, 3) == {"a": 2, "b": "silhouette"}
    assert [of_site({"a": 2}, site, None) for site in ("a", "b")] == [2, None]
    assert of_site(4, "a", None) == 4


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: check_clusterer("kmean"), "did you mean 'kmeans'"),
        (lambda: check_clusterer({"a": "kmedoid"}), "clusterer of a must be one of .*did you mean 'kmedoids'"),
        (lambda: check_clusterer(3), "clusterer must be one of"),
        (lambda: check_k_local("silhouete", 3), "did you mean 'silhouette'"),
        (lambda: check_k_local(4, 3), "k_local is 4, more than k=3"),
        (lambda: check_k_local(0, 3), "k_local must be an integer of at least 1"),
        (lambda: check_k_local(True, 3), "k_local"),
        (lambda: check_k_local({"a": 9}, 3), "k_local of a is 9"),
        (lambda: check_k_local({"a": None}, 3), "k_local of a"),
    ],
)
def test_wrong_settings_are_refused(check, said):
    with pytest.raises(UserError, match=said):
        check()


def test_a_site_that_is_not_there_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING):
        warn_of_unknown_sites("k_local", {"site-1": 2, "sitte-2": 3}, ["site-1", "site-2"])
        warn_of_unknown_sites("clusterer", "kmeans", ["site-1"])
    assert [record.getMessage() for record in caplog.records] == [
        "k_local names 'sitte-2' (did you mean 'site-2'?), which is none of the sites"
    ]
