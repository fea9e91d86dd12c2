"""Lloyd's algorithm: as scikit-learn's, by hand, and its invariances."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import KMeans

from flareclust.core.lloyd import assign, kmeans, lloyd
from tests.examples import examples
from tests.unit.algorithms.lloyd_cases import mixture

SEEDS = st.integers(0, 10**6)


def literal_lloyd(X, centroids, weights):
    """To convergence; None when a cluster loses all its rows."""
    labels = None
    while True:
        new = ((X[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
        if labels is not None and (new == labels).all():
            return centroids, labels
        labels = new
        if np.bincount(labels, weights, minlength=len(centroids)).min() == 0:
            return None
        centroids = np.array(
            [np.average(X[labels == c], axis=0, weights=weights[labels == c]) for c in np.unique(labels)]
        )


def assert_same_as_scikit_learn(X, centroids, weights=None, max_iter=300, tol=1e-4):
    expected = KMeans(len(centroids), init=centroids, n_init=1, max_iter=max_iter, tol=tol).fit(
        X, sample_weight=weights
    )
    found = lloyd(X, centroids, weights=weights, max_iter=max_iter, tol=tol)
    np.testing.assert_array_equal(found.labels, expected.labels_)
    np.testing.assert_allclose(found.centroids, expected.cluster_centers_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.inertia, expected.inertia_, rtol=1e-9)
    np.testing.assert_array_equal(found.counts, np.bincount(expected.labels_))
    assert found.n_iter == expected.n_iter_


@pytest.mark.parametrize(("max_iter", "tol"), [(300, 0.0), (300, 1e-4), (300, 1e-2), (1, 0.0), (3, 1e-4)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d", "k"), [(400, 2, 15), (1000, 3, 4), (300, 64, 10), (60, 600, 3)])
def test_lloyd_equals_scikit_learn(n, d, k, weighted, max_iter, tol):
    X = mixture(n, d, seed=n)
    weights = np.random.default_rng(2).random(n) * 3 if weighted else None
    assert_same_as_scikit_learn(X, X[:k], weights, max_iter, tol)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_empty_cluster_takes_the_row_that_scikit_learn_gives_it(weighted):
    for seed in range(20):
        X = mixture(80, 2, seed)
        weights = np.random.default_rng(seed).random(80) if weighted else None
        centroids = np.vstack([X[:5], [[1e3, 1e3]]])  # the last is nearest to no row
        assert_same_as_scikit_learn(X, centroids, weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_data_far_from_the_origin_equal_scikit_learn(weighted):
    X = mixture(500, 3) + 1e6
    weights = np.random.default_rng(0).random(500) if weighted else None
    assert_same_as_scikit_learn(X, X[:8], weights)


def test_four_weighted_points_by_hand():
    X = np.array([[0.0], [1.0], [10.0], [11.0]])

    found = lloyd(X, [[0.0], [1.0]], weights=[1, 3, 1, 1])

    # Iteration 1: {0}, {1, 10, 11}: 0 and (3 + 10 + 11) / 5 = 4.8. 2: {0, 1}, {10, 11}: 3/4 and 21/2. 3: no change.
    np.testing.assert_allclose(found.centroids, [[0.75], [10.5]], rtol=1e-15)
    np.testing.assert_array_equal(found.labels, [0, 0, 1, 1])
    np.testing.assert_array_equal(found.counts, [2, 2])
    assert found.inertia == pytest.approx(0.75**2 + 3 * 0.25**2 + 2 * 0.5**2, rel=1e-14)
    assert found.n_iter == 3


def test_several_empty_clusters_take_the_farthest_rows_in_order_by_hand():
    X = np.array([[0.0], [1.0], [-5.0], [7.0], [0.5]])

    found = lloyd(X, [[0.5], [99.0], [98.0]], max_iter=1)

    # Distances to 0.5: 0.5, 0.5, 5.5, 6.5, 0. Cluster 1 takes 7, cluster 2 takes -5, cluster 0 keeps 0, 1, 0.5.
    np.testing.assert_allclose(found.centroids, [[0.5], [7.0], [-5.0]], rtol=1e-15)
    np.testing.assert_array_equal(found.labels, [0, 0, 2, 1, 0])


def test_a_cluster_robbed_of_its_only_row_is_given_another_as_scikit_learn_does():
    X = np.array([[0.0], [50.0], [50.5], [51.5]])
    # Cluster 2 takes row 0 from cluster 1, which then waits at cluster 0 and takes 51.5.
    assert_same_as_scikit_learn(X, np.array([[50.2], [-20.0], [999.0]]), tol=0)
    assert lloyd(X, [[50.2], [-20.0], [999.0]], tol=0).labels.tolist() == [2, 0, 0, 1]


@pytest.mark.parametrize("start", [[0.5, 11.5], [0.5, 10.5, 99.0]])
def test_centroids_that_do_not_move_end_the_run_even_at_tolerance_0(start):
    X = np.array([[0.0], [1.0], [10.0], [13.0]])
    assert_same_as_scikit_learn(X, np.array(start).reshape(-1, 1), tol=0)
    assert lloyd(X, np.array(start).reshape(-1, 1), tol=0).n_iter == len(start) - 1


def test_a_mean_far_from_the_origin_is_exact_to_the_last_digits():
    X = 1e9 + np.random.default_rng(0).normal(size=(20_000, 1))
    exact = math.fsum(X[:, 0]) / len(X)
    assert abs(lloyd(X, [[1e9]]).centroids[0, 0] - exact) <= 2 * np.spacing(1e9)


def test_equally_far_rows_are_taken_from_the_lowest_index():
    found = lloyd([[0.0], [-3.0], [3.0], [0.0]], [[0.0], [50.0]], max_iter=1)
    np.testing.assert_allclose(found.centroids, [[1.0], [-3.0]], rtol=1e-15)


def test_a_row_of_weight_0_moves_no_centroid_and_is_labelled_all_the_same():
    X = np.array([[0.0], [1.0], [10.0], [500.0]])
    found = lloyd(X, [[0.0], [9.0], [9e9]], weights=[1, 1, 1, 0])
    # The empty third cluster takes a row that counts, not the farthest one.
    np.testing.assert_array_equal(np.sort(found.centroids[:, 0]), [0.0, 1.0, 10.0])
    assert found.labels[3] == found.labels[2]
    assert found.counts.sum() == 4
    assert found.inertia == 0


def test_one_cluster_is_the_weighted_mean():
    X = mixture(200, 4) + 100
    weights = np.random.default_rng(0).random(200)
    found = kmeans(X, 1, np.random.default_rng(0), weights=weights)
    np.testing.assert_allclose(found.centroids[0], np.average(X, axis=0, weights=weights), rtol=1e-13)
    np.testing.assert_allclose(kmeans(X, 1, np.random.default_rng(0)).centroids[0], X.mean(axis=0), rtol=1e-13)


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_equal_rows_make_one_cluster(k, init):
    found = kmeans(np.full((5, 2), 0.1), k, np.random.default_rng(0), init=init)
    np.testing.assert_allclose(found.centroids, [[0.1, 0.1]], rtol=1e-15)
    np.testing.assert_array_equal(found.counts, [5])
    np.testing.assert_array_equal(found.labels, np.zeros(5))
    assert found.inertia < 1e-30


def test_a_single_row_is_its_own_cluster():
    found = kmeans([[3.0, 4.0]], 1, np.random.default_rng(0))
    assert (found.centroids.tolist(), found.labels.tolist(), found.counts.tolist()) == ([[3.0, 4.0]], [0], [1])
    assert found.inertia == 0


def test_more_centroids_than_rows_leave_one_cluster_per_distinct_row():
    found = lloyd([[0.0], [4.0], [4.0]], [[1.0], [2.0], [3.0], [90.0], [80.0]])
    np.testing.assert_array_equal(np.sort(found.centroids[:, 0]), [0.0, 4.0])
    np.testing.assert_array_equal(found.centroids[found.labels, 0], [0.0, 4.0, 4.0])


@settings(deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 2)), elements=st.integers(-4, 4).map(float)),
    st.integers(1, 14),
    st.integers(1, 6),
    SEEDS,
)
def test_a_clustering_agrees_with_itself(X, k, max_iter, seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(-6, 7, size=(k, X.shape[1])).astype(float)
    weights = rng.integers(0, 3, size=len(X))
    assume(weights.any())

    found = lloyd(X, start, weights=weights, max_iter=max_iter)

    labels, squared = assign(X, found.centroids)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.counts, np.bincount(labels, minlength=len(found.centroids)))
    assert found.counts.min() >= 1
    assert len(found.counts) <= min(k, len(np.unique(X, axis=0)))
    assert found.inertia == pytest.approx((weights * squared).sum(), rel=1e-12)
    assert found.n_iter <= max_iter


@settings(deadline=None, max_examples=examples(40))
@given(SEEDS)
def test_the_order_of_rows_columns_and_clusters_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    X, weights = mixture(60, 3, seed), rng.random(60)
    start = np.vstack([X[:3], rng.normal(size=(2, 3)) * 20])  # likely to lose all rows
    rows, columns, clusters = rng.permutation(60), rng.permutation(3), rng.permutation(3)
    order = np.append(clusters, [3, 4])  # among empty clusters the index decides who takes which row

    a = lloyd(X, start, weights=weights)
    b = lloyd(X[rows][:, columns], start[order][:, columns], weights=weights[rows])

    assert a.n_iter == b.n_iter
    assert b.inertia == pytest.approx(a.inertia, rel=1e-10)
    np.testing.assert_array_equal(order[b.labels], a.labels[rows])
    np.testing.assert_allclose(b.centroids, a.centroids[order][:, columns], rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=examples(40))
@given(SEEDS, st.sampled_from([1.0, -1e3, 1e6]))
def test_moving_all_rows_moves_the_centroids(seed, offset):
    X = mixture(60, 2, seed)
    a, b = lloyd(X, X[:4]), lloyd(X + offset, X[:4] + offset)
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_allclose(b.centroids - offset, a.centroids, atol=1e-15 * abs(offset) * 100 + 1e-12)
    assert b.inertia == pytest.approx(a.inertia, rel=1e-8)


@settings(deadline=None, max_examples=examples(40))
@given(SEEDS)
def test_a_weight_counts_as_that_many_equal_rows(seed):
    rng = np.random.default_rng(seed)
    X, weights = mixture(30, 2, seed), rng.integers(0, 4, size=30)
    start = X[weights > 0][:4]
    expected = literal_lloyd(X, start, weights)
    assume(expected is not None)  # an empty cluster takes one row, whatever its weight

    a = lloyd(X, start, weights=weights, tol=0)
    b = lloyd(np.repeat(X, weights, axis=0), start, tol=0)

    np.testing.assert_allclose(a.centroids, expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(b.centroids, a.centroids, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(b.labels, np.repeat(a.labels, weights))
    assert b.inertia == pytest.approx(a.inertia, rel=1e-10)


def test_input_is_left_as_it_was():
    X, weights = mixture(50, 2), np.ones(50)
    start = X[:3].copy()
    before = X.copy(), start.copy()
    lloyd(X, start, weights=weights)
    kmeans(X, 3, np.random.default_rng(0), weights=weights)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(start, before[1])
    np.testing.assert_array_equal(weights, np.ones(50))
