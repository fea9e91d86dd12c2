"""Sums over rows with bounded sensitivity, as integers, and their values after the noise.

A row's contribution is a vector of length at most 1, which is turned into integers of `UNIT` per 1, towards zero. So
no contribution is longer than UNIT, the sums are exact in any order, and the sensitivities below hold for what the
computer adds up. Nothing here draws noise or reads bounds from rows.

Neighbouring tables differ by one row, added or removed. What a row contributes depends on the row and on public numbers
only (bounds, centroids, radii), so that one row more changes the sums by just its own contribution.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust.core.chunks import pieces
from flareclust.core.dp.box import Box
from flareclust.core.kernels import two_nearest
from flareclust.core.lloyd import labels_of
from flareclust.core.runtime import kernel

#: Integers per 1: fine enough that rounding is far below any noise.
UNIT = 2**20

#: What a row counts in an update, in parts of the longest contribution to the sums. A smaller weight makes the counts
#: noisier and everything else less noisy; an error of a count moves a centroid by that share of its shift, which is small.
COUNT = UNIT // 2

#: The same for the squared distance, one number for each cluster.
_SQUARE = UNIT // 4

#: The same for the silhouette beside the sum of squares in the assessment.
SILHOUETTE = UNIT // 2

#: The same for a row beyond the bounds.
CLIPPED = UNIT // 4

#: In radii of the bounds: rows that clipping moves less are within them, but for rounding.
_MOVED = 1e-6

#: Keeps rounding errors of lengths from making a contribution longer than 1.
_WITHIN = 1 - 1e-9

#: So many times the distance by which noise moves a centroid the radius of its cluster must be for the centroid to say something.
CLEAR = 2.0

#: In units of the median radius: how far away a row is that counts like one still farther in the sum of squares.
REACH_RADII = 1.5

#: What radii and reaches lie between.
LEAST_RADIUS, LARGEST_RADIUS = 1e-100, 1e145


class ClusterSums(NamedTuple):
    """Sums by cluster over the rows nearest to each of k centroids.

    Attributes:
        shifts: of the rows' distances to the centroid by column, in radii of the cluster; a row farther away than the
            radius counts as one at the radius (k, d).
        rows: numbers of rows (k,).
        squares: of squared distances, at most 1 per row, in squared radii (k,).
    """

    shifts: FloatArray
    rows: FloatArray
    squares: FloatArray


def pieces_until(data: FloatArray, aborted: AbortCheck, beside: int = 0) -> Iterator[FloatArray]:
    """Give the rows (n, d) piece by piece, each with room for so many numbers of each row beside it; Aborted where `aborted` says so."""
    n, d = data.shape
    for part in pieces(n, d + beside):
        stop_if(aborted, "while sums over the rows were taken")
        yield data[part]


def in_radii(rows: FloatArray, own: Box, box: Box) -> FloatArray:
    """Return rows (n, d), clipped at the site's `own` bounds, as distances from the middle of the `box`, in radii of it."""
    away = (box.clip(own.clip(rows)) - box.middle) / box.half
    length = np.maximum(np.sqrt((away**2).sum(axis=1)), 1)  # beyond 1 by rounding only
    return np.asarray(away / length[:, None])


def steps_of(shape: tuple[int, ...]) -> IntArray:
    """Return by how much the number of a cell of a grid grows along each axis (p,), of as many axes as there are."""
    return np.cumprod([1, *shape[:0:-1]])[::-1]  # NumPy's own numbering takes some dozens of axes at most


def cell_counts(data: FloatArray, own: Box, box: Box, shape: tuple[int, ...], aborted: AbortCheck) -> IntArray:
    """Return the number of rows (n, d) in each cell (cells,) of a grid over the box, the last axis first to change.

    A row changes one of them by 1: L2 sensitivity 1. Values are clipped at the site's `own` bounds; those outside the box
    count in the cell nearest to them.
    """
    counts, parts, step = np.zeros(math.prod(shape), dtype=np.int64), np.array(shape), steps_of(shape)
    for rows in pieces_until(data, aborted):
        place = (box.clip(own.clip(rows)) - box.low) / (box.high - box.low) * parts
        cell = np.minimum(place.astype(np.int64), parts - 1)
        counts += np.bincount(cell @ step, minlength=len(counts))
    return counts


def moment_sums(data: FloatArray, own: Box, box: Box, aborted: AbortCheck) -> IntArray:
    """Return the number of rows and the sums of their values and of the values' squares, by column (1 + 2 d,).

    Values are those of `in_radii`. So the values of a row have length at most 1, and the squares, too. With UNIT for the row
    itself a row changes the sums by at most `moment_sensitivity`.
    """
    n, d = data.shape
    sums = np.zeros(1 + 2 * d, dtype=np.int64)
    sums[0] = n * UNIT
    for rows in pieces_until(data, aborted):
        values = in_radii(rows, own, box)
        sums[1 : 1 + d] += whole(values).sum(axis=0)
        sums[1 + d :] += whole(values**2).sum(axis=0)
    return sums


def moment_sensitivity() -> float:
    """Return the L2 sensitivity of `moment_sums`: UNIT for each of its three parts."""
    return math.sqrt(3) * UNIT


def cluster_sums(data: FloatArray, own: Box, centroids: FloatArray, radii: FloatArray, aborted: AbortCheck) -> IntArray:
    """Return, for the rows (n, d) nearest to each of the centroids, what `ClusterSums` holds, in integers (k, d + 2).

    A row changes the entries of one cluster only: the shifts by at most UNIT in L2 norm, the count by COUNT, the squares by
    at most SQUARE; together by at most `cluster_sensitivity`. Values are clipped at the site's `own` bounds. Public are
    centroids (k, d) and radii (k,), these between `LEAST_RADIUS` and `LARGEST_RADIUS`.
    """
    k, d = centroids.shape
    sums = np.zeros((k, d + 2), np.int64)
    for rows in pieces_until(data, aborted):
        values = own.clip(rows)
        labels = labels_of(values, centroids)
        shift, radius = values - centroids[labels], radii[labels]
        length = np.sqrt((shift**2).sum(axis=1))  # in radii it could be too large to be squared
        contributions = np.empty((len(values), d + 2), np.int64)
        contributions[:, :d] = whole(shift / np.maximum(length, radius)[:, None])
        contributions[:, d] = COUNT
        contributions[:, d + 1] = (_share(length / radius) ** 2 * _SQUARE).astype(np.int64)
        add_rows(contributions, labels, sums)
    return sums


@kernel()
def add_rows(contributions: IntArray, labels: IntArray, sums: IntArray) -> None:
    """Do `np.add.at(sums, labels, contributions)`, in a tenth of the time; integers, so in any order the same."""
    for i in range(contributions.shape[0]):
        c = np.uint64(labels[i])  # not negative, so that no index is wrapped
        for j in range(contributions.shape[1]):
            sums[c, j] += contributions[i, j]


def in_units(sums: IntArray) -> ClusterSums:
    """Return noisy `cluster_sums` (k, d + 2) as real numbers."""
    d = sums.shape[1] - 2
    return ClusterSums(sums[:, :d] / UNIT, sums[:, d] / COUNT, sums[:, d + 1] / _SQUARE)


def cluster_sensitivity() -> float:
    """Return the L2 sensitivity of `cluster_sums`."""
    return math.sqrt(UNIT**2 + COUNT**2 + _SQUARE**2)


def square_noise(noise: float) -> float:
    """Return the standard deviation of the noise of the squares of `ClusterSums`, from that of its shifts."""
    return noise * UNIT / _SQUARE


def quality_sums(data: FloatArray, own: Box, centroids: FloatArray, reach: float, aborted: AbortCheck) -> IntArray:
    """Return three sums over the rows (n, d), clipped at the site's `own` bounds (3,).

    Of squared distances to the nearest centroid, at most 1 per row, in squared units of `reach` (UNIT per 1); of simplified
    silhouettes, which lie between 0 and 1 (SILHOUETTE per 1); and the number of rows that were beyond the bounds (CLIPPED
    per 1). A row changes them by `quality_sensitivity`.
    """
    sse = silhouette = clipped = 0
    for rows in pieces_until(data, aborted):
        values = own.clip(rows)
        squared, second = np.empty(len(values)), np.empty(len(values))
        two_nearest(values, centroids, np.empty(len(values), np.int64), squared, second)
        nearest, other = np.sqrt(squared), np.sqrt(second)
        score = np.zeros(len(values))
        if len(centroids) > 1:
            np.divide(other - nearest, other, out=score, where=other > 0)
        sse += int((_share(nearest / reach) ** 2 * UNIT).astype(np.int64).sum())
        silhouette += int((_share(score) * SILHOUETTE).astype(np.int64).sum())
        clipped += CLIPPED * int((np.abs(values - rows) > _MOVED * own.half).any(axis=1).sum())
    return np.array([sse, silhouette, clipped], dtype=np.int64)


def quality_sensitivity() -> float:
    """Return the L2 sensitivity of `quality_sums`."""
    return math.sqrt(UNIT**2 + SILHOUETTE**2 + CLIPPED**2)


def signal_to_noise(noisy: FloatArray, noise: float) -> float:
    """Return how large a statistic is beside its noise: the root mean square of its entries over the noise's deviation.

    What noise alone adds to the mean square of the entries is taken out.
    """
    signal = float((noisy**2).mean()) / noise**2 - 1
    return math.sqrt(max(signal, 0.0))


def whole(vectors: FloatArray) -> IntArray:
    """Return vectors (n, d) of length at most 1 (but for rounding) as integers of length at most UNIT.

    A vector that is longer, or not of numbers, counts as 0: so no row adds more, and none makes a site say that it did.
    """
    fit = np.einsum("nd,nd->n", vectors, vectors) < 1 + 1e-10
    return (np.where(fit[:, None], vectors, 0) * (UNIT * _WITHIN)).astype(np.int64)


def _share(values: FloatArray) -> FloatArray:
    """Return values between 0 and 1; what is beyond counts as that, and NaN as 0."""
    return np.fmin(np.fmax(values, 0), 1)
