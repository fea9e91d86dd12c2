"""What is computed piece by piece equals, to the last bit, what NumPy computes over all rows at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.core import chunks as pieces
from flareclust.core import compiled
from flareclust.core.arrays import as_matrix
from flareclust.core.chunks import all_finite, is_mapped, means_of, variances
from flareclust.core.disclosure import describable, varies_in_one_feature
from flareclust.core.kernels import column_means, column_variances
from flareclust.core.lloyd import Clustering, cluster_statistics, member_statistics, recompute_centroids
from flareclust.core.spectral import trusted_rows

SHAPES = st.tuples(st.integers(1, 400), st.integers(1, 9), st.integers(0, 2**32 - 1))


@pytest.fixture(autouse=True, scope="module")
def compile_first():
    """The first call of a kernel takes longer than an example may."""
    compiled.warm_up()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 300)


def rows(n, d, seed):
    return np.random.default_rng(seed).normal(3, 10.0, size=(n, d)) ** 3


@given(SHAPES)
def test_variances_and_means(shape):
    X = rows(*shape)
    np.testing.assert_array_equal(variances(X), X.var(axis=0))
    members = np.random.default_rng(shape[2]).random(len(X)) < 0.4
    members[-1] = True
    np.testing.assert_array_equal(means_of(X, members), X[members].mean(axis=0))


def test_large_arrays_too(monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 1 << 16)
    for n, d in ((200_001, 3), (5_000, 67), (3, 40_000)):
        X = rows(n, d, n)
        np.testing.assert_array_equal(variances(X), X.var(axis=0))


@pytest.mark.parametrize(("n", "d"), [(1, 2), (7, 3), (400, 2), (90_001, 3), (500, 4), (33, 67), (3, 4000)])
def test_moments_of_columns(n, d):
    X, mean, variance = rows(n, d, n), np.empty(d), np.empty(d)
    column_means(X, mean)
    column_variances(X, mean, variance)
    np.testing.assert_array_equal(mean, X.mean(axis=0))
    np.testing.assert_array_equal(variance, X.var(axis=0))


@given(SHAPES)
def test_what_may_be_described(shape):
    n, d, seed = shape
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(n, d)).astype(float)
    k = min(n, 5)
    labels = np.concatenate([np.arange(k), rng.integers(-1, k, size=n - k)])
    means = np.stack([X[labels == r].mean(axis=0) for r in range(k)])
    expected = [
        bool((labels == r).sum() >= 2 and (X[labels == r] != X[labels == r][0]).any())
        and not (np.abs(X[labels == r] - means[r]) <= 1e-11).all(axis=1).any()
        for r in range(k)
    ]
    assert describable(X, labels, means, 2).tolist() == expected
    one = [int((np.ptp(X[labels == r], axis=0) > 0).sum()) <= 1 for r in range(k)]
    assert varies_in_one_feature(X, labels, k).tolist() == one


@given(SHAPES)
def test_statistics_of_members_and_settled_means(shape):
    n, _, seed = shape
    X, k = rows(*shape), min(n, 4)
    labels = np.concatenate([np.arange(k), np.random.default_rng(seed).integers(-1, k, size=n - k)])
    centroids, member = X[:k] + 0.5, labels >= 0
    for found, plain in zip(
        member_statistics(X, labels, centroids), cluster_statistics(X[member], labels[member], centroids), strict=True
    ):
        np.testing.assert_array_equal(found, plain)
    labels = np.maximum(labels, 0)
    origin = X.mean(axis=0)
    sums = np.column_stack([np.bincount(labels, x, minlength=k) for x in (X - origin).T])
    counts = np.bincount(labels, minlength=k)
    settled = recompute_centroids(X, Clustering(centroids, labels, counts, 0.0, 0))
    np.testing.assert_array_equal(settled.centroids, origin + sums / counts[:, None])


@given(SHAPES)
def test_trusted_rows(shape):
    X = rows(*shape)
    seeds = X[: min(len(X), 3)] + 0.25
    distances = np.column_stack([np.sqrt(((X - seed) ** 2).sum(axis=1)) for seed in seeds])
    for r, trusted in enumerate(trusted_rows(X, seeds)):
        others = np.delete(distances, r, axis=1).min(axis=1, initial=np.inf)
        plain = distances[:, r] <= others / 3
        np.testing.assert_array_equal(trusted, plain if plain.any() else distances.argmin(axis=1) == r)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_single_cell_that_is_not_finite_is_found(bad):
    X = rows(50, 4, 0)
    assert all_finite(X)
    assert all_finite(X[:0])
    X[31, 2] = bad
    assert not all_finite(X)


def test_mapped_rows_reach_the_kernels_without_a_copy(tmp_path):
    np.save(tmp_path / "rows.npy", rows(50, 4, 0))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert is_mapped(mapped)
    assert is_mapped(as_matrix(as_matrix(mapped)))
    assert np.shares_memory(as_matrix(mapped), mapped)
    assert not is_mapped(mapped[[1, 2]])
    read_only = rows(5, 2, 0)
    read_only.flags.writeable = False
    assert as_matrix(read_only).flags.writeable, "what is small is copied, so that no kernel is compiled again"
