"""Nearest centroids by a float32 screen: labels are those of `kernels.nearest_centroids`, bit for bit, in a fraction of its time.

Why it exists: squared distances by differences take three float64 operations per number. With y = s (x - origin) and
g = s (c - origin) the nearest centroid has the largest score y . g - |g|^2 / 2: one multiply-add, in float32 twice as
many at once. A row whose two best scores lie within the bound below is looked at again by differences.

The bound. s is a power of two, so that |y_j| <= 1 and nothing overflows. y, g and |g|^2 / 2 are rounded to u = 2^-24, and a
sum of d + 1 terms adds at most (d + 1) u of their absolute values (Higham, Accuracy and stability of numerical
algorithms, 2002, section 3.1), so a score is wrong by at most (d + 8) u (|y| |g| + |g|^2 / 2). The squared distances that
decide in the end are themselves wrong by (d + 4) 2^-53 (|y| + |g|)^2. Where the scores of two centroids differ by more
than both errors together, the differences put them in the same order.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.chunks import is_mapped

#: Rows per tile: the scores of a tile stay in the second-level cache.
TILE = 256

#: Contraction to fused multiply-adds changes roundings within the bound; sums are not reordered.
_FAST = {"contract", "nsz", "nnan"}

#: Data and centroids beyond these powers of two (of the rows' extent, and beside it) are left to differences.
_EXTENT, _FAR = 2.0**400, 2.0**30


class Screen(NamedTuple):
    """Rows in float32, feature by feature in tiles (t, d', 256), and each tile's longest row; no tiles: no screen."""

    scale: float
    tiles: Array
    longest: FloatArray


def screen_of(X: FloatArray, origin: FloatArray, variance: FloatArray) -> Screen:
    """Return the screen of rows (n, d) whose columns have these means and variances.

    There is none for rows in a mapped file, because it takes half their memory, nor for numbers that float32 cannot hold.
    """
    n, d = X.shape
    extent = float(np.sqrt(n * variance.max()))  # no number differs from its mean by more
    if is_mapped(X) or not 1 / _EXTENT < extent < _EXTENT:
        return Screen(1.0, np.empty((0, _padded(d), TILE), np.float32), np.empty(0))
    scale = 2.0 ** -np.ceil(np.log2(extent))
    shape = -(-n // TILE), _padded(d), TILE
    # Zeros where the last tile has no rows, and in a padded feature.
    tiles = (np.empty if shape[1] == d and n % TILE == 0 else np.zeros)(shape, np.float32)
    longest = np.zeros(shape[0])
    fill_tiles(X, origin, scale, tiles, longest)
    return Screen(scale, tiles, longest)


def _padded(d: int) -> int:
    """Return the number of features that `_scores` takes: 2 more than a multiple of 4, or a multiple of 4."""
    return d + d % 2 if d % 4 < 3 else d + 1


@njit(nogil=True, cache=True)
def fill_tiles(X: FloatArray, origin: FloatArray, scale: float, tiles: Array, longest: FloatArray) -> None:
    """tiles[t, j, i] = scale (X[256 t + i, j] - origin[j]); longest[t] = the length of the longest row or more.

    Sixteen rows at a time: read along the rows, written along the tile.
    """
    n, d = X.shape
    few, squares = np.zeros((16, d), np.float32), np.empty(16, np.float32)
    for start in range(0, n, 16):
        rows = min(16, n - start)
        tile, first = tiles[start // TILE], start % TILE
        for i in range(rows):
            x, y = X[start + i], few[i]
            for j in range(d):
                y[j] = (x[j] - origin[j]) * scale
        squares[:] = 0.0
        for j in range(d):  # all sixteen, a length that the compiler knows: tiles have room
            feature = tile[j]
            for i in range(16):
                feature[first + i] = few[i, j]
                squares[i] += few[i, j] * few[i, j]
        # Rounded up by more than squares, sum and root are wrong; rows that are not there repeat earlier ones.
        length = np.sqrt(squares.max()) * (1.0 + 1e-7 * (d + 10))
        longest[start // TILE] = max(longest[start // TILE], length)


@njit(nogil=True, cache=True, fastmath=_FAST)
def _scores(tile: Array, G: Array, half: Array, scores: Array) -> None:
    """scores[c, i] = G[c] . tile[:, i] - half[c], for centroids (k', d') with k' a multiple of 4.

    Four features of four centroids at a time: sixteen multiply-adds for eight loads.
    """
    k, d = G.shape
    first = 4 if d % 4 == 0 else 2
    for c in range(0, k, 4):
        s0, s1, s2, s3 = scores[c], scores[c + 1], scores[c + 2], scores[c + 3]
        h0, h1, h2, h3 = half[c], half[c + 1], half[c + 2], half[c + 3]
        a0, a1, b0, b1 = G[c, 0], G[c, 1], G[c + 1, 0], G[c + 1, 1]
        e0, e1, f0, f1 = G[c + 2, 0], G[c + 2, 1], G[c + 3, 0], G[c + 3, 1]
        y0, y1 = tile[0], tile[1]
        if first == 2:
            for i in range(TILE):
                u, v = y0[i], y1[i]
                s0[i] = a0 * u + a1 * v - h0
                s1[i] = b0 * u + b1 * v - h1
                s2[i] = e0 * u + e1 * v - h2
                s3[i] = f0 * u + f1 * v - h3
        else:
            a2, a3, b2, b3 = G[c, 2], G[c, 3], G[c + 1, 2], G[c + 1, 3]
            e2, e3, f2, f3 = G[c + 2, 2], G[c + 2, 3], G[c + 3, 2], G[c + 3, 3]
            y2, y3 = tile[2], tile[3]
            for i in range(TILE):
                u, v, w, x = y0[i], y1[i], y2[i], y3[i]
                s0[i] = a0 * u + a1 * v + a2 * w + a3 * x - h0
                s1[i] = b0 * u + b1 * v + b2 * w + b3 * x - h1
                s2[i] = e0 * u + e1 * v + e2 * w + e3 * x - h2
                s3[i] = f0 * u + f1 * v + f2 * w + f3 * x - h3
    for j in range(first, d, 4):
        y0, y1, y2, y3 = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        for c in range(0, k, 4):
            s0, s1, s2, s3 = scores[c], scores[c + 1], scores[c + 2], scores[c + 3]
            a0, a1, a2, a3 = G[c, j], G[c, j + 1], G[c, j + 2], G[c, j + 3]
            b0, b1, b2, b3 = G[c + 1, j], G[c + 1, j + 1], G[c + 1, j + 2], G[c + 1, j + 3]
            e0, e1, e2, e3 = G[c + 2, j], G[c + 2, j + 1], G[c + 2, j + 2], G[c + 2, j + 3]
            f0, f1, f2, f3 = G[c + 3, j], G[c + 3, j + 1], G[c + 3, j + 2], G[c + 3, j + 3]
            for i in range(TILE):
                u, v, w, x = y0[i], y1[i], y2[i], y3[i]
                s0[i] = s0[i] + a0 * u + a1 * v + a2 * w + a3 * x
                s1[i] = s1[i] + b0 * u + b1 * v + b2 * w + b3 * x
                s2[i] = s2[i] + e0 * u + e1 * v + e2 * w + e3 * x
                s3[i] = s3[i] + f0 * u + f1 * v + f2 * w + f3 * x


@njit(nogil=True, cache=True, inline="always")
def _insert(v, c, best, second, nearest):  # type: ignore[no-untyped-def]
    """Return (best, second, nearest) with score v of centroid c among them; selections, no branches."""
    lower = v if v < best else best  # noqa: FURB136 (one instruction; min and max look for NaN)
    second = lower if lower > second else second  # noqa: FURB136
    return (v if v > best else best), second, (c if v > best else nearest)  # noqa: FURB136


@njit(nogil=True, cache=True, fastmath=_FAST)
def _two_best(scores: Array, best: Array, second: Array, nearest: Array) -> None:
    """best[i] and second[i] are the largest scores of row i, nearest[i] whose the first is."""
    for i in range(TILE):
        best[i], second[i], nearest[i] = -np.inf, -np.inf, 0
    for c in range(0, scores.shape[0], 4):
        s0, s1, s2, s3 = scores[c], scores[c + 1], scores[c + 2], scores[c + 3]
        c0, c1, c2, c3 = np.int32(c), np.int32(c + 1), np.int32(c + 2), np.int32(c + 3)
        for i in range(TILE):
            b, s, l = best[i], second[i], nearest[i]
            b, s, l = _insert(s0[i], c0, b, s, l)
            b, s, l = _insert(s1[i], c1, b, s, l)
            b, s, l = _insert(s2[i], c2, b, s, l)
            b, s, l = _insert(s3[i], c3, b, s, l)
            best[i], second[i], nearest[i] = b, s, l


@njit(nogil=True, cache=True, fastmath=_FAST)
def _close_calls(best: Array, second: Array, bound: float) -> int:
    """Return in how many rows the two best scores differ by at most the bound."""
    count = np.int32(0)
    for i in range(TILE):
        count += np.int32(1) if best[i] - second[i] <= bound else np.int32(0)
    return int(count)


@njit(nogil=True, cache=True)
def _exchange(labels: IntArray, nearest: Array) -> int:
    """labels becomes nearest; return how many differed."""
    changed = 0
    for i in range(labels.shape[0]):
        changed += labels[i] != nearest[i]
        labels[i] = nearest[i]
    return changed


@njit(nogil=True, cache=True)
def _error(d: int, y: float, g: float) -> float:
    """Return how wrong the score of a row of length y and a centroid of length g can be; see the module."""
    return (d + 8) * 2.0**-24 * 1.05 * (y * g + g * g / 2) + (d + 4) * 2.0**-53 * (y + g) ** 2 + 1e-30


@njit(nogil=True, cache=True)
def _recheck(
    x: FloatArray,
    origin: FloatArray,
    scale: float,
    centroids: FloatArray,
    lengths: FloatArray,
    scores: Array,
    own: int,
) -> int:
    """Return the centroid nearest to x by differences, among those that the scores (k,) do not rule out."""
    d = x.shape[0]
    y = scale * np.sqrt(_squared(x, origin)) * (1.0 + 1e-9)
    bar = scores[own] - _error(d, y, lengths[own])
    least, nearest = np.inf, own
    for c in range(centroids.shape[0]):
        if scores[c] + _error(d, y, lengths[c]) >= bar:
            distance = _squared(x, centroids[c])
            if distance < least:
                least, nearest = distance, c
    return nearest


@njit(nogil=True, cache=True)
def _squared(x: FloatArray, point: FloatArray) -> float:
    """Return |x - point|^2, added feature after feature, as `kernels.nearest_centroids` does."""
    total = 0.0
    for j in range(x.shape[0]):
        difference = x[j] - point[j]
        total += difference * difference
    return total


@njit(nogil=True, cache=True)
def screened_labels(
    X: FloatArray,
    origin: FloatArray,
    scale: float,
    tiles: Array,
    longest: FloatArray,
    centroids: FloatArray,
    labels: IntArray,
) -> int:
    """labels[i] = the nearest centroid, lowest index on ties, as by differences; return how many changed.

    Returns -1, and changes nothing, where a centroid is too far from the rows for float32.
    """
    n, d = X.shape
    k = centroids.shape[0]
    padded = k + -k % 4
    G, half = np.zeros((padded, tiles.shape[1]), np.float32), np.full(padded, 3e38, np.float32)
    lengths = np.empty(k)
    for c in range(k):
        total = 0.0
        for j in range(d):
            g = (centroids[c, j] - origin[j]) * scale
            G[c, j] = g
            total += g * g
        lengths[c], half[c] = np.sqrt(total), total / 2
    farthest = lengths.max()
    if not farthest < _FAR:
        return -1
    scores = np.empty((padded, TILE), np.float32)
    best, second, nearest = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    changed = 0
    for t in range(tiles.shape[0]):
        _scores(tiles[t], G, half, scores)
        _two_best(scores, best, second, nearest)
        start = t * TILE
        rows = min(TILE, n - start)
        bound = np.float32(2.0 * _error(d, longest[t], farthest))
        if _close_calls(best, second, bound) > 0:
            for i in range(rows):
                if best[i] - second[i] <= bound:
                    nearest[i] = _recheck(X[start + i], origin, scale, centroids, lengths, scores[:, i], nearest[i])
        changed += _exchange(labels[start : start + rows], nearest)
    return changed
