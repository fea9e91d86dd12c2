"""Quartiles and ranges from numbers of cells in bins: near those of the rows, and no number about fewer cells than the floor."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from flareclust.core.histograms import (
    BINS,
    REACH,
    WIDE_REACH,
    Grid,
    _quantiles,
    binned,
    finer,
    grid_around,
    median_and_range,
    outermost,
)

RNG = np.random.default_rng(3)
X = np.column_stack([RNG.normal(50, 10, 4000), RNG.exponential(3, 4000), RNG.normal(-1e4, 50, 4000)])
GRID = grid_around(X.mean(axis=0), X.std(axis=0), REACH)


def test_quantiles_are_those_of_the_rows_within_a_bin():
    counts = sum(binned(part, GRID, 5) for part in np.array_split(X, 4))
    for share in (0.25, 0.5, 0.75):
        found, where = _quantiles(counts, GRID, share)
        true = np.quantile(X, share, axis=0)
        assert (np.abs(found - true) < GRID.width).all()
        np.testing.assert_allclose(where, (true - GRID.low) / GRID.width, atol=1.5)


def test_quantiles_by_hand():
    """Of one cell in the first bin and three in the last, the second is a third into the last."""
    counts = np.zeros((1, BINS), int)
    counts[0, [0, -1]] = 1, 3
    (found,), (where,) = _quantiles(counts, Grid(np.zeros(1), np.ones(1)), 0.5)
    assert (found, where) == (BINS - 1 + 1 / 3, BINS - 1)


def test_counts_by_hand():
    column = np.array([[0.5], [0.6], [3.5], [5.5], [9.0], [np.nan], [-70.0]])
    grid = Grid(np.zeros(1), np.ones(1))
    assert binned(column, grid, 1)[0, :10].tolist() == [3, 0, 0, 1, 0, 1, 0, 0, 0, 1]
    # Three cells at a time, in the bin of the second; the rest joins the last ones.
    assert binned(column, grid, 3)[0, :10].tolist() == [3, 0, 0, 0, 0, 3, 0, 0, 0, 0]
    assert binned(column, grid, 4)[0, :10].tolist() == [6, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert not binned(column, grid, 7).any()


@settings(deadline=None)
@given(arrays.arrays(np.float64, st.integers(1, 80), elements=st.floats(-30, 30) | st.just(np.nan)), st.integers(1, 12))
def test_no_number_is_about_fewer_cells_than_the_floor(column, least):
    (counts,) = binned(column[:, None], Grid(np.array([-10.0]), np.array([0.2])), least)
    known = int(np.count_nonzero(~np.isnan(column)))
    assert counts.sum() == (known if known >= least else 0)
    assert (counts[counts > 0] >= least).all()


def test_outliers_do_not_hide_the_quartiles():
    rows = np.concatenate([X, 1e6 * np.ones((20, 3))])
    grid = grid_around(rows.mean(axis=0), rows.std(axis=0), REACH)
    closer = finer(binned(rows, grid, 2), grid)
    assert (closer.width[:2] < grid.width[:2] / 40).all()
    median, between = median_and_range(binned(rows, closer, 2), closer)
    np.testing.assert_array_less(np.abs(median - np.median(rows, axis=0)), closer.width)
    true = np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0))
    np.testing.assert_array_less(np.abs(between - true), np.where(between > 0, 2 * closer.width, np.inf))


def test_a_column_of_two_values_has_no_quartiles():
    rows = (np.arange(500) % 10 == 0).astype(float)[:, None]
    grid = grid_around(rows.mean(axis=0), rows.std(axis=0), REACH)
    closer = finer(binned(rows, grid, 2), grid)
    assert median_and_range(binned(rows, closer, 2), closer)[1].tolist() == [0.0]
    assert finer(binned(X, GRID, 2), GRID) is None


def test_the_outermost_bins_hold_enough_cells():
    grid = grid_around(X.mean(axis=0), X.std(axis=0), WIDE_REACH)
    low, high = outermost(sum(binned(part, grid, 5) for part in np.array_split(X, 4)), grid)
    ordered = np.sort(X, axis=0)
    for low_, high_, column, width in zip(low, high, ordered.T, grid.width, strict=True):
        assert column[0] - width < low_ <= column[30]
        assert column[-30] <= high_ < column[-1] + width
    assert BINS == 128
