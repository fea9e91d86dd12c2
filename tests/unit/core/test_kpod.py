"""k-POD against a literal twin, against k-means on complete rows, and on planted clusters with missing columns."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.kpod import Fit, Observed, _improve, _majorise, kpod, move
from flareclust.core.missing.kernels import nearest_by_known, squares_of_known, sums_of_known
from flareclust.engines.pooled import central_kmeans
from tests.examples import examples

NAN = np.nan


def planted(rng: np.random.Generator, k: int, d: int, n: int = 400, apart: float = 6.0) -> tuple[FloatArray, IntArray]:
    """Return rows (n, d) around k random centers, and the center of each row."""
    y = rng.permutation(np.arange(n) % k)
    return (rng.normal(size=(k, d)) * apart)[y] + rng.normal(size=(n, d)), y


def in_blocks(X: FloatArray, m: int, share: float, rng: np.random.Generator) -> FloatArray:
    """Return X as m sites would have it, each with its own random columns; every column is at some site."""
    columns = np.array([rng.permutation(X.shape[1]) < share * X.shape[1] for _ in range(m)])
    columns[rng.integers(m, size=X.shape[1]), np.arange(X.shape[1])] = True
    return np.where(columns[rng.integers(m, size=len(X))], X, NAN)


def by_rows(centroids: FloatArray) -> FloatArray:
    return centroids[np.lexsort(centroids.T[::-1])]


def random_problem(seed: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return a small X with NaN, and centroids and labels as some earlier step may have left them."""
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(6, 14)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) * 3
    X[rng.random((n, d)) < 0.4] = NAN
    X[np.arange(n), rng.integers(d, size=n)] = rng.normal(size=n)  # no row without any entry
    return X, rng.normal(size=(k, d)), rng.integers(k, size=n)


def observed(X: FloatArray) -> Observed:
    return Observed(np.nan_to_num(X), (~np.isnan(X)).astype(float))


def fit_of(X: FloatArray, centroids: FloatArray, labels: IntArray) -> Fit:
    return Fit(centroids, labels, twin_objective(X, centroids, labels))


# ---- slow literal twins ----


def twin_objective(X: FloatArray, B: FloatArray, a: IntArray) -> float:
    """Return the squares over the observed entries."""
    total = 0.0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            if not np.isnan(X[i, j]):
                total += (X[i, j] - B[a[i], j]) ** 2
    return total


def twin_means(X: FloatArray, B: FloatArray, a: IntArray) -> FloatArray:
    """Return B with the mean of what is observed, where anything is."""
    B = B.copy()
    for c in range(B.shape[0]):
        for j in range(B.shape[1]):
            own = [X[i, j] for i in range(len(X)) if a[i] == c and not np.isnan(X[i, j])]
            if own:
                B[c, j] = sum(own) / len(own)
    return B


def twin_majorise(X: FloatArray, B: FloatArray, a: IntArray) -> tuple[FloatArray, IntArray]:
    """Return centroids and labels of k-means on the filled rows, by loops; None of the clusters may become empty."""
    filled = np.array([[B[a[i], j] if np.isnan(x) else x for j, x in enumerate(row)] for i, row in enumerate(X)])
    labels = np.full(len(X), -1)
    while True:
        nearest = np.array([np.argmin([sum((x - b) ** 2) for b in B]) for x in filled])
        if np.array_equal(nearest, labels):
            return B, labels
        labels = nearest
        if len(set(labels.tolist())) < len(B):
            raise LookupError("a cluster became empty")
        B = np.array([filled[labels == c].mean(axis=0) for c in range(len(B))])


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_step_of_majorisation_equals_its_literal_twin(seed: int) -> None:
    X, B, a = random_problem(seed)
    try:
        twin, labels = twin_majorise(X, B, a)
    except LookupError:
        return  # which row an empty cluster takes is scikit-learn's choice
    got = _majorise(observed(X), fit_of(X, B, a))
    assert got.labels.tolist() == labels.tolist()
    np.testing.assert_allclose(got.centroids, twin_means(X, twin, labels), atol=1e-12)
    assert got.objective == pytest.approx(twin_objective(X, got.centroids, labels))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_rows_move_to_the_centroid_nearest_in_the_entries_they_have(seed: int) -> None:
    X, B, a = random_problem(seed)
    one_row = [[twin_objective(X[[i]], B, np.array([c])) for c in range(len(B))] for i in range(len(X))]
    labels = np.argmin(one_row, axis=1)
    got = move(observed(X), fit_of(X, B, a))
    if len(set(labels.tolist())) == len(B):  # otherwise see the test of empty clusters
        assert got.labels.tolist() == labels.tolist()
        np.testing.assert_allclose(got.centroids, twin_means(X, B, labels), atol=1e-12)
    assert got.objective == pytest.approx(twin_objective(X, got.centroids, got.labels))


@pytest.mark.parametrize(("n", "d", "k"), [(128, 1, 2), (129, 2, 15), (1000, 5, 1), (700, 16, 30)])
def test_a_step_on_many_rows_is_that_of_products_of_matrices(n: int, d: int, k: int) -> None:
    rng = np.random.default_rng(n)
    X, _ = planted(rng, max(k, 2), d, n)
    X[rng.random(X.shape) < 0.3] = NAN
    data, B = observed(X), rng.permutation(X[: 2 * k])[:k]
    B = np.where(np.isnan(B), rng.normal(size=B.shape), B)
    labels = (data.known @ (B**2).T - 2 * data.rows @ B.T).argmin(axis=1)
    member = (labels == np.arange(k)[:, None]).astype(float)
    assert member.any(axis=1).all()
    holders = member @ data.known

    got = move(data, Fit(B, labels, 0.0))

    np.testing.assert_array_equal(got.labels, labels)
    np.testing.assert_allclose(
        got.centroids, np.where(holders > 0, member @ data.rows / np.maximum(holders, 1), B), atol=1e-12
    )
    assert got.objective == pytest.approx((data.known * (data.rows - got.centroids[labels]) ** 2).sum(), rel=1e-12)


def test_kernels_are_compiled_once_whatever_is_passed(rng: np.random.Generator) -> None:
    X = np.asfortranarray(rng.normal(size=(40, 3)))
    for form in (X, X.tolist(), X.astype(np.float32)):
        kpod(form, 2)
    assert {len(one.signatures) for one in (nearest_by_known, sums_of_known, squares_of_known)} == {1}


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_objective_never_rises_and_the_end_rests_in_both_steps(seed: int) -> None:
    X, B, a = random_problem(seed)
    path = list(_improve(observed(X), fit_of(X, twin_means(X, B, a), a), max_iter=50))
    objectives = [twin_objective(X, fit.centroids, fit.labels) for fit in path]
    assert all(after <= before + 1e-9 for before, after in pairwise(objectives))
    last = path[-1]
    for step in (_majorise, move):
        assert step(observed(X), last).labels.tolist() == last.labels.tolist()


def test_filling_again_and_again_ends_where_the_observed_means_are() -> None:
    """Deviation 3: the limit of the paper's own step, taken 2,000 times with rows that stay where they are."""
    X, B, a = random_problem(3)
    slow = B.copy()
    for _ in range(2000):
        filled = np.where(np.isnan(X), slow[a], X)
        slow = np.array([filled[a == c].mean(axis=0) for c in range(len(B))])
    seen = np.array([[(~np.isnan(X[a == c, j])).any() for j in range(X.shape[1])] for c in range(len(B))])
    np.testing.assert_allclose(slow[seen], twin_means(X, B, a)[seen], atol=1e-9)


def test_an_empty_cluster_takes_the_row_farthest_from_its_centroid() -> None:
    X = np.array([[0.0, NAN], [1.0, 0.0], [9.0, NAN]])
    got = move(observed(X), fit_of(X, np.array([[0.0, 0.0], [50.0, 7.0]]), np.zeros(3, dtype=np.int64)))
    assert got.labels.tolist() == [0, 0, 1]
    np.testing.assert_allclose(got.centroids, [[0.5, 0.0], [9.0, 7.0]])


# ---- promises of kpod ----


@pytest.mark.parametrize("seed", range(4))
def test_complete_rows_give_central_kmeans(seed: int) -> None:
    X, _ = planted(np.random.default_rng(seed), k=5, d=3)
    np.testing.assert_allclose(by_rows(kpod(X, 5, seed)), by_rows(central_kmeans(X, 5, seed)), atol=1e-9)


def test_complete_rows_without_clusters_are_no_worse_than_central_kmeans(rng: np.random.Generator) -> None:
    X = rng.normal(size=(500, 4))

    def inertia(centroids: FloatArray) -> float:
        return float(((X[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum())

    ours, central = inertia(kpod(X, 6)), inertia(central_kmeans(X, 6))
    assert ours == pytest.approx(central, rel=1e-3)
    assert ours <= central * (1 + 1e-9)


@pytest.mark.parametrize(("k", "d", "share"), [(4, 12, 0.5), (3, 100, 0.2), (10, 40, 0.5)])
def test_planted_clusters_are_found_where_sites_lack_columns(k: int, d: int, share: float) -> None:
    rng = np.random.default_rng(k)
    X, y = planted(rng, k, d, n=600)
    means = np.array([X[y == c].mean(axis=0) for c in range(k)])
    found = kpod(in_blocks(X, 6, share, rng), k)
    error = np.sqrt(np.nanmean((found[:, None] - means) ** 2, axis=2))
    assert sorted(error.argmin(axis=0).tolist()) == list(range(k))
    assert error.min(axis=0).max() < 0.5  # in units of the clusters' own standard deviation


def test_it_is_better_than_kmeans_on_rows_filled_with_the_columns_means() -> None:
    rng = np.random.default_rng(1)
    X, y = planted(rng, 4, 8)
    holed = in_blocks(X, 8, 0.4, rng)
    known = ~np.isnan(holed)
    filled = np.where(known, holed, np.nanmean(holed, axis=0))
    imputed = KMeans(4, n_init=10, random_state=0).fit(filled)
    centroids = kpod(holed, 4)

    def squares(points: FloatArray) -> float:
        return float(np.nansum((holed[:, None] - points) ** 2, axis=2).min(axis=1).sum())

    assert squares(centroids) < 0.8 * squares(imputed.cluster_centers_)
    assert squares(centroids) <= 1.05 * squares(np.array([X[y == c].mean(axis=0) for c in range(4)]))


def test_what_a_cluster_never_observes_is_unknown() -> None:
    X = np.array([[0.0, NAN], [0.2, NAN], [9.0, 1.0], [9.2, 3.0]])
    np.testing.assert_allclose(by_rows(kpod(X, 2)), [[0.1, NAN], [9.1, 2.0]])


def test_one_cluster_is_the_mean_of_what_is_observed() -> None:
    X = np.array([[1.0, NAN], [3.0, 5.0], [NAN, 7.0]])
    np.testing.assert_allclose(kpod(X, 1), [[2.0, 6.0]])


@settings(max_examples=15, deadline=None)
@given(st.floats(-1e6, 1e6), st.sampled_from([0.25, 8.0]))
def test_moving_and_stretching_the_rows_moves_and_stretches_the_centroids(by: float, times: float) -> None:
    rng = np.random.default_rng(5)
    X = in_blocks(planted(rng, 3, 6, n=90)[0], 3, 0.7, rng)
    np.testing.assert_allclose(by_rows(kpod(X * times + by, 3)), by_rows(kpod(X, 3)) * times + by, atol=1e-7)


def test_rows_far_from_zero_keep_their_clusters() -> None:
    X = np.array([[0.0, NAN], [0.5, 0.0], [8.0, 4.0], [NAN, 4.5]])
    np.testing.assert_allclose(by_rows(kpod(X + 1e12, 2)) - 1e12, [[0.25, 0.0], [8.0, 4.25]], atol=1e-3)


def test_more_starts_are_never_worse_and_the_same_seed_gives_the_same_bits(rng: np.random.Generator) -> None:
    X = in_blocks(rng.normal(size=(200, 6)), 4, 0.5, rng)

    def squares(centroids: FloatArray) -> float:
        return float(np.nansum((X[:, None] - centroids) ** 2, axis=2).min(axis=1).sum())

    values = [squares(kpod(X, 8, n_init=n_init)) for n_init in (1, 5, 20)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < values[0]
    assert kpod(X, 8).tobytes() == kpod(X, 8).tobytes()


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_with_fewer_different_rows_than_clusters_there_are_fewer_centroids() -> None:
    X = np.array([[0.0, NAN]] * 3 + [[4.0, 1.0]] * 3)
    np.testing.assert_allclose(by_rows(kpod(X, 4)), [[0.0, NAN], [4.0, 1.0]])


@pytest.mark.parametrize(
    ("X", "text"),
    [
        ([[1.0, NAN], [2.0, NAN], [0.0, NAN]], r"1 column of X without any entry \(number 1\)"),
        ([[1.0, 2.0], [NAN, NAN], [NAN, NAN]], r"2 rows of X without any entry \(number 1, 2\)"),
        (np.full((7, 2), NAN), r"7 rows of X .*\(number 0, 1, 2, 3, 4, \.\.\.\)"),
        ([[1.0, np.inf], [2.0, 3.0]], "1 infinite value"),
        ([1.0, 2.0], r"shape \(n, D\).*got \(2,\)"),
        (np.empty((0, 3)), r"at least one row.*got \(0, 3\)"),
        ([["a", "b"]], "array of numbers"),
        ([[1.0, 2.0]], "k=2 is more than the 1 rows"),
    ],
)
def test_rows_that_cannot_be_clustered_are_refused(X: object, text: str) -> None:
    with pytest.raises(UserError, match=text):
        kpod(X, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["k", "n_init", "max_iter"])
def test_settings_out_of_range_are_refused(setting: str) -> None:
    arguments = {"k": 2, setting: 0}
    with pytest.raises(UserError, match=f"{setting} must be an integer of at least 1"):
        kpod(np.ones((3, 2)), **arguments)
