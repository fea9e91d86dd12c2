"""Large float32 rows stay as they are, and results are those of their float64 copies, bit for bit."""

import numpy as np
import pytest

from flareclust.core.arrays import as_rows
from flareclust.core.kernels import own_distances
from flareclust.core.lloyd import kmeans, lloyd
from flareclust.core.seeds import kmeans_plusplus


def rows(n, d, shift=0.0):
    rng = np.random.default_rng(d)
    centres = 3.0 * rng.normal(size=(30, d))
    return (centres[rng.integers(30, size=n)] + rng.normal(size=(n, d)) + shift).astype(np.float32)


def assert_equal_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


CASES = [(150_000, 8, 12, 0.0), (40_000, 32, 25, 0.0), (40_000, 32, 25, 1e3), (18_000, 64, 8, 1.0)]


@pytest.mark.parametrize(("n", "d", "k", "shift"), CASES)
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_results_are_those_of_float64(n, d, k, shift, init):
    X = rows(n, d, shift)
    assert as_rows(X) is X
    options = {"n_init": 2, "max_iter": 6, "tol": 0.0, "init": init}
    found = kmeans(X, k, np.random.default_rng(0), **options)
    assert_equal_bits(found, kmeans(X.astype(np.float64), k, np.random.default_rng(0), **options))

    weights = np.random.default_rng(1).uniform(0, 2, n)
    found = lloyd(X, X[:k], weights=weights, max_iter=4)
    assert_equal_bits(found, lloyd(X.astype(np.float64), X[:k], weights=weights, max_iter=4))

    found = kmeans_plusplus(X, k, np.random.RandomState(0))
    assert_equal_bits(found, kmeans_plusplus(X.astype(np.float64), k, np.random.RandomState(0)))


def test_few_rows_few_columns_and_rows_in_files_become_float64(tmp_path):
    large = rows(40_000, 32)
    np.save(tmp_path / "rows.npy", large)
    for X in (large[:100], rows(600_000, 2), np.load(tmp_path / "rows.npy", mmap_mode="r")):
        converted = as_rows(X)
        assert converted.dtype == np.float64
        np.testing.assert_array_equal(converted, X)


def test_rows_in_another_order_in_memory_are_put_in_order_in_float32():
    X = rows(40_000, 32)
    ordered = as_rows(np.asfortranarray(X))
    assert ordered.dtype == np.float32
    assert ordered.flags.c_contiguous
    np.testing.assert_array_equal(ordered, X)


@pytest.mark.parametrize("d", [3, 31, 32, 45])
@pytest.mark.parametrize("n", [1, 4, 7])
def test_own_distances_are_added_column_after_column(n, d):
    rng = np.random.default_rng(d)
    X, centroids, labels = rng.normal(size=(n, d)), rng.normal(size=(5, d)), rng.integers(5, size=n)
    expected, squared = np.zeros(n), np.empty(n)
    for j in range(d):
        expected += (X[:, j] - centroids[labels, j]) ** 2
    own_distances(X, centroids, labels, squared)
    np.testing.assert_array_equal(squared, expected)
