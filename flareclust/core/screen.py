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

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.chunks import is_mapped
from flareclust.core.runtime import imported_later, kernel
from flareclust.core.threads import ALONE, Team

#: Rows of a tile, and centroids of a group.
TILE, GROUP = 64, 5

two_best = imported_later("flareclust.core.two_best", "two_best")

_FAST = {"contract", "nsz", "nnan"}

#: Data and centroids beyond these powers of two (of the rows' extent, and beside it) are left to differences.
_EXTENT, _FAR = 2.0**400, 2.0**30

#: Rows that are seen once need so many centroids, and so many differences, for a screen to take less time than these.
_ENOUGH, _MUCH = 8, 200_000


class Screen(NamedTuple):
    """Rows in float32, feature by feature in tiles (t, d, 64), and each tile's longest row; no tiles: no screen."""

    scale: float
    tiles: Array
    longest: FloatArray


def screen_of(X: FloatArray, origin: FloatArray, variance: FloatArray, own: Team = ALONE) -> Screen:
    """Return the screen of rows (n, d) whose columns have these means and variances.

    There is none for rows in a mapped file, because it takes half their memory, nor for numbers that float32 cannot hold.
    """
    n, d = X.shape
    extent = float(np.sqrt(n * variance.max()))  # no number differs from its mean by more
    if is_mapped(X) or not 1 / _EXTENT < extent < _EXTENT:
        return Screen(1.0, np.empty((0, d, TILE), np.float32), np.empty(0))
    scale, tiles = 2.0 ** -np.ceil(np.log2(extent)), np.empty((-(-n // TILE), d, TILE), np.float32)
    tiles[n // TILE :] = 0.0  # where the last tile has no rows
    longest = np.zeros(len(tiles))
    own.each(lambda part: _fill_tiles(X[part], origin, scale, *_of_rows(part, tiles, longest)), own.parts(n, TILE))
    return Screen(scale, tiles, longest)


def part_of_screen(screen: Screen, part: slice) -> Screen:
    """Return the screen of some rows; they begin with a tile."""
    return Screen(screen.scale, *_of_rows(part, screen.tiles, screen.longest))


def _of_rows(part: slice, tiles: Array, longest: FloatArray) -> tuple[Array, FloatArray]:
    own = slice(part.start // TILE, -(-part.stop // TILE))
    return tiles[own], longest[own]


@kernel()
def _fill_tiles(X: FloatArray, origin: FloatArray, scale: float, tiles: Array, longest: FloatArray) -> None:
    """tiles[t, j, i] = scale (X[64 t + i, j] - origin[j]); longest[t] = the length of the longest row or more.

    Sixteen rows at a time, a length that the compiler knows.
    """
    n, d = X.shape
    squares = np.empty(16, np.float32)
    for start in range(0, n, 16):
        rows, tile, first = X[start : start + 16], tiles[start // TILE], start % TILE
        squares[:] = 0.0
        if rows.shape[0] == 16:
            for j in range(d):
                middle, feature = origin[j], tile[j]
                for i in range(16):
                    y = np.float32((rows[i, j] - middle) * scale)
                    feature[first + i] = y
                    squares[i] += y * y
        else:
            for j in range(d):
                for i in range(rows.shape[0]):
                    y = np.float32((rows[i, j] - origin[j]) * scale)
                    tile[j, first + i] = y
                    squares[i] += y * y
        most = np.float32(0.0)
        for i in range(16):
            most = max(most, squares[i])
        # Rounded up by more than squares, sum and root are wrong.
        length = np.sqrt(most) * (1.0 + 1e-7 * (d + 10))
        longest[start // TILE] = max(longest[start // TILE], length)


@kernel(fastmath=_FAST)
def _close_calls(best: Array, second: Array, bound: float) -> int:
    """Return in how many rows the two best scores differ by at most the bound."""
    count = np.int32(0)
    for i in range(TILE):
        count += np.int32(1) if best[i] - second[i] <= bound else np.int32(0)
    return int(count)


@kernel()
def _error(d: int, y: float, g: float) -> float:
    """Return how wrong the score of a row of length y and a centroid of length g can be; see the module."""
    return (d + 8) * 2.0**-24 * 1.05 * (y * g + g * g / 2) + (d + 4) * 2.0**-53 * (y + g) ** 2 + 1e-30


@kernel()
def screened_labels(X: FloatArray, origin: FloatArray, screen: Screen, centroids: FloatArray, labels: IntArray) -> int:
    """labels[i] = the nearest centroid, lowest index on ties, as by differences; return how many changed.

    Returns -1, and changes nothing, where there is no screen, or a centroid is too far from the rows for float32.
    """
    scale, tiles, longest = screen
    if tiles.shape[0] == 0:
        return -1
    groups, half, columns, farthest = _groups_of(centroids, origin, scale)
    if not farthest < _FAR:
        return -1
    best, second, nearest = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    changed = 0
    for t in range(tiles.shape[0]):
        rows = X[t * TILE : (t + 1) * TILE]
        two_best(tiles[t], groups, half, best, second, nearest)
        bound = np.float32(2.0 * _error(X.shape[1], longest[t], farthest))
        if _close_calls(best, second, bound) > 0:
            _look_again(rows, columns, best, second, bound, nearest)
        own = labels[t * TILE : (t + 1) * TILE]
        for i in range(own.shape[0]):
            changed += own[i] != nearest[i]
            own[i] = nearest[i]
    return changed


def once_about(X: FloatArray, centroids: FloatArray) -> tuple[float, FloatArray]:
    """Return scale and origin for `labels_once`; a scale of 0 where differences take less time, or float32 cannot hold them."""
    if len(centroids) < _ENOUGH or X.size * len(centroids) < _MUCH:
        return 0.0, centroids[0]
    origin = centroids.mean(axis=0)
    extent = float(np.abs(centroids - origin).max())
    return (float(2.0 ** -np.ceil(np.log2(extent))) if 1 / _EXTENT < extent < _EXTENT else 0.0), origin


@kernel()
def labels_once(X: FloatArray, origin: FloatArray, scale: float, centroids: FloatArray, labels: IntArray) -> None:
    """labels[i] = the nearest centroid, as `screened_labels` does, from tiles made on the way: for rows that are seen once.

    No coordinate of a centroid is farther than 1 / scale from the origin. Rows may be anywhere.
    """
    n, d = X.shape
    groups, half, columns, farthest = _groups_of(centroids, origin, scale)
    best, second, nearest = np.empty(TILE, np.float32), np.empty(TILE, np.float32), np.empty(TILE, np.int32)
    tile, longest = np.empty((1, d, TILE), np.float32), np.empty(1)
    tile[:] = 0.0
    for start in range(0, n, TILE):
        rows = X[start : start + TILE]
        longest[0] = 0.0
        _fill_tiles(rows, origin, scale, tile, longest)
        if not longest[0] < _FAR:  # too far from the centroids for float32
            best[:], second[:], bound = 0.0, 0.0, np.float32(0.0)
        else:
            two_best(tile[0], groups, half, best, second, nearest)
            bound = np.float32(2.0 * _error(d, longest[0], farthest))
        if _close_calls(best, second, bound) > 0:
            _look_again(rows, columns, best, second, bound, nearest)
        for i in range(rows.shape[0]):  # in loops: numba takes two seconds to compile assignments of arrays
            labels[start + i] = nearest[i]


@kernel()
def _groups_of(centroids: FloatArray, origin: FloatArray, scale: float) -> tuple[Array, Array, FloatArray, float]:
    """Return g = scale (centroid - origin) in groups, for `two_best`, |g|^2 / 2, the centroids' columns, and the largest |g|."""
    k, d = centroids.shape
    n_groups = (k + GROUP - 1) // GROUP
    groups, half = np.empty((n_groups, d, GROUP), np.float32), np.empty(n_groups * GROUP, np.float32)
    columns, farthest = np.empty((d, k)), 0.0
    groups[:], half[:] = 0.0, 3e38
    for c in range(k):
        total = 0.0
        for j in range(d):
            g = (centroids[c, j] - origin[j]) * scale
            columns[j, c], groups[c // GROUP, j, c % GROUP] = centroids[c, j], g
            total += g * g
        farthest, half[c] = max(farthest, np.sqrt(total)), total / 2
    return groups, half, columns, farthest


@kernel()
def _look_again(
    rows: FloatArray, columns: FloatArray, best: Array, second: Array, bound: float, nearest: Array
) -> None:
    """nearest[i] = the nearest of the centroids, columns (d, k), where the two best scores differ by no more than the bound.

    Differences are added up as `kernels.nearest_centroids` does.
    """
    distances = np.empty(columns.shape[1])
    for i in range(rows.shape[0]):
        if best[i] - second[i] <= bound:
            distances[:] = 0.0
            for j in range(columns.shape[0]):
                coordinate, column = rows[i, j], columns[j]
                for c in range(column.shape[0]):
                    difference = coordinate - column[c]
                    distances[c] += difference * difference
            least = 0
            for c in range(distances.shape[0]):
                least = c if distances[c] < distances[least] else least
            nearest[i] = least
