"""Moments, bins and quantiles of clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flareclust.core.profiles import (
    _without_small_bins,
    counted,
    edges_between,
    in_bins,
    is_binary,
    moments,
    quantiles,
)


def test_moments_are_those_of_each_clusters_rows():
    X = np.random.default_rng(0).normal(size=(60, 3))
    labels = np.repeat([0, 1, -1], 20)
    kept, rows, means, m2 = moments(X, labels, 2, floor=1)
    assert kept.tolist() == [0, 1]
    assert rows.tolist() == [20, 20]
    np.testing.assert_allclose(means, [X[:20].mean(axis=0), X[20:40].mean(axis=0)], rtol=1e-12)
    np.testing.assert_allclose(m2, [20 * X[:20].var(axis=0), 20 * X[20:40].var(axis=0)], rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "floor"), [([[0.0, 1], [2, 3]], 1), ([[1.0, 2]] * 5, 1), ([[0.0, 1], [2, 3.5], [4, 4.7]], 4)]
)
def test_two_rows_one_row_repeated_and_fewer_than_the_floor_are_not_described(rows, floor):
    kept, *_ = moments(np.array(rows), np.zeros(len(rows), dtype=np.int64), 1, floor)
    assert len(kept) == 0


def test_edges_lie_between_clusters_that_are_apart_and_read_well():
    edges = edges_between(np.array([50, 50]), np.array([[10.0], [20.0]]), np.array([[50.0], [50.0]]), bins=4)
    assert edges.shape == (1, 3)
    assert 15.0 in edges[0]
    assert (edges == np.round(edges, 1)).all()


def test_bins_of_one_normal_cluster_are_its_quantiles():
    edges = edges_between(np.array([1000]), np.array([[0.0]]), np.array([[1000.0 * 1000**2]]), bins=4)
    np.testing.assert_allclose(edges[0], [-674.49, 0, 674.49], atol=51)  # rounded to hundreds


def test_columns_of_zeros_and_ones_have_two_bins_and_constant_ones_one():
    X = np.array([[0.0, 7], [1, 7], [1, 7], [0, 7], [1, 7]])
    n, means, m2 = np.array([5]), X.mean(axis=0)[None], 5 * X.var(axis=0)[None]
    assert is_binary(n, means, m2).tolist() == [True, False]
    edges = edges_between(n, means, m2, bins=3)
    assert in_bins(X, edges)[:, 0].tolist() == [0, 2, 2, 0, 2]
    assert in_bins(X, edges)[:, 1].tolist() == [0] * 5


def test_values_on_an_edge_lie_below_it():
    assert in_bins(np.array([[1.0], [2.0], [2.5], [9.0]]), np.array([[2.0, 3.0]])).ravel().tolist() == [0, 0, 1, 2]


def test_small_bins_are_added_to_their_neighbours_towards_the_median():
    assert _without_small_bins(np.array([1, 1, 5, 6, 0, 1, 0]), 3).tolist() == [0, 0, 7, 7, 0, 0, 0]
    assert _without_small_bins(np.array([2, 1, 2]), 5).tolist() == [0, 5, 0]


@given(arrays(np.int64, (3, 6), elements=st.integers(0, 9)), st.integers(1, 6))
def test_no_bin_has_fewer_rows_than_the_floor_and_none_is_lost(counts, floor):
    kept = _without_small_bins(counts, floor)
    assert ((kept == 0) | (kept >= floor)).all()
    enough = counts.sum(axis=1) >= floor
    assert (kept.sum(axis=1)[enough] == counts.sum(axis=1)[enough]).all()


def test_counts_are_those_of_leaves_and_clusters():
    bins = np.array([[0], [1], [1], [2], [0]])
    found = counted(bins, np.array([0, 0, 1, 1, -1]), np.array([0, 0, 1, 1, 0]), (2, 2, 3), floor=1)
    assert found[:, :, 0].tolist() == [[[1, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 1]]]


def test_cells_of_fewer_rows_than_the_floor_are_left_out():
    bins, labels = np.array([[0], [0], [0], [1]]), np.array([0, 0, 0, 1])
    assert counted(bins, np.zeros(4, dtype=np.int64), labels, (1, 2, 2), floor=2).tolist() == [[[[3, 0]], [[0, 0]]]]


def test_quantiles_of_many_rows_are_near_those_of_the_rows():
    X = np.random.default_rng(1).normal(50, 10, (4000, 1))
    edges = edges_between(np.array([4000]), X.mean(axis=0)[None], 4000 * X.var(axis=0)[None])
    counts = counted(in_bins(X, edges), np.zeros(4000, np.int64), np.zeros(4000, np.int64), (1, 1, 20), 1)[0]
    ends = X.mean(axis=0)[None] - 20, X.mean(axis=0)[None] + 20
    found = quantiles(counts, edges, ends, np.array([0.25, 0.5, 0.75]))
    np.testing.assert_allclose(found[:, 0, 0], np.percentile(X, [25, 50, 75]), atol=0.5)
