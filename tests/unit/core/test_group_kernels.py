"""The compiled passes over few rows, beside plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flareclust._foundation.seeding import owner_key, stream
from flareclust.core import group_kernels as kernels
from flareclust.core.arrays import _finite, extent
from flareclust.evaluation.scores import stack, unstack

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 12), st.integers(1, 6), st.integers(0, 2**16))


def case(shape):
    """Return rows (n, d), labels (n,) with some of -1, and centroids (k, d); rows are often equal, or a centroid."""
    n, d, k, seed = shape
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(n, d)) * rng.choice([1.0, 0.1, 1e6])
    return X, rng.integers(-1, k, size=n), X[rng.integers(n, size=k)] + rng.choice([0.0, 0.3])


@settings(deadline=None)
@given(SHAPES)
def test_what_is_asked_of_each_cluster(shape):
    X, labels, centroids = case(shape)
    k, used = len(centroids), labels >= 0
    counts, varied, is_row, examples = kernels.described_groups(X, labels, centroids)
    np.testing.assert_array_equal(counts, np.bincount(labels[used], minlength=k))
    low, high = X.min(axis=0), X.max(axis=0)
    rounding = 1e-12 * (high - low) + 8 * np.finfo(float).eps * np.maximum(np.abs(low), np.abs(high))
    np.testing.assert_array_equal(kernels.rounding_of(low, high), rounding)
    columns = kernels.columns_that_vary(X, labels, k)
    for c in range(k):
        own = X[labels == c]
        np.testing.assert_array_equal(examples[c], own[0] if len(own) else X[0])
        assert varied[c] == (own != own[:1]).any()
        np.testing.assert_array_equal(columns[c], (own != own[:1]).any(axis=0))
        assert is_row[c] == (np.abs(own - centroids[c]) <= rounding).all(axis=1).any()
    np.testing.assert_array_equal(kernels.rows_unlike(X, X[-1]), (X[-1] != X).any(axis=1))


@settings(deadline=None)
@given(SHAPES)
def test_sums_by_cluster_have_the_bits_of_bincount(shape):
    X, labels, centroids = case(shape)
    k, used = len(centroids), labels >= 0
    own = labels[used]
    squared = np.zeros(len(own))
    for j in range(X.shape[1]):
        squared += (X[used, j] - centroids[own, j]) ** 2
    largest = np.zeros(k)
    np.maximum.at(largest, own, np.sqrt(squared))
    found = kernels.distances_of_each(X, labels, centroids)
    np.testing.assert_array_equal(found[0], np.bincount(own, minlength=k))
    np.testing.assert_array_equal(found[1], np.bincount(own, squared, minlength=k))
    np.testing.assert_array_equal(found[2], largest)
    deviations = [np.bincount(own, (x - c) ** 2, minlength=k) for x, c in zip(X[used].T, centroids[own].T, strict=True)]
    np.testing.assert_array_equal(kernels.squares_of_each(X, labels, centroids), np.stack(deviations, axis=1))


@settings(deadline=None)
@given(SHAPES)
def test_means_of_replies_are_those_of_numpy(shape):
    X, labels, _ = case(shape)
    labels, rows = np.maximum(labels, 0), np.arange(1.0, len(X) + 1)
    k, d = shape[2], X.shape[1]
    origin, present, sums = np.full((k, d), 7.0), np.zeros(k, bool), np.zeros((k, d))
    kernels.add_means(X, rows, labels, origin, present, sums)
    there, first = np.unique(labels, return_index=True)
    np.testing.assert_array_equal(np.flatnonzero(present), there)
    np.testing.assert_array_equal(origin[there], X[first])
    plain = np.zeros((k, d))
    np.add.at(plain, labels, rows[:, None] * (X - origin[labels]))
    np.testing.assert_array_equal(sums, plain)


@pytest.mark.parametrize("label", [-2, 2, 10**12])
def test_a_label_of_no_cluster_is_refused(label):
    X, labels, means = np.ones((3, 2)), np.array([0, label, 1]), np.zeros((2, 2))
    for call in (kernels.described_groups, kernels.distances_of_each, kernels.squares_of_each):
        with pytest.raises(IndexError, match="a label is no cluster's number"):
            call(X, labels, means)
    with pytest.raises(IndexError):
        kernels.columns_that_vary(X, labels, 2)
    with pytest.raises(IndexError):
        kernels.means_of_each(X, labels, np.zeros(2), np.ones(2, np.int64), means)
    with pytest.raises(IndexError):
        kernels.add_means(X, np.ones(3), labels, means, np.zeros(2, bool), means.copy())


def test_a_row_of_no_cluster_has_no_mean():
    X, labels, means = np.ones((3, 2)), np.array([0, -1, 1]), np.zeros((2, 2))
    with pytest.raises(IndexError):
        kernels.means_of_each(X, labels, np.zeros(2), np.ones(2, np.int64), means)
    with pytest.raises(IndexError):
        kernels.add_means(X, np.ones(3), labels, means, np.zeros(2, bool), means.copy())


def test_rows_labels_and_points_that_do_not_fit_are_refused():
    """A kernel would read beyond them, and call describable what it has not seen."""
    X, labels, means = np.ones((3, 2)), np.array([0, 1, 1]), np.zeros((2, 2))
    for rows, numbers, points in ((X, labels[:2], means), (X[:2], labels, means), (X, labels, np.zeros((2, 3)))):
        for call in (kernels.described_groups, kernels.distances_of_each, kernels.squares_of_each):
            with pytest.raises(ValueError, match="do not fit"):
                call(rows, numbers, points)
        with pytest.raises(ValueError, match="do not fit"):
            kernels.evidence_of(rows, numbers, points, points, np.zeros(points.shape[1]))
    with pytest.raises(ValueError, match="do not fit"):
        kernels.columns_that_vary(X, labels[:2], 2)
    with pytest.raises(ValueError, match="no rows"):
        kernels.described_groups(X[:0], labels[:0], means)


@pytest.mark.parametrize("n", [1, 7, 4096, 4097])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_range_of_few_and_many_numbers(n, bad, rng):
    values = rng.normal(size=n)
    assert extent(values) == (values.min(), values.max())
    assert extent(values.astype(np.int64)) == (int(values.min()), int(values.max()))
    assert _finite(values)
    values[n // 2] = bad
    assert np.isnan(extent(values)).all()
    assert not _finite(values)


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**70])
def test_a_stream_is_that_of_the_list_of_its_numbers(seed):
    plain = np.random.default_rng([seed, 2, owner_key("site-1")])
    assert stream(seed, 2, "site-1").integers(2**63, size=3).tolist() == plain.integers(2**63, size=3).tolist()


def test_candidates_come_apart_as_they_were_put_together(rng):
    solutions = [rng.normal(size=(k, 3)) for k in (1, 4, 2)]
    for found, solution in zip(unstack(stack(solutions)), solutions, strict=True):
        np.testing.assert_array_equal(found, solution)
