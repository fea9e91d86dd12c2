"""Profiles of rows with missing cells: moments of the known cells, and which of them a site describes."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flareclust.core.disclosure import known_cells
from flareclust.core.missing.profiles import (
    described,
    edges_of_known,
    known_moments,
    shown_in_nodes,
    with_missing,
)
from flareclust.core.profiles import counted, edges_between, moments
from flareclust.core.shallow_tree import SPLITS


def gappy(n: int = 200, d: int = 3, k: int = 3, share: float = 0.2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(1e6, 2.0, size=(n, d)), rng.integers(-1, k, n)
    X[rng.random(X.shape) < share] = np.nan
    return X, labels


def test_moments_are_those_of_the_known_cells():
    X, labels = gappy()
    found = known_moments(X, ~np.isnan(X), labels, 3, floor=2)
    groups = pd.DataFrame(X)[labels >= 0].groupby(labels[labels >= 0])
    assert found.clusters.tolist() == [0, 1, 2]
    assert found.rows.tolist() == groups.size().tolist()
    np.testing.assert_array_equal(found.cells, groups.count())
    np.testing.assert_allclose(found.means, groups.mean(), rtol=1e-14)
    np.testing.assert_allclose(found.m2, groups.var() * (groups.count() - 1), rtol=1e-9)


def test_moments_of_complete_rows_are_the_usual_ones_bit_for_bit():
    X, labels = gappy(share=0.0)
    found, expected = known_moments(X, ~np.isnan(X), labels, 3, 2), moments(X, labels, 3, 2)
    for one, other in zip((found.clusters, found.rows, found.means, found.m2), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (found.cells == found.rows[:, None]).all()


def of_cells(*numbers: int, rows: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two columns with clusters of ten rows, of which so many know the first column."""
    labels = np.repeat(np.arange(len(numbers)), rows)
    X = np.random.default_rng(0).normal(size=(len(labels), 2))
    for cluster, number in enumerate(numbers):
        X[np.flatnonzero(labels == cluster)[number:], 0] = np.nan
    return X, labels


@pytest.mark.parametrize(
    ("numbers", "floor", "shown"),
    [
        ((10, 3, 3), 2, (1, 1, 1)),
        ((10, 3, 2), 2, (1, 0, 0)),  # alone left out, the two would be the total less the others
        ((10, 2, 2), 2, (1, 0, 0)),  # four are left out together already
        ((10, 9, 1), 2, (1, 0, 0)),
        ((10, 5, 4), 5, (1, 0, 0)),
        ((10, 5, 0), 5, (1, 1, 0)),  # a column that nobody knows there says nothing
        ((2, 0, 0), 2, (0, 0, 0)),
    ],
)
def test_a_column_of_few_known_cells_is_left_out_and_never_fewer_than_the_floor_together(numbers, floor, shown):
    X, labels = of_cells(*numbers)
    found = described(X, ~np.isnan(X), labels, 3, floor)
    assert found[:, 0].astype(int).tolist() == list(shown)
    assert found[:, 1].all()


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.integers(2, 5),
)
def test_no_number_of_known_cells_below_the_floor_follows_from_a_column_s_total(numbers, floor):
    """The total left the site before; with missing=mean the number is all that a sum of filled rows hides."""
    X, labels = of_cells(*numbers)
    known = ~np.isnan(X)
    shown = described(X, known, labels, len(numbers), floor)[:, 0]
    cells = known_cells(known, labels, len(numbers))[:, 0]
    left = cells[~shown].sum()
    assert (cells[shown] >= max(floor, 3)).all()
    assert not 0 < left < max(floor, 3) or not shown.any()


def test_clusters_that_are_one_row_are_left_out_whatever_else_is_missing():
    one, nan = [1.0, 2.0], np.nan
    rows = np.array([one] * 4 + [[0.0, 0.0], [2.0, 4.0], [1.0, 2.0], [nan, nan]] + [[1.0, nan], [nan, 2.0]] * 3)
    labels = np.array([0] * 4 + [1] * 4 + [2] * 6)
    shown = described(rows, ~np.isnan(rows), labels, 3, 3)
    assert not shown.any()  # repeated; a row that is the mean; equal in all that is known


def test_small_clusters_are_left_out():
    X, labels = of_cells(2, rows=2)
    assert not described(X, ~np.isnan(X), labels, 1, 2).any()


def test_edges_are_those_of_each_columns_known_cells():
    rng = np.random.default_rng(3)
    means, m2 = rng.normal(size=(2, 3)), rng.uniform(5, 9, size=(2, 3))
    cells = np.array([[20, 20, 0], [30, 0, 0]])
    edges = edges_of_known(cells, means, m2, 20)
    np.testing.assert_array_equal(edges[0], edges_between(cells[:, 0], means[:, [0]], m2[:, [0]])[0])
    np.testing.assert_array_equal(edges[1], edges_between(cells[:1, 1], means[:1, [1]], m2[:1, [1]])[0])
    assert (edges[2] == 0).all()


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_no_count_below_the_floor_follows_from_a_node_less_its_halves(seed, floor):
    rng = np.random.default_rng(seed)
    n, d, k = 60, 2, 2
    known, labels = rng.random((n, d)) < 0.4, rng.integers(-1, k, n)
    node = rng.choice([1, 5, 13, 14], n)  # ends of a tree that is split at 0, 2 and 6
    shown = rng.random((k, d)) < 0.8
    cells = np.zeros((2 * SPLITS + 1, k, d), dtype=int)
    for i, own, row in zip(node, labels, known, strict=True):
        while own >= 0:
            cells[i, own] += row
            if i == 0:
                break
            i = (i - 1) // 2
    found = shown_in_nodes(known, node, labels, shown, floor)
    assert not found[:, ~shown].any()
    for i in (0, 2, 6):
        for half, other in ((2 * i + 1, 2 * i + 2), (2 * i + 2, 2 * i + 1)):
            assert (found[i] | ~found[half]).all()
            here = found[half]
            assert ((cells[half] == 0) | (cells[half] >= floor))[here].all()
            rest = cells[i] - cells[other]
            known_rest = found[i] & found[other]
            assert ((rest == 0) | (rest >= floor))[known_rest].all()


def test_known_cells_are_counted_by_leaf_cluster_column_and_bin():
    X, labels = gappy(80, d=2, k=2)
    known, bins = ~np.isnan(X), np.where(np.nan_to_num(X) > 1e6, 1, 0)
    leaves = np.random.default_rng(1).integers(-1, 2, len(X))
    shown = np.ones((2, 2, 2), dtype=bool)
    shown[1, 0, 1] = False
    found = counted(bins, leaves, labels, (*shown.shape[:2], 2), 1, known, shown)
    for leaf, c, j, b in np.ndindex(found.shape):
        expected = ((leaves == leaf) & (labels == c) & known[:, j] & (bins[:, j] == b)).sum()
        assert found[leaf, c, j, b] == (expected if shown[leaf, c, j] else 0)


def test_rows_that_lack_a_cell_are_where_it_is_filled():
    counts = np.array([[[[3, 2], [0, 5]]]])
    found = with_missing(counts, np.array([[6]]), np.array([1, 0]))
    assert found.tolist() == [[[[3, 3], [1, 5]]]]
    assert with_missing(counts, np.array([[4]]), np.array([1, 0])).tolist() == counts.tolist()  # rounded by a policy
