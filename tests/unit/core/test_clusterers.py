"""The server's clusterers: exact on separable data, against slow twins, by hand, and on odd points."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flareclust._foundation.errors import Aborted, UserError
from flareclust.aggregators.dkmpp import separability
from flareclust.core import clusterers, convex
from flareclust.core.convex import convex_clustering
from flareclust.core.lloyd import kmeans
from flareclust.core.spectral import project, spectral_kmeans
from tests import twins
from tests.examples import examples


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def partition_of(labels):
    """Return the groups as a set of sets of indices, whatever their numbers."""
    return {frozenset(np.flatnonzero(labels == r).tolist()) for r in set(np.asarray(labels).tolist())}


def planted(seed, sizes, d, alpha):
    """Points in balls, shuffled: alpha-separable with respect to the labels returned."""
    rng = np.random.default_rng(seed)
    k, labels = len(sizes), rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    means = rng.normal(size=(k, d)) * rng.uniform(1, 100) + rng.normal(size=d) * 50
    gap = min(np.linalg.norm(means[a] - means[b]) for a in range(k) for b in range(a))
    directions = rng.normal(size=(len(labels), d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # Balls of radius rho have means within rho of their centers and points within 2 rho of those.
    rho = gap / (2 * alpha + 2) * 0.999
    points = means[labels] + directions * rho * rng.uniform(0.2, 1, (len(labels), 1))
    assert separability(points, labels) > alpha
    return points, labels


def fused(points, lam):
    """Return the groups (n,) of convex clustering for a given lam > 0, in the order of their first points."""
    labels = convex._in_order(np.unique(points, axis=0, return_inverse=True)[1].reshape(-1))
    rescaled, unit = convex._rescaled(points)
    return convex._fuse(rescaled, labels, lam / unit, lambda: False)[0]


def recovery_interval(points, labels):
    """Return (least, below): every lam with least <= lam < below recovers exactly these groups.

    They are the largest diameter / size of a group, and the smallest |mean_a - mean_b| / (2 n - n_a - n_b) over pairs of
    groups: Sun, Toh, Yuan (2021), Theorem 5, after Panahi et al. (2017), for pairs that weigh the same.
    """
    groups = [points[labels == r] for r in np.unique(labels)]
    least = max(np.linalg.norm(own[:, None] - own[None], axis=2).max() / len(own) for own in groups)
    below = [
        np.linalg.norm(one.mean(axis=0) - other.mean(axis=0)) / (2 * len(points) - len(one) - len(other))
        for one, other in itertools.combinations(groups, 2)
    ]
    return least, min(below)


SIZES = st.lists(st.integers(1, 12), min_size=2, max_size=6)
PROBLEM = {"seed": st.integers(0, 10**6), "sizes": SIZES, "d": st.sampled_from([1, 2, 3, 8, 40])}


# ---- exact on separable data ----


@pytest.mark.parametrize("clusterer", clusterers.CLUSTERERS)
@settings(max_examples=examples(60), deadline=None)
@given(**PROBLEM)
def test_alpha_separable_sets_are_recovered_exactly(clusterer, seed, sizes, d):
    """With alpha = 4 n, the order that Armacki and Kar's Remark 3 gives for convex clustering; k-means does, too."""
    points, labels = planted(seed, sizes, d, alpha=4 * sum(sizes))
    found = clusterers.group(points, len(sizes), clusterer, np.random.default_rng(seed))
    assert partition_of(found.labels) == partition_of(labels)
    assert found.diagnostics.get("joined", 0) == 0


@settings(max_examples=examples(60), deadline=None)
@given(**PROBLEM)
def test_spectral_needs_only_the_root_of_n(seed, sizes, d):
    points, labels = planted(seed, sizes, d, alpha=4 * sum(sizes) ** 0.5)
    assert partition_of(spectral_kmeans(points, len(sizes), np.random.default_rng(seed)).labels) == partition_of(labels)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 6), size=st.integers(2, 12), d=st.sampled_from([1, 2, 3, 8]))
def test_convex_needs_less_where_groups_are_of_equal_size(seed, k, size, d):
    """Then alpha = 4 (k - 1) leaves room for lam, however many points there are."""
    points, labels = planted(seed, [size] * k, d, alpha=4 * (k - 1) + 0.5)
    found = convex_clustering(points, k)
    assert partition_of(found.labels) == partition_of(labels)
    assert found.joined == 0


@settings(max_examples=examples(60), deadline=None)
@given(**PROBLEM, where=st.floats(0.001, 0.999))
def test_every_lam_of_the_recovery_interval_recovers(seed, sizes, d, where):
    points, labels = planted(seed, sizes, d, alpha=4 * sum(sizes))
    minimum, less_than = recovery_interval(points, labels)
    assert minimum < less_than, "the planted sets are too close for the theorem"
    assert partition_of(fused(points, minimum + where * (less_than - minimum))) == partition_of(labels)


def test_a_few_hundred_points_in_many_columns():
    points, labels = planted(0, [20] * 15, 50, alpha=60)
    for clusterer in clusterers.CLUSTERERS:
        found = clusterers.group(points, 15, clusterer, np.random.default_rng(0))
        assert partition_of(found.labels) == partition_of(labels)


# ---- convex clustering ----


def slow_positions(X, lam, iterations=12_000):
    """AMA (Chi and Lange 2015, section 4): gradient steps on the dual, each multiplier kept in the ball of radius lam.

    Returns positions that are within `error` of the minimum's, by strong convexity and the duality gap.
    """
    n = len(X)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    E = np.zeros((len(pairs), n))
    for row, (i, j) in enumerate(pairs):
        E[row, i], E[row, j] = 1, -1
    nu = np.zeros((len(pairs), X.shape[1]))
    for _ in range(iterations):
        U = X - E.T @ nu
        nu = nu + 1.9 / n * (E @ U)
        nu /= np.maximum(1, np.linalg.norm(nu, axis=1, keepdims=True) / lam)
    U = X - E.T @ nu
    primal = 0.5 * ((X - U) ** 2).sum() + lam * np.linalg.norm(E @ U, axis=1).sum()
    dual = 0.5 * (X**2).sum() - 0.5 * (U**2).sum()
    return U, np.sqrt(2 * max(primal - dual, 0.0))


@pytest.mark.parametrize(("seed", "d"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 5)])
@pytest.mark.parametrize("share", [0.3, 0.55, 0.8])
def test_fused_points_are_those_with_one_position_in_a_slow_solution(seed, d, share):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3, d))[rng.integers(3, size=10)] * 3 + rng.normal(size=(10, d))
    lam = share * max(np.linalg.norm(x - y) for x in X for y in X) / 10
    U, error = slow_positions(X - X.mean(axis=0), lam)
    apart = np.linalg.norm(U[:, None] - U[None], axis=2)
    same = apart < 1e-4
    assert error < 2e-5, "the slow solution is not accurate enough"
    assert (apart[same] <= 2 * error + 1e-9).all(), "the slow solution does not decide"
    labels = fused(X, lam)
    np.testing.assert_array_equal(labels[:, None] == labels[None], same)


def test_three_points_on_a_line_by_hand():
    """0 moves up by 2 lam, 1 stays, 10 moves down by 2 lam: 0 and 1 meet at lam = 1/2, and 10 at 19/6."""
    X = line(0, 1, 10)
    for lam, expected in [(0.49, [0, 1, 2]), (0.51, [0, 0, 1]), (3.16, [0, 0, 1]), (3.18, [0, 0, 0])]:
        assert fused(X, lam).tolist() == expected
    found = convex_clustering(X, 2)
    assert found.labels.tolist() == [0, 0, 1]
    assert 0.5 < found.lam < 19 / 6
    assert found.joined == 0


def test_where_no_lam_leaves_k_groups_some_are_joined():
    """The corners of an equilateral triangle fuse all at once."""
    triangle = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    found = convex_clustering(triangle, 2)
    assert sorted(np.bincount(found.labels).tolist()) == [1, 2]
    assert found.joined == 1
    far = np.concatenate([triangle, triangle + 1000])
    assert partition_of(convex_clustering(far, 2).labels) == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}
    assert convex_clustering(far, 2).joined == 0
    assert convex_clustering(far, 3).joined > 0


def test_groups_are_proven_to_have_fused_by_hand():
    """The q of two points is their difference over 2 lam, whatever its sign, and its norm may be 1."""
    for lam, together in [(4.9, False), (5.1, True)]:
        for x in (line(0, 10), line(10, 0), np.array([[0.0, 8.0], [6.0, 0.0]])):
            found = convex._proven(x, np.ones(2), np.zeros(2, int), lam, np.array([0]), np.array([1]), 0 * x[:1])
            assert found.tolist() == [together], (x, lam)


def test_groups_are_joined_where_they_add_least_to_the_sum_of_squares():
    labels = convex._join(line(0, 1, 1, 1, 1, 1, 3, 5), np.array([0, 1, 1, 1, 1, 1, 2, 3]), 3)
    assert labels.tolist() == [0, 0, 0, 0, 0, 0, 1, 2]  # 5/6 for 0 and 1; 10/3 for 1 and 3; 2 for 3 and 5
    labels = convex._join(line(0, 1, 1, 1, 1, 1, 3, 5), np.array([0, 1, 1, 1, 1, 1, 2, 3]), 2)
    assert labels.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), d=st.integers(1, 4), k=st.integers(1, 8))
def test_convex_groups_whatever_the_points(seed, n, d, k):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(n, d)).astype(float)  # with ties and repeated points
    found = convex_clustering(X, k)
    different = len(np.unique(X, axis=0))
    assert len(found.labels) == n
    assert sorted(set(found.labels.tolist())) == list(range(min(k, different)))
    for x, own in zip(X, found.labels, strict=True):
        assert len(set(found.labels[(x == X).all(axis=1)].tolist())) == 1, f"{x} is in {own} and elsewhere"
    again = convex_clustering(X * 2.0**40, k)
    np.testing.assert_array_equal(again.labels, found.labels)
    assert again.lam == found.lam * 2.0**40


def test_more_columns_than_points_change_nothing():
    rng = np.random.default_rng(3)
    few = rng.normal(size=(3, 4))[rng.integers(3, size=12)] * 4 + rng.normal(size=(12, 4))
    rotation = np.linalg.qr(rng.normal(size=(60, 60)))[0][:, :4]
    many = few @ rotation.T + rng.normal(size=60)
    for k in (2, 3, 5):
        here, there = convex_clustering(few, k), convex_clustering(many, k)
        np.testing.assert_array_equal(here.labels, there.labels)
        assert here.lam == pytest.approx(there.lam, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e140])
def test_convex_clustering_of_tiny_and_huge_numbers(scale):
    X = line(0, 1, 10, 11) * scale
    assert convex_clustering(X, 2).labels.tolist() == [0, 0, 1, 1]


def test_convex_clustering_stops_when_aborted():
    with pytest.raises(Aborted):
        convex_clustering(line(0, 1, 5, 6), 2, aborted=lambda: True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: convex_clustering(np.empty((0, 2)), 2), "at least one row"),
        (lambda: convex_clustering(line(0, np.nan), 1), "finite"),
        (lambda: convex_clustering(line(0, 1), 0), "k must be at least 1"),
    ],
)
def test_bad_input_to_convex_clustering(call, words):
    with pytest.raises(UserError, match=words):
        call()


# ---- spectral k-means ----


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 40), d=st.sampled_from([1, 2, 3, 5, 60]), k=st.integers(1, 6))
def test_spectral_runs_the_printed_steps_from_the_best_of_ten(seed, n, d, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 8 * rng.normal(size=(4, d))[rng.integers(4, size=n)]
    best = kmeans(project(X, k), k, np.random.default_rng(seed), n_init=10).labels

    def approximation(A_hat):
        return np.array([A_hat[best == r].mean(axis=0) for r in range(best.max() + 1)])

    expected = twins.local_kmeans(X, k, approximation)
    assume(expected is not None)

    found = spectral_kmeans(X, k, np.random.default_rng(seed))

    np.testing.assert_array_equal(found.labels, expected[0])
    np.testing.assert_allclose(found.centroids, np.array(expected[1]), rtol=1e-9, atol=1e-9)


# ---- all, by name ----


@pytest.mark.parametrize("clusterer", clusterers.CLUSTERERS)
def test_means_and_labels_belong_together(clusterer):
    X = np.random.default_rng(5).normal(size=(40, 3))
    means, labels = clusterers.cluster_means(X, 6, clusterer, np.random.default_rng(0))
    assert sorted(set(labels.tolist())) == list(range(len(means)))
    assert len(means) == 6
    for r, mean in enumerate(means):
        np.testing.assert_allclose(mean, X[labels == r].mean(axis=0), rtol=1e-12)
    again, _ = clusterers.cluster_means(X, 6, clusterer, np.random.default_rng(0))
    np.testing.assert_array_equal(again, means)


@pytest.mark.parametrize("clusterer", clusterers.CLUSTERERS)
@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (line(3), 1),
        (line(3, 3, 3), 1),
        (line(1, 2), 2),
        (line(1, 2, 2, 1), 2),
        (np.array([[0.0, 5], [0, 5], [1, 5], [9, 5]]), 3),
    ],
)
def test_fewer_different_points_than_k_give_fewer_groups(clusterer, points, expected):
    means, labels = clusterers.cluster_means(points, 4, clusterer, np.random.default_rng(0))
    assert len(means) == expected
    assert len(labels) == len(points)
    assert np.isfinite(means).all()


def test_an_unknown_clusterer_is_named_with_the_nearest():
    with pytest.raises(UserError, match="did you mean 'spectral'"):
        clusterers.cluster_means(line(0, 1), 1, "spektral", np.random.default_rng(0))
