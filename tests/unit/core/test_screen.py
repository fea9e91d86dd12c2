"""The float32 screen gives the labels of squared differences in float64, bit for bit, however close two centroids are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.core import compiled, kernels
from flareclust.core.lloyd import assign
from flareclust.core.screen import once_about, screen_of, screened_labels


def labels_by_screen(X, centroids, origin=None):
    origin = X.mean(axis=0) if origin is None else origin
    screen = screen_of(X, origin, ((X - origin) ** 2).mean(axis=0))
    if not len(screen.tiles):
        return None
    labels = np.full(len(X), -1)
    changed = screened_labels(X, origin, screen, centroids, labels)
    assert changed in (-1, len(X))
    return labels if changed >= 0 else None


def labels_by_differences(X, centroids):
    """Feature after feature, as the promise says; of equals the first."""
    squared = np.zeros((len(X), len(centroids)))
    for j in range(X.shape[1]):
        squared += (X[:, j, None] - centroids[:, j]) ** 2
    return squared.argmin(axis=1)


@pytest.fixture(autouse=True, scope="module")
def compile_first():
    """The first call of a kernel takes longer than an example may."""
    compiled.warm_up()


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 7, 8, 17, 64, 300])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (255, 4), (257, 9), (530, 30)])
def test_labels_are_those_of_differences(n, d, k):
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d))
    centroids = rng.normal(size=(k, d))
    np.testing.assert_array_equal(labels_by_screen(X, centroids), labels_by_differences(X, centroids))


@pytest.mark.parametrize("d", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("shift", [0.0, 1e3, 1e8, -1e12])
def test_rows_a_rounding_away_from_a_tie_are_decided_by_differences(d, shift):
    rng = np.random.default_rng(d)
    centroids = rng.normal(size=(6, d)) + shift
    a, b = rng.integers(6, size=(2, 2000))
    X = (centroids[a] + centroids[b]) / 2
    X += np.spacing(X) * rng.integers(-40, 41, size=X.shape)
    X = np.concatenate([X, X + 1e-9, X + 3e-6, rng.normal(size=(300, d)) + shift])
    np.testing.assert_array_equal(labels_by_screen(X, centroids), labels_by_differences(X, centroids))


@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_ties_go_to_the_lowest_index(d, k, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(40, d)).astype(float)
    centroids = rng.integers(-3, 4, size=(k, d)).astype(float)  # ties, and equal centroids
    expected = labels_by_differences(X, centroids)
    found = labels_by_screen(X, centroids, np.zeros(d) + 0.1)
    np.testing.assert_array_equal(found, expected)


def test_heavy_tails_and_outlying_centroids_are_decided_by_differences():
    rng = np.random.default_rng(0)
    X = rng.standard_cauchy(size=(3000, 3)) * 10 ** rng.uniform(-3, 3, size=(3000, 1))
    centroids = np.concatenate([X[:20], X[:4] + 1e-7, [[1e9, 0.0, 0.0]]])
    np.testing.assert_array_equal(labels_by_screen(X, centroids), labels_by_differences(X, centroids))


@pytest.mark.parametrize("unit", [1e-110, 1e-30, 1e30, 1e110])
def test_any_unit_that_squares_can_hold_will_do(unit):
    rng = np.random.default_rng(0)
    X, centroids = rng.normal(size=(300, 4)) * unit, rng.normal(size=(5, 4)) * unit
    np.testing.assert_array_equal(labels_by_screen(X, centroids), labels_by_differences(X, centroids))


def test_what_float32_cannot_hold_is_left_to_differences(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    assert labels_by_screen(X * 1e-140, X[:3] * 1e-140) is None
    assert labels_by_screen(X * 1e140, X[:3] * 1e140) is None  # squares fit, screens do not try
    assert labels_by_screen(np.ones((4, 2)), np.ones((2, 2))) is None, "rows without extent"
    assert labels_by_screen(X, np.concatenate([X[:3], [[1e20, 0.0]]])) is None
    np.save(tmp_path / "rows.npy", X)
    assert not len(screen_of(np.load(tmp_path / "rows.npy", mmap_mode="r"), X.mean(axis=0), X.var(axis=0)).tiles), (
        "a file's rows"
    )


def test_the_screen_decides_nearly_all_rows_itself():
    """Told by rows of another place, where only rows that are looked at again find their centroids."""
    rng = np.random.default_rng(1)
    X, centroids = rng.normal(size=(5000, 16)), rng.normal(size=(30, 16))
    screen = screen_of(X, np.zeros(16), (X**2).mean(axis=0))
    labels = np.full(5000, -1)
    screened_labels(np.full_like(X, 1e6), np.zeros(16), screen, centroids, labels)
    different = np.count_nonzero(labels != labels_by_differences(X, centroids))
    assert different < 25


@pytest.mark.parametrize("d", [1, 2, 3, 8, 17, 64])
@pytest.mark.parametrize("place", ["as they are", "shifted", "large", "small", "one far centroid", "far rows"])
def test_rows_that_are_seen_once(d, place):
    """Half of them lie a rounding away from a tie."""
    rng = np.random.default_rng(d)
    centroids, n = rng.normal(size=(12, d)), 20_000
    a, b = rng.integers(12, size=(2, n))
    X = (centroids[a] + centroids[b]) / 2
    X += np.spacing(X) * rng.integers(-40, 41, size=X.shape)
    X[::2] = rng.normal(size=X[::2].shape)
    if place == "shifted":
        X, centroids = X + 1e9, centroids + 1e9
    elif place in ("large", "small"):
        X, centroids = (values * (1e100 if place == "large" else 1e-100) for values in (X, centroids))
    elif place == "one far centroid":
        centroids[3] += 1e7
    elif place == "far rows":
        X[rng.integers(n, size=9)] *= 1e12
    assert once_about(X, centroids)[0] > 0
    expected = np.empty(n, np.int64), np.empty(n)
    kernels.nearest_centroids(X, centroids, *expected)
    for found, value in zip(assign(X, centroids), expected, strict=True):
        np.testing.assert_array_equal(found, value)


def test_few_centroids_few_rows_and_numbers_beyond_float32_are_left_to_differences():
    X = np.random.default_rng(0).normal(size=(20_000, 4))
    for rows, centroids in (
        (X, X[:7]),
        (X[:50], X[:12]),
        (X * 1e150, X[:12] * 1e150),
        (X, np.zeros((12, 4))),
    ):
        assert once_about(rows, centroids)[0] == 0.0
