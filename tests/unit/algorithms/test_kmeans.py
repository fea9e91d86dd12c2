"""K-means around Lloyd's algorithm: starts, aborts, statistics of clusters, and errors."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from flareclust._foundation.errors import Aborted, UserError
from flareclust.core import kernels, pyramid
from flareclust.core import lloyd as module
from flareclust.core.lloyd import assign, cluster_statistics, kmeans, lloyd, recompute_centroids
from flareclust.core.seeds import kmeans_plusplus
from flareclust.core.threads import THREADS
from tests.unit.algorithms.lloyd_cases import mixture


def test_kmeans_returns_the_best_of_its_starts():
    X = mixture(300, 2)
    rng = np.random.default_rng(5)
    runs = [lloyd(X, kmeans_plusplus(X, 9, rng)[0]) for _ in range(6)]
    assert len({run.inertia for run in runs}) > 1

    found = kmeans(X, 9, np.random.default_rng(5), n_init=6)

    best = min(runs, key=lambda run: run.inertia)
    np.testing.assert_array_equal(found.centroids, best.centroids)
    assert found.inertia == best.inertia


def test_what_depends_on_the_rows_alone_is_made_once_for_all_starts(monkeypatch):
    made = []
    for name in ("screen_of", "pyramid_of"):
        make = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, make=make: (made.append(make), make(*given))[1])
    monkeypatch.setattr(pyramid, "FEWEST_ROWS", 100)
    X = mixture(3000, 2)
    rng = np.random.default_rng(5)
    expected = min((lloyd(X, kmeans_plusplus(X, 9, rng)[0]) for _ in range(4)), key=lambda run: run.inertia)
    made.clear()

    found = kmeans(X, 9, np.random.default_rng(5), n_init=4)

    assert len(made) == 2
    assert found.centroids.tobytes() == expected.centroids.tobytes()
    assert found.labels.tobytes() == expected.labels.tobytes()


def test_random_starts_are_different_rows_that_count():
    X = np.arange(12.0).reshape(-1, 1)
    for seed in range(10):
        assert kmeans(X, 12, np.random.default_rng(seed), init="random").inertia == 0
    weights = np.repeat([1.0, 0.0], 6)
    found = kmeans(X, 12, np.random.default_rng(0), init="random", weights=weights)
    np.testing.assert_array_equal(np.sort(found.centroids[:, 0]), np.arange(6.0))


def test_ten_threads_get_bitwise_the_results_of_one():
    def run(seed):
        return kmeans(mixture(2000, 2 + seed % 3, seed, spread=2), 8, np.random.default_rng(seed), n_init=2)

    expected = [run(seed) for seed in range(10)]
    for _ in range(3):
        with ThreadPoolExecutor(10) as pool:
            for found, alone in zip(pool.map(run, range(10)), expected, strict=True):
                assert found.centroids.tobytes() == alone.centroids.tobytes()
                assert found.labels.tobytes() == alone.labels.tobytes()
                assert (found.inertia, found.n_iter) == (alone.inertia, alone.n_iter)


@pytest.fixture
def kernel_calls(monkeypatch):
    """The number of iterations asked of the kernel in each call."""
    calls = []
    kernel = kernels.lloyd_steps
    monkeypatch.setenv(THREADS, "1")  # several threads have iterations of their own

    def spy(*arguments):
        calls.append(arguments[6])
        return kernel(*arguments)

    monkeypatch.setattr(kernels, "lloyd_steps", spy)
    return calls


def test_an_abort_is_noticed_before_the_next_kernel_call(kernel_calls, monkeypatch):
    monkeypatch.setattr(module, "_WORK_PER_CALL", 1)
    X = mixture(500, 2, spread=3)
    asked = count(1)

    with pytest.raises(Aborted, match="after 3 iterations"):
        lloyd(X, X[:15], tol=0, aborted=lambda: next(asked) > 3)

    assert kernel_calls == [1, 1, 1]


def test_the_work_between_two_abort_checks_is_bounded(kernel_calls, monkeypatch):
    monkeypatch.setattr(module, "_WORK_PER_CALL", 200_000_000)
    X = mixture(20_000, 16)
    lloyd(X, X[:40], max_iter=40, tol=0)
    assert len(kernel_calls) > 1
    assert max(kernel_calls) * X.size * 40 <= module._WORK_PER_CALL


def test_dividing_the_iterations_over_calls_changes_nothing(kernel_calls, monkeypatch):
    X = mixture(500, 2, spread=3)
    start = np.vstack([X[:14], [[1e3, 1e3]]])
    whole = lloyd(X, start, tol=0)
    assert len(kernel_calls) == 1

    monkeypatch.setattr(module, "_WORK_PER_CALL", 1)
    pieces = lloyd(X, start, tol=0)

    assert len(kernel_calls) == 1 + whole.n_iter
    np.testing.assert_array_equal(pieces.centroids, whole.centroids)
    assert pieces.n_iter == whole.n_iter


def test_kmeans_can_be_aborted_at_once():
    with pytest.raises(Aborted):
        kmeans(mixture(50, 2), 1, np.random.default_rng(0), aborted=lambda: True)


def test_assign_takes_no_rows_at_all():
    labels, squared = assign(np.empty((0, 2)), [[0.0, 0.0]])
    assert (labels.shape, labels.dtype, squared.shape) == ((0,), np.int64, (0,))


def test_cluster_statistics_by_hand():
    X = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [6.0, 8.0]])
    found = cluster_statistics(X, [0, 0, 2, 2], [[0.0, 0.0], [9.0, 9.0], [1.0, 0.0], [5.0, 5.0]])
    far = np.sqrt(25.0 + 64.0)
    np.testing.assert_array_equal(found.counts, [2, 0, 2, 0])
    np.testing.assert_allclose(found.sse, [25.0, 0.0, 89.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(found.max_distance, [5.0, 0.0, far, 0.0], rtol=1e-15)


def test_cluster_statistics_without_rows_are_zeros_of_the_right_types():
    found = cluster_statistics(np.empty((0, 2)), [], [[0.0, 0.0], [1.0, 1.0]])
    assert [part.tolist() for part in found] == [[0, 0]] * 3
    assert [part.dtype for part in found] == [np.int64, np.float64, np.float64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k must be between 1 and"),
        ({"k": 5}, "number of rows, 4"),
        ({"k": 2.0}, "integer"),
        ({"n_init": 0}, "n_init must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": -1.0}, "tol must be"),
        ({"tol": float("nan")}, "tol must be"),
        ({"init": "kmeans++"}, r"did you mean 'k-means\+\+'"),
        ({"weights": [1, 2]}, "each of the 4 rows"),
        ({"X": np.zeros(4)}, "two axes"),
        ({"X": np.zeros((0, 2))}, "at least one row"),
    ],
)
def test_kmeans_says_what_is_wrong(options, message):
    arguments = {"X": np.zeros((4, 1)), "k": 2, "rng": np.random.default_rng(0)} | options
    with pytest.raises(UserError, match=message):
        kmeans(**arguments)


def test_lloyd_assign_and_statistics_refuse_centroids_of_other_columns():
    for call in (lloyd, assign, lambda X, C: cluster_statistics(X, [0, 0], C)):
        with pytest.raises(UserError, match="3 features but X has 2"):
            call(np.zeros((2, 2)), np.zeros((1, 3)))


def test_settle_puts_centroids_at_the_means_of_their_rows(rng):
    X = 1e6 + rng.normal(size=(200, 3))
    found = kmeans(X, 5, rng, tol=1.0)
    settled = recompute_centroids(X, found)
    means = np.stack([X[found.labels == r].mean(axis=0) for r in range(len(found.counts))])
    assert np.abs(found.centroids - means).max() > 1e-3, "a tolerance this large should have stopped k-means early"
    np.testing.assert_allclose(settled.centroids, means, rtol=1e-14)
    np.testing.assert_array_equal(settled.labels, found.labels)
    sse = cluster_statistics(X, settled.labels, settled.centroids).sse
    assert sse.sum() == pytest.approx(((X - means[found.labels]) ** 2).sum())
    assert np.isnan(settled.inertia), "not computed, and not that of the centroids before"
