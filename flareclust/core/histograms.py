"""Numbers of cells in bins, and what they say of a column: quartiles, and its range without the outermost cells.

A site counts the known cells of each column in `BINS` bins of equal width; what lies beyond the first or last bin counts there.
No number that it sends is about fewer than a floor of cells: cells of bins next to each other are counted together, in the
bin of their middle cell, until there are enough.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray

#: The bins of a column.
BINS = 128

#: How many deviations from the mean the bins reach to either side. A quartile is at most the root of 3 deviations away.
REACH, WIDE_REACH = 4.0, 8.0

#: Quartiles that are fewer bins apart are looked for in finer bins.
_APART = 8


class Grid(NamedTuple):
    """The bins of d columns: where the first begins (d,), and how wide they are (d,)."""

    low: FloatArray
    width: FloatArray


def grid_around(mean: FloatArray, deviation: FloatArray, reach: float) -> Grid:
    """Return bins around the means (d,) of columns; of width 1 for a constant column."""
    width = np.where(deviation > 0, 2 * reach * deviation / BINS, 1.0)
    return Grid(mean - width * BINS / 2, width)


def binned(X: FloatArray, grid: Grid, least: int) -> IntArray:
    """Return the numbers (d, BINS) of known cells of rows (n, d), none of which is about fewer than `least` cells."""
    found = np.zeros((X.shape[1], BINS), dtype=np.int64)
    for j in range(X.shape[1]):
        cells = X[:, j][~np.isnan(X[:, j])]
        place = np.clip(np.floor((cells - grid.low[j]) / grid.width[j]), 0, BINS - 1).astype(np.int64)
        found[j] = _merged(np.bincount(place, minlength=BINS), least)
    return found


def _merged(counts: IntArray, least: int) -> IntArray:
    merged, ends = np.zeros_like(counts), np.cumsum(counts)
    before, last = 0, -1
    for end in ends:
        if end - before >= max(least, 1):
            last = int(np.searchsorted(ends, (before + end + 1) // 2))
            merged[last] += end - before
            before = int(end)
    if last >= 0:
        merged[last] += int(ends[-1]) - before
    return merged


def _quantiles(counts: IntArray, grid: Grid, share: float) -> tuple[FloatArray, IntArray]:
    """Return a quantile of each column (d,), as if cells were spread evenly within their bin, and its bin (d,).

    `counts` are the cells of all sites in each bin (d, BINS), and `share` that of the cells below the quantile.
    """
    ends = np.cumsum(counts, axis=1)
    wanted = share * ends[:, -1]
    where, rows = np.minimum((ends < wanted[:, None]).sum(axis=1), BINS - 1), np.arange(len(counts))
    inside = counts[rows, where]
    part = (wanted - (ends[rows, where] - inside)) / np.maximum(inside, 1)
    return grid.low + grid.width * (where + part), where


def finer(counts: IntArray, grid: Grid) -> Grid | None:
    """Return bins between the quartiles of those columns whose quartiles are only a few bins apart; None where there is none."""
    first, last = (_quantiles(counts, grid, share)[1] for share in (0.25, 0.75))
    near: BoolArray = (last - first < _APART) & (counts.sum(axis=1) > 0)
    if not near.any():
        return None
    low, high = grid.low + grid.width * (first - 1), grid.low + grid.width * (last + 2)
    return Grid(np.where(near, low, grid.low), np.where(near, (high - low) / BINS, grid.width))


def median_and_range(counts: IntArray, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Return median and interquartile range of the columns (d,); a range of 0 where both quartiles lie in the same bin."""
    (lower, first), (upper, last) = (_quantiles(counts, grid, share) for share in (0.25, 0.75))
    return _quantiles(counts, grid, 0.5)[0], np.where(first < last, upper - lower, 0.0)


def outermost(counts: IntArray, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Return where the first bin with cells begins and the last one ends (d,); all bins of a column without cells."""
    occupied = counts > 0
    occupied[~occupied.any(axis=1)] = True
    first, last = occupied.argmax(axis=1), BINS - 1 - occupied[:, ::-1].argmax(axis=1)
    return grid.low + grid.width * first, grid.low + grid.width * (last + 1)
