"""Lloyd's iterations on a pyramid of cells: kernels. `flareclust.core.pyramid` says why, and what they lead up to."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel
from flareclust.core.pyramid import row_of

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
            x, y, z, w = row_of(rows, i)
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
        x, y, z, w = row_of(rows, i)
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
def _add_up(
    rows: FloatArray,
    starts: IntArray,
    cells: FloatArray,
    depth: int,
    d: int,
    G: FloatArray,
    sums: FloatArray,
) -> bool:
    """sums[c] = weighted sum of the rows nearest to centroid c, and their weight.

    Returns False, and has not finished, where a row is about as near to two centroids.
    """
    k = G.shape[0]
    for c in range(k):
        for j in range(4):
            sums[c, j] = 0.0
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
    rows: FloatArray,
    starts: IntArray,
    cells: FloatArray,
    depth: int,
    origin: FloatArray,
    centroids: FloatArray,
    earlier: FloatArray,
    n_steps: int,
    tol: float,
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
        if not _add_up(rows, starts, cells, depth, d, G, sums):
            return step, True
        for c in range(k):
            if sums[c, 3] == 0.0:
                return step, True
        shift, moved = 0.0, False
        for c in range(k):
            for j in range(d):
                sums[c, j] /= sums[c, 3]
                move = sums[c, j] - G[c, j]
                shift += move * move
                # A row that changes its cluster moves it by more, unless an equal one takes its place.
                moved |= abs(move) > 1e-13 * cells[0, 3 + j] + 1e-15 * abs(origin[j])
        if not moved and not np.isnan(
            earlier[0, 0]
        ):  # no label has changed: this step and the one before are taken back
            for c in range(k):
                for j in range(d):
                    centroids[c, j] = earlier[c, j]
            return step - 1, True
        if not moved or shift <= tol:
            return step, True
        for c in range(k):
            for j in range(d):
                earlier[c, j] = centroids[c, j]
                centroids[c, j] = sums[c, j] + origin[j]
    return n_steps, False
