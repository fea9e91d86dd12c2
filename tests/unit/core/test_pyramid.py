"""Lloyd's iterations on cells end as those on rows do: same labels, same bits of the centroids, same number of iterations."""

import numpy as np
import pytest

from flareclust._foundation.errors import Aborted
from flareclust.core import lloyd as module
from flareclust.core import pyramid
from flareclust.core.lloyd import lloyd
from flareclust.core.pyramid import pyramid_of, pyramid_steps
from tests.unit.algorithms.lloyd_cases import mixture

N = 2000


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(pyramid, "FEWEST_ROWS", 100)
    monkeypatch.setattr(pyramid, "_CROWD", 2.0)


def by_rows(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(module, "pyramid_of", lambda *_: None)
        return lloyd(*arguments, **options)


def assert_equal(found, expected):
    assert found.n_iter == expected.n_iter
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert found.inertia == expected.inertia


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("max_iter", "tol"), [(300, 0.0), (300, 1e-4), (300, 1e-2), (1, 0.0), (2, 0.0), (7, 1e-4)])
def test_the_end_is_that_of_iterations_on_rows(d, weighted, max_iter, tol, monkeypatch):
    for seed in range(3):
        X = mixture(N, d, seed) + 1e4
        weights = np.random.default_rng(seed).random(N) if weighted else None
        options = {"weights": weights, "max_iter": max_iter, "tol": tol}
        assert pyramid_of(X, np.ones(N), X.mean(axis=0), 9) is not None
        assert_equal(lloyd(X, X[:9], **options), by_rows(monkeypatch, X, X[:9], **options))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_end_is_that_of_many_rows(d, monkeypatch):
    X = mixture(200_000, d, seed=4)
    assert pyramid_of(X, np.ones(len(X)), X.mean(axis=0), 9) is not None
    assert_equal(lloyd(X, X[:9], max_iter=30, tol=0), by_rows(monkeypatch, X, X[:9], max_iter=30, tol=0))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_empty_clusters_get_the_same_rows(d, monkeypatch):
    X = mixture(N, d)
    start = np.vstack([X[:5], np.full((2, d), 1e3), X[5:6], X[5:6]])  # two far away, and two equal
    assert_equal(lloyd(X, start, tol=0), by_rows(monkeypatch, X, start, tol=0))


def test_rows_of_weight_0_and_clusters_of_nothing_else(monkeypatch):
    X = np.concatenate([mixture(N, 2), 50 + mixture(100, 2)])
    weights = np.repeat([1.0, 0.0], [N, 100])
    start = np.vstack([X[:4], X[-1:]])
    assert_equal(lloyd(X, start, weights=weights, tol=0), by_rows(monkeypatch, X, start, weights=weights, tol=0))


def test_dividing_the_iterations_over_calls_changes_nothing(monkeypatch):
    X = mixture(N, 2, spread=3)
    whole = lloyd(X, X[:15], tol=0)
    monkeypatch.setattr(module, "_WORK_PER_CALL", 1)
    assert_equal(lloyd(X, X[:15], tol=0), whole)
    asked = iter([False] * 3 + [True])
    with pytest.raises(Aborted, match="after 3 iterations"):
        lloyd(X, X[:15], tol=0, aborted=lambda: next(asked))


def test_whole_numbers_have_ties_and_these_go_to_the_lowest_index_all_the_same(monkeypatch):
    for seed in range(20):
        X = np.rint(4 * mixture(500, 1 + seed % 3, seed))
        options = {"max_iter": 1 + seed % 5, "tol": 0}
        assert_equal(lloyd(X, X[:8], **options), by_rows(monkeypatch, X, X[:8], **options))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_one_iteration_on_cells_gives_means_of_the_nearest_rows(d):
    rng = np.random.default_rng(d)
    X, weights = mixture(N, d) * 10.0 ** rng.integers(-3, 4, size=d), rng.random(N)
    origin, centroids = X.mean(axis=0), X[:12].copy()
    labels = ((X[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    means = [np.average(X[labels == c], axis=0, weights=weights[labels == c]) for c in range(12)]

    steps = pyramid_steps(
        pyramid_of(X, weights, origin, 12), origin, centroids, np.full_like(centroids, np.nan), 1, 0.0
    )

    assert steps == (1, False)
    np.testing.assert_allclose(centroids, means, rtol=1e-12)


def test_no_pyramid_where_it_does_not_serve(tmp_path):
    X, ones = mixture(N, 2), np.ones(N)
    origin = X.mean(axis=0)
    assert pyramid_of(X[:99], ones[:99], origin, 5) is None
    assert pyramid_of(mixture(N, 4), ones, np.zeros(4), 5) is None
    assert pyramid_of(X * [1.0, 0.0], ones, origin, 5) is None, "no extent in one column"
    crowded = X.copy()
    crowded[0] = 1e6  # all others in one cell
    assert pyramid_of(crowded, ones, origin, 5) is None
    np.save(tmp_path / "rows.npy", X)
    assert pyramid_of(np.load(tmp_path / "rows.npy", mmap_mode="r"), ones, origin, 5) is None, (
        "a file's rows stay there"
    )
