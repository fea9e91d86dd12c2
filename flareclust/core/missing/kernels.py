"""Numba kernels for distances on common entries: from differences, so that small distances keep their digits.

Serial, and added in a fixed order, as those of core/kernels.py. A sum runs in eight lanes, which the compiler can
compute at once without reordering any of them.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import kernel

_LANES = 8

#: Rows whose distances are computed together.
_TILE = 128

#: Below this, 1 - cos has lost digits in a difference.
_CLOSE = 1e-6


class Points(NamedTuple):
    """Points in the form that products of matrices need.

    Attributes:
        values: (a, D), 0 where unknown; for euclidean distances relative to the middle of the extremes.
        masks: the different masks among them (u, D), 1 where known.
        which: mask of each point (a,).
    """

    values: FloatArray
    masks: FloatArray
    which: IntArray


@kernel()
def pair_distances(a: Points, i: IntArray, b: Points, j: IntArray, cosine: bool, out: FloatArray) -> None:
    """out[p] = phi of points i[p] of a and j[p] of b on the entries that both know."""
    lanes = np.empty((3, _LANES))
    for p in range(len(i)):
        x, known_x = a.values[i[p]], a.masks[a.which[i[p]]]
        y, known_y = b.values[j[p]], b.masks[b.which[j[p]]]
        if cosine:
            out[p] = _cosine(x, known_x, y, known_y, lanes)
        else:
            out[p] = np.sqrt(_squared(x, known_x, y, known_y, lanes))


@kernel()
def _squared(x: FloatArray, known_x: FloatArray, y: FloatArray, known_y: FloatArray, lanes: FloatArray) -> float:
    """Return the squared euclidean distance."""
    d, lanes[0] = len(x), 0.0
    for start in range(0, d - _LANES + 1, _LANES):
        for l in range(_LANES):
            f = start + l
            lanes[0, l] += known_x[f] * known_y[f] * (x[f] - y[f]) ** 2
    for f in range(d - d % _LANES, d):
        lanes[0, 0] += known_x[f] * known_y[f] * (x[f] - y[f]) ** 2
    return float(lanes[0].sum())


@kernel()
def _cosine(x: FloatArray, known_x: FloatArray, y: FloatArray, known_y: FloatArray, lanes: FloatArray) -> float:
    """Return 1 - cos; where that is small, half the squared distance of the directions, which is the same."""
    d = len(x)
    lanes[:] = 0.0
    for start in range(0, d - _LANES + 1, _LANES):
        for l in range(_LANES):
            f = start + l
            lanes[0, l] += known_y[f] * x[f] * x[f]
            lanes[1, l] += known_x[f] * y[f] * y[f]
            lanes[2, l] += x[f] * y[f]
    for f in range(d - d % _LANES, d):
        lanes[0, 0] += known_y[f] * x[f] * x[f]
        lanes[1, 0] += known_x[f] * y[f] * y[f]
        lanes[2, 0] += x[f] * y[f]
    xx, yy = lanes[0].sum(), lanes[1].sum()
    if xx == 0.0 or yy == 0.0:
        return 0.0 if xx == yy else 1.0
    length_x, length_y = np.sqrt(xx), np.sqrt(yy)
    found = 1.0 - lanes[2].sum() / (length_x * length_y)
    if found > _CLOSE:
        return float(found)
    total = 0.0
    for f in range(d):
        total += known_x[f] * known_y[f] * (x[f] / length_x - y[f] / length_y) ** 2
    return float(total / 2)


@kernel(fastmath={"contract", "nsz"})
def _squares_to(columns: FloatArray, known: FloatArray, point: FloatArray, out: FloatArray) -> None:
    """out[i] = sum over j of (columns[j, i] - point[j])^2 where known[j, i] is 1; columns are 0 where it is 0.

    Two columns at a time; where their number is odd, the last is 0 and nowhere known.
    """
    out[:] = 0.0
    for j in range(0, columns.shape[0] - 1, 2):
        x, y, of_x, of_y = columns[j], columns[j + 1], known[j], known[j + 1]
        p, q = point[j], point[min(j + 1, point.shape[0] - 1)]
        for i in range(_TILE):
            a, b = x[i] - of_x[i] * p, y[i] - of_y[i] * q
            out[i] = out[i] + a * a + b * b


@kernel()
def nearest_by_known(rows: FloatArray, known: FloatArray, centroids: FloatArray, labels: IntArray) -> None:
    """labels[i] = the centroid nearest to row i in the entries that it has, lowest index on ties.

    Rows and known (n, d) as in `flareclust.core.kpod.Observed`. Rows of a tile are independent lanes; products of matrices
    would be twice as many, and of n times k numbers.
    """
    (n, d), k = rows.shape, centroids.shape[0]
    columns, weights = np.zeros((d + d % 2, _TILE)), np.zeros((d + d % 2, _TILE))
    squared, best, nearest = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE, np.int64)
    for start in range(0, n, _TILE):
        size = min(_TILE, n - start)
        for i in range(size):
            for j in range(d):
                columns[j, i], weights[j, i] = rows[start + i, j], known[start + i, j]
        best[:], nearest[:] = np.inf, 0
        for c in range(k):
            _squares_to(columns, weights, centroids[c], squared)
            for i in range(_TILE):
                closer = squared[i] < best[i]
                best[i] = squared[i] if closer else best[i]
                nearest[i] = c if closer else nearest[i]
        labels[start : start + size] = nearest[:size]


@kernel()
def sums_of_known(
    rows: FloatArray, known: FloatArray, labels: IntArray, totals: FloatArray, holders: FloatArray
) -> None:
    """Add to totals[c] and holders[c] what rows and known have with label c, row after row."""
    for i in range(rows.shape[0]):
        c = np.uint64(labels[i])  # not negative, so that no index is wrapped
        for j in range(rows.shape[1]):
            totals[c, j] += rows[i, j]
            holders[c, j] += known[i, j]


@kernel()
def squares_of_known(
    rows: FloatArray, known: FloatArray, centroids: FloatArray, labels: IntArray, squares: FloatArray
) -> None:
    """squares[i] = the squared distance of row i to its centroid in the entries that it has."""
    for i in range(rows.shape[0]):
        point, total = centroids[labels[i]], 0.0
        for j in range(rows.shape[1]):
            difference = rows[i, j] - known[i, j] * point[j]
            total += difference * difference
        squares[i] = total
