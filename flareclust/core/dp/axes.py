"""A start with many columns from noisy sums: main axes of all rows, and clusters of cells along them. Nothing here sees a row.

The noisy matrix of second moments has the directions in which rows differ most. Of the cells of a grid along these, those that
hold more rows than noise explains are clustered, weighted by what they hold. Centroids are then known along the axes; the
updates find the rest.

Source: Dwork, Talwar, Thakurta, Zhang, Analyze Gauss (2014); Scott, Lampert, Saulpic (2025), Differentially Private Federated
k-Means Clustering with Server-Side Data, which projects on the main axes, too, and takes candidates from rows at the server.
"""

import math
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust.core.chunks import pieces
from flareclust.core.clusterers import weighted_kmeans
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.core.dp.lloyd import Moments, shrunk, sure_rows, widest_radius
from flareclust.core.dp.sums import UNIT, ClusterSums
from flareclust.core.lloyd import sums_by_label

#: Cells along the axes for each cluster at least; more, up to a limit, while rows are so many times the noise of all cells.
_CELLS_PER_CLUSTER, _ROWS_TO_NOISE, _MOST_CELLS = 128, 3.0, 2**15

#: The axes are used where noise alone would make a variance of this at most along one, in squared radii of the bounds, and
#: where cells that noise alone explains hold at most this share of a cluster's rows.
_MOST_VARIANCE, _MOST_OF_CLUSTER = 0.1, 2 / 3

#: Half the length of the grid along an axis, in deviations of the rows.
_REACH = 2.0

#: The number of cells for each cluster that are looked at in any case.
_LEAST = 4

_STARTS = 30

#: So many standard deviations of its own noise rows may be farther from their centroids than the sums say.
_SURE = 2.0

#: In updates rows are clipped at so many root mean square distances from their centroids.
_RADIUS = 1.3


class _Spread(NamedTuple):
    """Estimates for all rows from noisy sums, in radii of the bounds about their middle.

    Attributes:
        rows: how many there are.
        mean: (d,).
        covariance: (d, d).
        noise: the variance along an axis that noise alone would make.
    """

    rows: float
    mean: FloatArray
    covariance: FloatArray
    noise: float

    def scatter(self, box: Box) -> float:
        """Return the sum of squared distances of all rows from their mean, without bias and so possibly below 0."""
        return self.rows * box.half**2 * float(np.trace(self.covariance))

    def moments(self, box: Box) -> Moments:
        """Return the same by column, in the columns' units."""
        deviation = box.half * np.sqrt(np.clip(np.diag(self.covariance), 0, 1))
        return Moments(self.rows, box.clip((box.middle + box.half * self.mean)[None])[0], deviation)


class Grid(NamedTuple):
    """Cells along axes: their middle (d,), directions (p, d), half lengths (p,) and numbers of cells (p,)."""

    middle: FloatArray
    axes: FloatArray
    half: FloatArray
    shape: tuple[int, ...]


def spread_of(rows: float, values: FloatArray, products: FloatArray, noise: float) -> _Spread:
    """Return the estimates from noisy `second_moment_sums` of all sites in total, in units.

    They are of values (d,) and products (d (d + 1) / 2,); `noise` is the standard deviation of the noise of all integers.
    """
    d, counted = len(values), max(rows, 1.0)
    mean = shrunk(values, noise / VALUE_UNIT) / counted
    covariance = _matrix_of(products, d) / counted - np.outer(mean, mean)
    return _Spread(counted, mean, covariance, 2 * math.sqrt(d) * _product_noise(noise) / counted)


def cells_for(found: _Spread, noise: float, k: int) -> int:
    """Return how many cells along the axes there should be, for k clusters and noise of this deviation in each cell."""
    return max(_CELLS_PER_CLUSTER * k, int(min(found.rows / (_ROWS_TO_NOISE * noise), _MOST_CELLS)))


def is_clear(found: _Spread, cells: int, noise: float, k: int) -> bool:
    """Return whether there are so many rows that main axes stand out of noise, and so many cells along them, for k clusters.

    `noise` is the standard deviation of that of each cell.
    """
    return found.noise <= _MOST_VARIANCE and _threshold(cells, noise) <= _MOST_OF_CLUSTER * found.rows / k


def grid_along(found: _Spread, box: Box, cells: int, k: int) -> Grid:
    """Return a grid of about so many cells along the axes of the largest variance, k of them at most, one cell along the others."""
    variances, axes = np.linalg.eigh(found.covariance)
    p = min(k, len(variances))
    deviations, along = np.sqrt(np.maximum(variances[::-1][:p], 1e-12)), np.ones(p, np.int64)
    while 1.5 * math.prod(map(int, along)) < cells:
        along[(deviations / along).argmax()] += 1
    used = along > 1 if (along > 1).any() else np.arange(p) == 0
    middle, half = box.middle + box.half * found.mean, _REACH * box.half * deviations[used]
    directions = np.clip(axes.T[::-1][:p][used], -1, 1)
    return Grid(middle, np.ascontiguousarray(directions), half, tuple(map(int, along[used])))


def cluster_cells(
    noisy: FloatArray, noise: float, grid: Grid, k: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return at most k centroids (k, d) of the rows behind noisy cells (cells,), within the grid, and the rows behind each (k,)."""
    marks, least = [(2 * np.arange(g) + 1) / g - 1 for g in grid.shape], max(_threshold(len(noisy), noise), 1e-9)
    chosen = np.flatnonzero(noisy > least)
    if len(chosen) < 2 * k:
        chosen = np.sort(np.argsort(-noisy, kind="stable")[: _LEAST * k])
    place = np.unravel_index(chosen, grid.shape)
    points = np.stack([mark[at] for mark, at in zip(marks, place, strict=True)], axis=1) * grid.half
    weights = np.maximum(noisy[chosen], 1)
    found, labels = weighted_kmeans(points, weights, k, _STARTS, rng)
    return grid.middle + found @ grid.axes, sums_by_label(labels, weights, len(found))


def joined(parts: FloatArray, rows: FloatArray, k: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return at most k centroids (k, d) of more parts (p, d) with their noisy rows (p,), and the rows behind each (k,).

    Cells along axes are too coarse to tell two small clusters from one large one that a cell's edge cuts. Means of parts are
    not: they are of all columns.
    """
    weights = np.maximum(rows, 1)
    found, labels = weighted_kmeans(parts, weights, k, _STARTS, rng)
    return found, sums_by_label(labels, weights, len(found))


def first_radius(found: _Spread, box: Box, k: int) -> float:
    """Return the radius of all clusters in the first update: the deviation of all rows from their mean."""
    # A matrix of noise has a trace of about half its largest eigenvalue, or none.
    least = _SURE * found.noise * _PRODUCT / 16
    deviation = box.half * math.sqrt(max(float(np.trace(found.covariance)), least))
    return float(np.clip(deviation, widest_radius(box, k) / 100, box.half))


def settled_radii(radii: FloatArray, sums: ClusterSums, noise: float, box: Box) -> FloatArray:
    """Return the radii of the next update (k,), one for all: what rows are away from centroids, and these from the truth.

    Sums are noisy, in total over the sites, with these radii (k,); `noise` is the deviation of that of each shift, in radii.
    """
    k, d = sums.shifts.shape
    sure = sure_rows(sums.rows, noise)
    if not sure.any():
        return radii
    rows, squared = sums.rows[sure], radii[sure] ** 2
    error = d * (noise / rows) ** 2 * squared  # of the centroids
    shifted = np.maximum((sums.shifts[sure] ** 2).sum(axis=1) / rows**2 * squared - error, 0)
    about = float((sums.squares[sure] * squared).sum() / rows.sum())
    # A radius that noise alone makes small would hold the centroids where they are, and hide how far rows are from them.
    least = _SURE * dp_sums.square_noise(noise) * math.sqrt(float((squared**2).sum())) / float(rows.sum())
    within = max(about - float((rows * shifted).sum() / rows.sum()), least)
    radius = _RADIUS * math.sqrt(within + float(error.mean()))
    return np.minimum(radii, max(radius, widest_radius(box, k) / 100))


def _threshold(cells: int, noise: float) -> float:
    """Return the number of rows that no cell is likely to have by noise alone (Donoho and Johnstone 1994)."""
    return noise * math.sqrt(2 * math.log(max(cells, 2)))


# Sums over rows for the start with many columns: second moments, and numbers of rows in cells along given axes.
#
# As in `flareclust.core.dp.sums`, what a row contributes depends on the row and on public numbers only, is an integer before it
# is added, and has a length of at most what is stated. Nothing here draws noise.
#
# Source: Dwork, Talwar, Thakurta, Zhang, Analyze Gauss (2014), algorithm 1 (noise on the matrix of second moments).

#: A row's values in integers of so many per 1, a power of two, so that its products are whole, too.
_STEP = 2**13

#: What the products of two columns count, in eighths: near the root of two, as each stands for two entries of the matrix, and
#: below it, so that all products of a row together are no longer than the whole matrix would be.
_PRODUCT = 11

#: Integers per 1 of the products of a column with itself, of the values, and of the number of rows.
SQUARE_UNIT, VALUE_UNIT, ROW_UNIT = 8 * _STEP**2, 4 * _STEP**2, 2 * _STEP**2

#: So many columns at most have second moments: half their square is what every site sends.
MOST_COLUMNS = 512


def second_moment_sums(data: FloatArray, own: Box, box: Box, aborted: AbortCheck) -> IntArray:
    """Return the number of rows, the sums of their values, and of the products of any two (1 + d + d (d + 1) / 2,).

    Values are those of `in_radii`. The products are those on and above the diagonal of the matrix of second moments, row by
    row. A row changes all by at most `second_moment_sensitivity`: the products by its squared length.
    """
    n, d = data.shape
    upper = np.triu_indices(d)
    values, products = np.zeros(d, np.int64), np.zeros((d, d), np.int64)
    for rows in dp_sums.pieces_until(data, aborted):
        whole = np.trunc(dp_sums.whole(dp_sums.in_radii(rows, own, box)) / (UNIT // _STEP))
        values += whole.sum(axis=0).astype(np.int64)
        products += (whole.T @ whole).astype(np.int64)  # of integers below 2^53, and so exact in any order
    products *= np.where(np.eye(d, dtype=np.bool_), 8, _PRODUCT)
    return np.concatenate([[n * ROW_UNIT], values * (VALUE_UNIT // _STEP), products[upper]])


def second_moment_sensitivity() -> float:
    """Return the L2 sensitivity of `second_moment_sums`."""
    return math.sqrt(SQUARE_UNIT**2 + VALUE_UNIT**2 + ROW_UNIT**2)


def _matrix_of(products: FloatArray, d: int) -> FloatArray:
    """Return the symmetric matrix (d, d) of the products in units of `SQUARE_UNIT` (d (d + 1) / 2,)."""
    upper = np.zeros((d, d))
    upper[np.triu_indices(d)] = products
    above = np.triu(upper, 1) * 8 / _PRODUCT
    return np.diag(np.diag(upper)) + above + above.T


def _product_noise(noise: float) -> float:
    """Return the standard deviation of the noise of an entry off the diagonal, from that of all integers."""
    return noise / (_STEP**2 * _PRODUCT)


def axis_cell_counts(data: FloatArray, own: Box, grid: Grid, aborted: AbortCheck) -> IntArray:
    """Return the number of rows (n, d) in each cell (cells,) of a grid along axes, the last axis first to change.

    A row changes one of them by 1: L2 sensitivity 1. Rows are clipped at the site's `own` bounds; those beyond the grid
    count in the cell nearest to them. Entries of directions lie between -1 and 1.
    """
    middle, axes, half, shape = grid
    counts, parts, step = np.zeros(math.prod(shape), dtype=np.int64), np.array(shape), dp_sums.steps_of(shape)
    for part in pieces(*data.shape):
        stop_if(aborted, "while rows were counted")
        away = own.clip(data[part]) - middle
        along = np.zeros((len(away), len(shape)))
        for column, direction in zip(away.T, axes.T, strict=True):
            # Column by column and not by a product of matrices, whose rounding of a row could depend on the other rows.
            along += column[:, None] * direction
        place = np.clip((along / half + 1) / 2 * parts, 0, parts - 1)
        counts += np.bincount(place.astype(np.int64) @ step, minlength=len(counts))
    return counts
