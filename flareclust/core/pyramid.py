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
from flareclust.core.runtime import kernel

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
    if not _count_cells(X, depth, cell, starts) <= crowd * n:
        return None
    number = ((1 << d * (depth + 1)) - 1) // ((1 << d) - 1)
    pyramid = Pyramid(np.empty((n, d + 1)), starts, np.zeros((number, 10)), depth)
    _fill_cells(X, weights, origin, cell, pyramid)
    return pyramid


@kernel()
def _count_cells(X: FloatArray, depth: int, cell: IntArray, starts: IntArray) -> float:
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
def _row_of(rows: FloatArray, i: int) -> tuple[float, float, float, float]:
    """Return three coordinates and the weight of a row."""
    d = rows.shape[1] - 1
    return rows[i, 0], rows[i, 1] if d > 1 else 0.0, rows[i, 2] if d > 2 else 0.0, rows[i, d]


@kernel()
def _fill_cells(X: FloatArray, weights: FloatArray, origin: FloatArray, cell: IntArray, pyramid: Pyramid) -> None:
    """Sort the rows into cells (a counting sort; starts becomes what it is in a Pyramid) and add them up."""
    n, d = X.shape
    rows, starts, cells, depth = pyramid
    smallest, begin = 1 << d * depth, 0
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
            x, y, z, w = _row_of(rows, i)
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
        low[:], high[:] = np.inf, -np.inf
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


# Lloyd's iterations on a pyramid of cells.

#: A cell of fewer rows is not divided.
_FEW = 24

#: Scores closer than this part of the squared extent count as a tie, or than this part for each row. Sums of n rows in two
#: orders differ by at most 2 n 2^-53 of the extent (Higham 2002, section 4.2), and scores of centroids by twice as much.
_TIE, _TIE_OF_ROW = 1e-11, 2.0**-51


@kernel(fastmath={"contract"})
def _survivors(
    line: FloatArray, G: FloatArray, parents: IntArray, kept: IntArray, scores: FloatArray, tie: float
) -> int:
    """kept becomes those of the centroids parents[1:] that can be nearest to a row of the cell, kept[0] their number."""
    x, y, z, a, b, e = line[0], line[1], line[2], line[3], line[4], line[5]
    best, closest = -np.inf, np.uint64(0)
    n = parents[0]
    for p in range(1, n + 1):
        c = np.uint64(parents[p])
        score = x * G[c, 0] + y * G[c, 1] + z * G[c, 2] - G[c, 3]
        scores[p] = score
        if score > best:
            best, closest = score, c
    g0, g1, g2 = G[closest, 0], G[closest, 1], G[closest, 2]
    found = 0
    for p in range(1, n + 1):
        c = np.uint64(parents[p])
        # How much better c can be at the corner that lies farthest in its direction.
        ahead = scores[p] - best + a * abs(G[c, 0] - g0) + b * abs(G[c, 1] - g1) + e * abs(G[c, 2] - g2)
        if ahead > -tie or c == closest:
            found += 1
            kept[found] = parents[p]
    kept[0] = found
    return found


@kernel(fastmath={"contract"})
def _add_rows(rows: FloatArray, G: FloatArray, kept: IntArray, sums: FloatArray, tie: float) -> int:
    """Add each row to the sums of the centroid nearest to it among kept[1:]; return how many tie."""
    n, ties = kept[0], 0
    if n == 2:  # nearly always: sums in registers, selections in place of branches
        p, q = np.uint64(kept[1]), np.uint64(kept[2])
        g0, g1, g2, g3 = G[q, 0] - G[p, 0], G[q, 1] - G[p, 1], G[q, 2] - G[p, 2], G[q, 3] - G[p, 3]
        p0 = p1 = p2 = p3 = q0 = q1 = q2 = q3 = 0.0
        for i in range(rows.shape[0]):
            x, y, z, w = _row_of(rows, i)
            ahead = x * g0 + y * g1 + z * g2 - g3
            v = w if ahead > 0.0 else 0.0
            w -= v
            ties += abs(ahead) <= tie
            p0 += w * x
            p1 += w * y
            p2 += w * z
            p3 += w
            q0 += v * x
            q1 += v * y
            q2 += v * z
            q3 += v
        sums[p, 0] += p0
        sums[p, 1] += p1
        sums[p, 2] += p2
        sums[p, 3] += p3
        sums[q, 0] += q0
        sums[q, 1] += q1
        sums[q, 2] += q2
        sums[q, 3] += q3
        return ties
    for i in range(rows.shape[0]):
        x, y, z, w = _row_of(rows, i)
        best, second, nearest = -np.inf, -np.inf, np.uint64(0)
        for at in range(1, n + 1):
            c = np.uint64(kept[at])
            score = x * G[c, 0] + y * G[c, 1] + z * G[c, 2] - G[c, 3]
            nearest = c if score > best else nearest
            lower = score if score < best else best  # noqa: FURB136
            second = lower if lower > second else second  # noqa: FURB136
            best = score if score > best else best  # noqa: FURB136
        ties += best - second <= tie
        sums[nearest, 0] += w * x
        sums[nearest, 1] += w * y
        sums[nearest, 2] += w * z
        sums[nearest, 3] += w
    return ties


@kernel()
def _add_up(pyramid: Pyramid, G: FloatArray, sums: FloatArray) -> bool:
    """sums[c] = weighted sum of the rows nearest to centroid c, and their weight.

    Returns False, and has not finished, where a row is about as near to two centroids.
    """
    rows, starts, cells, depth = pyramid
    k, d = G.shape[0], rows.shape[1] - 1
    sums[:] = 0.0
    kept = np.empty((depth + 2, k + 1), np.int64)  # line l + 1: of the cell of l halvings that is looked at
    kept[0, 0] = k
    for c in range(k):
        kept[0, c + 1] = c
    scores = np.empty(k + 1)
    tie = max(_TIE, _TIE_OF_ROW * rows.shape[0]) * (cells[0, 3] ** 2 + cells[0, 4] ** 2 + cells[0, 5] ** 2)
    children = 1 << d
    waiting, levels = np.empty(children * (depth + 1), np.int64), np.empty(children * (depth + 1), np.int64)
    waiting[0], levels[0], size = 0, 0, 1
    while size > 0:
        size -= 1
        cell, level = waiting[size], levels[size]
        shift = d * (depth - level)
        code = cell - ((1 << d * level) - 1) // (children - 1)  # among those of its level
        lo, hi = starts[code << shift], starts[(code + 1) << shift]
        if lo == hi:
            continue
        if _survivors(cells[cell], G, kept[level], kept[level + 1], scores, tie) == 1:
            owner = kept[level + 1, 1]
            for j in range(4):
                sums[owner, j] += cells[cell, 6 + j]
        elif level == depth or hi - lo <= _FEW:
            if _add_rows(rows[lo:hi], G, kept[level + 1], sums, tie) > 0:
                return False
        else:
            for child in range(children * cell + 1, children * (cell + 1) + 1):
                waiting[size], levels[size] = child, level + 1
                size += 1
    return True


@kernel()
def pyramid_steps(
    pyramid: Pyramid, origin: FloatArray, centroids: FloatArray, earlier: FloatArray, n_steps: int, tol: float
) -> tuple[int, bool]:
    """Run at most `n_steps` of Lloyd's iterations on `centroids` in place; return (steps run, whether they are over).

    They are over where `kernels.lloyd_steps` must see the next ones for itself: the last, where a row ties, or where a
    cluster is empty. What it must see of the steps taken is taken back and not counted, so the number may be -1.

    `earlier` (k, d) are the centroids before the last step, NaN where that was not one on cells: the next call goes on.
    """
    k, d = centroids.shape
    G, sums = np.zeros((k, 4)), np.empty((k, 4))
    for step in range(n_steps):
        for c in range(k):
            for j in range(d):
                G[c, j] = centroids[c, j] - origin[j]
            G[c, 3] = (G[c, 0] ** 2 + G[c, 1] ** 2 + G[c, 2] ** 2) / 2
        if not _add_up(pyramid, G, sums):
            return step, True
        if sums[:, 3].min() == 0.0:
            return step, True
        shift, moved = 0.0, False
        for c in range(k):
            for j in range(d):
                sums[c, j] /= sums[c, 3]
                move = sums[c, j] - G[c, j]
                shift += move * move
                # A row that changes its cluster moves it by more, unless an equal one takes its place.
                moved |= abs(move) > 1e-13 * pyramid.cells[0, 3 + j] + 1e-15 * abs(origin[j])
        if not moved and not np.isnan(earlier[0, 0]):
            for c in range(k):  # no label has changed: this step and the one before are taken back
                for j in range(d):
                    centroids[c, j] = earlier[c, j]
            return step - 1, True
        if not moved or shift <= tol:
            return step, True
        for c in range(k):  # in loops: numba takes two seconds to compile assignments of arrays
            for j in range(d):
                earlier[c, j], centroids[c, j] = centroids[c, j], sums[c, j] + origin[j]
    return n_steps, False
