"""Many rows of up to three columns: Lloyd's iterations on a pyramid of grid cells instead of rows.

Why it exists: in few columns most cells of a grid belong to one centroid as a whole, and so do larger cells made of them.
A cell holds the sums of its rows, so an iteration costs what lies between centroids: at a million rows a tenth of a
distance per row instead of k. Kanungo et al. (2002), An efficient k-means clustering algorithm: analysis and
implementation, section 2, give the test: c is no row's nearest centroid in a box where another centroid is closer than c to
the corner that lies farthest in the direction of c. Here centroids are compared by y . g - |g|^2 / 2, y and g about the
origin, and every row has three coordinates, 0 where there is no column: loops of unknown length would take longer.

Sums of cells round in another order than sums of rows, so the iterations here only lead up to the end: from the centroids
before the last one or two iterations `kernels.lloyd_steps` goes on, row by row, as it does wherever a row is about as near
to two centroids. So the end is as without the pyramid, to the last bit.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.chunks import is_mapped
from flareclust.core.jit import kernel

#: Below, the pyramid takes as long to build as it saves.
FEWEST_ROWS = 20_000

#: Nor does a grid serve where a row shares its cell with more than this part of the rows of an average cluster.
_CROWD = 1 / 8


class Pyramid(NamedTuple):
    """Rows about the origin with their weights, (n, d + 1), in the order of their cells, and what the cells hold.

    Cells of `depth` halvings are numbered so that cell c has the 2^d children 2^d c, 2^d c + 1, ... of the next halving.
    Rows starts[c] to starts[c + 1] belong to the smallest cell c. A line of `cells` (cells, 10) is the middle of the box of
    its rows, half its sides, the rows' weighted sum and their weight; those of larger cells stand first.
    """

    rows: FloatArray
    starts: IntArray
    cells: FloatArray
    depth: int


def pyramid_of(X: FloatArray, weights: FloatArray, origin: FloatArray, k: int) -> Pyramid | None:
    """Return the pyramid of rows (n, d), or None where iterations on it would not be faster, or take too much memory."""
    n, d = X.shape
    if d > 3 or n < FEWEST_ROWS or is_mapped(X):
        return None
    return build(X, weights, origin, int(np.log2(n / 16)) // d, _CROWD * n / k)


def build(X: FloatArray, weights: FloatArray, origin: FloatArray, depth: int, crowd: float) -> Pyramid | None:
    """Return the pyramid of so many halvings, or None where a row shares its cell with more than `crowd`."""
    n, d = X.shape
    cell, starts = np.empty(n, np.int32), np.zeros((1 << d * depth) + 1, np.int64)
    if not count_cells(X, depth, cell, starts) <= crowd * n:
        return None
    rows, cells = np.empty((n, d + 1)), np.zeros((((1 << d * (depth + 1)) - 1) // ((1 << d) - 1), 10))
    fill_cells(X, weights, origin, cell, starts, depth, rows, cells)
    return Pyramid(rows, starts, cells, depth)


@kernel()
def count_cells(X: FloatArray, depth: int, cell: IntArray, starts: IntArray) -> float:
    """cell[i] = the smallest cell of row i, starts[c + 1] = rows in cell c; return the sum of squares of the latter.

    The cells divide the box of the rows. Returns infinity where its sides are not numbers to divide by.
    """
    n, d = X.shape
    low, high = np.full(3, np.inf), np.full(3, -np.inf)  # the last column again where there are less than three
    for i in range(n):
        for at in range(3):
            x = X[i, min(at, d - 1)]
            low[at], high[at] = min(low[at], x), max(high[at], x)
    for at in range(3):
        if not 1e-300 < high[at] - low[at] < 1e300:
            return np.inf
    scale = np.empty(3)
    for at in range(3):
        scale[at] = (1 << depth) * (1.0 - 1e-9) / (high[at] - low[at])
    spread = np.zeros(1 << depth, np.int32)  # bit b moves to bit d b
    for value in range(1 << depth):
        for bit in range(depth):
            spread[value] |= ((value >> bit) & 1) << (d * bit)
    for i in range(n):
        code = spread[np.uint64((X[i, 0] - low[0]) * scale[0])]
        if d > 1:
            code |= spread[np.uint64((X[i, 1] - low[1]) * scale[1])] << 1
        if d > 2:
            code |= spread[np.uint64((X[i, 2] - low[2]) * scale[2])] << 2
        cell[i] = code
        starts[np.uint64(code) + np.uint64(1)] += 1
    total = 0.0
    for c in range(1, starts.shape[0]):
        total += float(starts[c]) * float(starts[c])
    return total


@kernel(inline="always")
def row_of(rows: FloatArray, i: int) -> tuple[float, float, float, float]:
    """Return three coordinates and the weight of a row."""
    d = rows.shape[1] - 1
    return rows[i, 0], rows[i, 1] if d > 1 else 0.0, rows[i, 2] if d > 2 else 0.0, rows[i, d]


@kernel()
def fill_cells(
    X: FloatArray,
    weights: FloatArray,
    origin: FloatArray,
    cell: IntArray,
    starts: IntArray,
    depth: int,
    rows: FloatArray,
    cells: FloatArray,
) -> None:
    """Sort the rows into cells (a counting sort; starts becomes what it is in a Pyramid) and add them up."""
    n, d = X.shape
    smallest = 1 << d * depth
    begin = 0
    for c in range(1, smallest + 1):  # starts[c] = where cell c - 1 begins, and after sorting where it ends
        begin, starts[c] = begin + starts[c], begin
    for i in range(n):
        own = np.uint64(cell[i]) + np.uint64(1)  # not negative, so that no index is wrapped
        at = np.uint64(starts[own])
        starts[own] += 1
        rows[at, 0] = X[i, 0] - origin[0]
        if d > 1:
            rows[at, 1] = X[i, 1] - origin[1]
        if d > 2:
            rows[at, 2] = X[i, 2] - origin[2]
        rows[at, d] = weights[i]
    first = cells.shape[0] - smallest
    low, high = np.empty(3), np.empty(3)
    for c in range(smallest):
        x0 = y0 = z0 = np.inf
        x1 = y1 = z1 = -np.inf
        sx = sy = sz = mass = 0.0
        for i in range(starts[c], starts[c + 1]):
            x, y, z, w = row_of(rows, i)
            x0, y0, z0 = min(x, x0), min(y, y0), min(z, z0)
            x1, y1, z1 = max(x, x1), max(y, y1), max(z, z1)
            sx += w * x
            sy += w * y
            sz += w * z
            mass += w
        line = cells[first + c]
        low[0], low[1], low[2], high[0], high[1], high[2] = x0, y0, z0, x1, y1, z1
        _set_box(line, low, high)
        line[6], line[7], line[8], line[9] = sx, sy, sz, mass
    children = 1 << d
    for c in range(first - 1, -1, -1):  # children of cell c of all cells: 2^d c + 1, ...
        line = cells[c]
        for j in range(3):
            low[j], high[j] = np.inf, -np.inf
        for child in range(children * c + 1, children * (c + 1) + 1):
            below = cells[child]
            for j in range(3):
                low[j], high[j] = min(low[j], below[j] - below[3 + j]), max(high[j], below[j] + below[3 + j])
                line[6 + j] += below[6 + j]
            line[9] += below[9]
        _set_box(line, low, high)


@kernel()
def _set_box(line: FloatArray, low: FloatArray, high: FloatArray) -> None:
    """The box of a cell becomes low to high, a little larger than they are; without rows low is infinite, and stays so."""
    for j in range(3):
        line[j] = 0.5 * (low[j] + high[j]) if low[j] <= high[j] else 0.0
        line[3 + j] = (high[j] - line[j]) * (1.0 + 1e-14) if low[j] <= high[j] else -np.inf
