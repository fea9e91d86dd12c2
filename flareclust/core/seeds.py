"""Choosing rows to start from: greedy k-means++ and farthest-first traversal."""

from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError, stop_if
from flareclust._foundation.typing import AbortCheck, Array, FloatArray, IntArray, never_abort
from flareclust.core.arrays import as_count, as_matrix, as_rows, as_weights
from flareclust.core.chunks import is_mapped
from flareclust.core.runtime import kernel
from flareclust.core.threads import Team, team

#: Coordinate differences per kernel call, some hundredths of a second of work; `aborted` is asked between calls.
_WORK_PER_CALL = 100_000_000


class Uniforms(Protocol):
    """A source of uniform numbers in [0, 1), such as numpy's Generator or RandomState."""

    def random(self, size: int, /) -> Any:
        """Return `size` numbers."""


def kmeans_plusplus(
    X: ArrayLike,
    k: int,
    rng: Uniforms,
    *,
    weights: ArrayLike | None = None,
    n_candidates: int | None = None,
    aborted: AbortCheck = never_abort,
) -> tuple[FloatArray, IntArray]:
    """Choose k rows of X as seeds by greedy k-means++.

    The first seed is drawn in proportion to the weights. Each further one is the best of `n_candidates` rows, drawn
    in proportion to weight times squared distance to the closest seed: the one that leaves the smallest sum of these.
    `numpy.random.RandomState(s)` gives the rows that scikit-learn's function of this name chooses with
    `random_state=s` in float64 from rows about their mean, unless rounding decides. Far from 0, as 1e8 beside
    distances of 1, scikit-learn chooses others: it expands squared distances to |x|^2 - 2xy + |y|^2, which loses their
    digits; here differences are squared, and a shift of all rows changes nothing.

    Arthur, Vassilvitskii (2007), k-means++: the advantages of careful seeding, section 2.2; greedy: section 5.

    Args:
        X: rows (n, d).
        k: number of seeds, 1 <= k <= n.
        rng: draws 1 uniform number, then `n_candidates` for each further seed, for several seeds at a time:
            after fewer than k seeds the generator may have drawn more than they took.
        weights: (n,) not negative, by default 1 each. A row of weight 0 is never a seed.
        n_candidates: draws for each seed; by default 2 + floor(log k).
        aborted: asked before each seed but the first, or before several that take some hundredths of a second together.

    Returns:
        centroids (k, d) and the indices (k,) of their rows. Fewer than k when every row of positive weight coincides
        with a seed already, because no further row is then distinct.

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    X = as_rows(X)
    k = as_count(k, "k", len(X))
    n_candidates = None if n_candidates is None else as_count(n_candidates, "n_candidates")
    return seeds_of(X, k, rng, as_weights(weights, len(X)), n_candidates, aborted)


def seeds_of(
    X: FloatArray, k: int, rng: Uniforms, mass: FloatArray, n_candidates: int | None, aborted: AbortCheck
) -> tuple[FloatArray, IntArray]:
    """Compute what `kmeans_plusplus` promises from checked input; `mass` (n,) are the weights."""
    n = len(X)
    n_candidates = 2 + int(np.log(k)) if n_candidates is None else n_candidates
    work, chosen = X.size * (1 + n_candidates), np.empty(k, np.int64)
    chosen[0] = row_at(mass, mass.sum(), rng.random(1)[0])
    closest, tiles = np.full(n, np.inf), _tiles(X)
    sums = np.empty((1 + n_candidates, -(-n // TILE)))
    with team(work) as own:
        _seeds_with(own, X, mass, tiles, _points(X, chosen[:1]), closest, sums)
        ends, found = np.cumsum(sums[0]), 1
        per_call, choose = max(1, _WORK_PER_CALL // work), more_seeds if own.threads == 1 else partial(_more_seeds, own)
        while found < k:
            stop_if(aborted, f"while choosing seed {found + 1} of {k}")
            wanted = min(k, found + per_call)
            uniforms = np.asarray(rng.random((wanted - found) * n_candidates)).reshape(-1, n_candidates)
            found = choose(X, mass, tiles, uniforms, closest, sums, ends, chosen, found)
            if found < wanted:
                return _points(X, chosen[:found]), chosen[:found].copy()
    return _points(X, chosen), chosen


def _more_seeds(
    own: Team,
    X: FloatArray,
    mass: FloatArray,
    tiles: Array,
    uniforms: FloatArray,
    closest: FloatArray,
    sums: FloatArray,
    ends: FloatArray,
    chosen: IntArray,
    found: int,
) -> int:
    """Do what `more_seeds` does, bit for bit, in threads."""
    for line in uniforms:
        if ends[-1] == 0.0:
            break
        rows, points = _candidates_of(X, mass, X[chosen[found - 1]], closest, ends, line)
        _seeds_with(own, X, mass, tiles, points, closest, sums)
        best = sums[1:].cumsum(axis=1)[:, -1].argmin()
        chosen[found], ends[:] = rows[best], sums[1 + best].cumsum()
        found += 1
    return found


def _seeds_with(
    own: Team, X: FloatArray, mass: FloatArray, tiles: Array, points: FloatArray, closest: FloatArray, sums: FloatArray
) -> None:
    def try_in(part: slice) -> None:
        within = slice(part.start // TILE, -(-part.stop // TILE))
        found = np.empty((len(points), within.stop - within.start))
        seeds_with(X[part], mass[part], tiles[within], points, closest[part], found)
        sums[: len(points), within] = found

    own.each(try_in, own.parts(len(X), TILE))


def farthest_first(points: ArrayLike, k: int, start: ArrayLike) -> IntArray:
    """Choose k points, each the farthest from those chosen before it, beginning with `start`.

    The farthest point is the one whose distance to its closest chosen point is largest; ties go to the lowest index.
    Time O(N k d), memory O(N) beside the points.

    Gonzalez (1985), Clustering to minimize the maximum intercluster distance; Dennis, Li, Smith (2021), Heterogeneity
    for the win: one-shot federated clustering, Algorithm 2, steps 2-6, where `start` is one device's centroids.

    Args:
        points: (N, d).
        k: number of points to choose, at least the length of `start`, at most N.
        start: indices of the points chosen at the outset, at least one and each once.

    Returns:
        Indices: those of `start`, then the farthest points in the order of choice. Fewer than k when every point
        coincides with a chosen one.

    Raises UserError for input that does not fit the above.
    """
    points = as_matrix(points, "points")
    n = len(points)
    k, first = as_count(k, "k", n), np.asarray(start)
    if first.ndim != 1 or first.dtype.kind not in "iu" or not 1 <= len(first) <= k:
        raise UserError(f"start must be a list of 1 to k={k} indices, got shape {first.shape} of {first.dtype}")
    if first.min() < 0 or first.max() >= n or len(np.unique(first)) < len(first):
        raise UserError(f"start must name different points in 0..{n - 1}, got {first.tolist()}")
    chosen = np.empty(k, np.int64)
    chosen[: len(first)] = first
    if points.shape[1] <= FEW and not is_mapped(points):
        found = _farthest_of_tiles(_tiles(points), n, chosen, len(first))
    else:
        found = _farthest_rows(points, chosen, len(first))
    return chosen[:found].copy()


def _points(X: Array, rows: IntArray) -> FloatArray:
    """Return rows of float32 or float64 as points, which kernels take in float64."""
    return X[rows].astype(np.float64, copy=False)


def _tiles(X: FloatArray) -> Array:
    """Return a copy of rows (n, d) by columns for `seeds_with`; without tiles where it does not pay or may not fit."""
    n, d = X.shape
    copied = d <= TILED and not is_mapped(X)
    tiles = np.zeros((-(-n // TILE) if copied else 0, min(d, TILED), TILE))
    _seed_tiles(X, 0, tiles)
    return tiles


# Numba kernels that choose rows to start from: distances to several candidates in one pass over the rows.
#
# Every row is read once for the latest seed and all candidates. Up to `TILED` columns rows lie in tiles, feature by feature,
# so that rows are independent lanes; beyond, each row is compared with two points at a time. Sums may be added in any order,
# which differs between processors only in their last bits, and is 0 exactly for equal rows.

#: Rows per tile, and per partial sum of the weights that rows are drawn by.
TILE = 256

#: Most columns for which tiles are faster; and for which all distances are, where the triangle inequality rules out most.
TILED, FEW = 16, 4

#: The triangle inequality has 4: a row is no closer to a point that is at least twice as far from its closest one as the row is.
#: Rounding makes squared distances wrong by less than 1e-9 of them up to a million columns, but for subnormal numbers.
TWICE_SQUARED, NORMAL = 4 * (1 + 1e-9), 1e-290

_FAST = {"contract", "nsz", "nnan", "reassoc"}


@kernel()
def row_at(mass: FloatArray, total: float, drawn: float) -> int:
    """Return the row that a number in [0, 1) draws in proportion to `mass`, which adds up to `total`, in NumPy's steps.

    These are those of `choice(n, p=mass / total)`, of a Generator or a RandomState.
    """
    if not 0.0 < total < np.inf:
        return 0
    last = 0.0  # in loops: arrays of all rows would take most of the memory that a job does
    for i in range(len(mass)):
        last += mass[i] / total
    sum_so_far = 0.0
    for i in range(len(mass)):
        sum_so_far += mass[i] / total
        if sum_so_far / last > drawn:
            return i
    return len(mass)


@kernel()
def _seed_tiles(X: FloatArray, first: int, tiles: Array) -> None:
    """tiles[t, j, i] = X[first + 256 t + i, j], as far as there are rows."""
    for start in range(first, min(X.shape[0], first + TILE * tiles.shape[0])):
        t, i = (start - first) // TILE, (start - first) % TILE
        for j in range(X.shape[1]):
            tiles[t, j, i] = X[start, j]


@kernel()
def _tile_distances(tile: Array, point: FloatArray, out: FloatArray) -> None:
    """out[i] = |tile[:, i] - point|^2, feature after feature, two at a time."""
    d = tile.shape[0]
    first, p = tile[0], point[0]
    if d % 2 == 1:
        for i in range(TILE):
            out[i] = (first[i] - p) * (first[i] - p)
    else:
        second, q = tile[1], point[1]
        for i in range(TILE):
            a, b = first[i] - p, second[i] - q
            out[i] = a * a + b * b
    for j in range(2 - d % 2, d, 2):
        u, v, r, s = tile[j], tile[j + 1], point[j], point[j + 1]
        for i in range(TILE):
            a, b = u[i] - r, v[i] - s
            out[i] = out[i] + a * a + b * b


@kernel(fastmath=_FAST)
def squared_distance(x: FloatArray, point: FloatArray) -> float:
    """Return |x - point|^2, but for its last bits."""
    total = 0.0
    for j in range(x.shape[0]):
        total += (x[j] - point[j]) * (x[j] - point[j])
    return total


@kernel(fastmath=_FAST)
def _two_distances(x: FloatArray, p: FloatArray, q: FloatArray) -> tuple[float, float]:
    """Return |x - p|^2 and |x - q|^2: x is read once."""
    a, b = 0.0, 0.0
    for j in range(x.shape[0]):
        a += (x[j] - p[j]) * (x[j] - p[j])
        b += (x[j] - q[j]) * (x[j] - q[j])
    return a, b


@kernel(fastmath=_FAST)
def _weighted_sum(weights: FloatArray, values: FloatArray, closest: FloatArray) -> float:
    """Return the sum of weights[i] min(closest[i], values[i])."""
    total = 0.0
    for i in range(closest.shape[0]):
        least = values[i] if values[i] < closest[i] else closest[i]  # noqa: FURB136
        total += weights[i] * least
    return total


@kernel()
def seeds_with(
    X: FloatArray, weights: FloatArray, tiles: Array, points: FloatArray, closest: FloatArray, sums: FloatArray
) -> None:
    """Take points[0] as a seed: closest[i] becomes min(closest[i], |X_i - points_0|^2). Try the others.

    sums[p, t] = sum over tile t of weights[i] min(closest[i], |X_i - points_p|^2), for the seed and the candidates. Tiles
    are made here where `tiles` has none.
    """
    rows, d = X.shape
    n = points.shape[0]
    own = np.empty((1, min(d, TILED), TILE))  # lanes beyond the rows are looked at by nobody
    distances = np.empty((n, TILE))
    for start in range(0, rows, TILE):
        t, size = start // TILE, min(TILE, rows - start)
        if d > TILED:
            for i in range(size):
                x = X[start + i]
                for p in range(0, n - 1, 2):
                    distances[p, i], distances[p + 1, i] = _two_distances(x, points[p], points[p + 1])
                if n % 2 == 1:
                    distances[n - 1, i] = squared_distance(x, points[n - 1])
        elif tiles.shape[0] > 0:
            for p in range(n):
                _tile_distances(tiles[t], points[p], distances[p])
        else:
            _seed_tiles(X[: start + size], start, own)
            for p in range(n):
                _tile_distances(own[0], points[p], distances[p])
        least, mass = closest[start : start + size], weights[start : start + size]
        seed = distances[0]
        for i in range(size):
            least[i] = min(least[i], seed[i])
        for p in range(n):
            sums[p, t] = _weighted_sum(mass, distances[p], least)


@kernel()
def _farthest_rows(X: FloatArray, chosen: IntArray, given: int) -> int:
    """Fill `chosen` from its entry `given` on with the row farthest from those before; return how many rows are different.

    A row is not read where the triangle inequality tells that a new one is no closer to it than its closest one so far.
    """
    n, k = X.shape[0], len(chosen)
    closest, owner = np.full(n, np.inf), np.zeros(n, np.int32)
    unread, farthest, most = np.full(k, -1.0), 0, np.inf
    for c in range(k):
        if c >= given:
            if most == 0.0:
                return c
            chosen[c] = farthest
        point = X[chosen[c]].copy()
        for s in range(c):
            apart = squared_distance(X[chosen[s]], point)
            unread[s] = apart / TWICE_SQUARED if NORMAL < apart < np.inf else -1.0
        most = -1.0
        for i in range(n):
            least = closest[i]
            if least > unread[owner[i]]:
                distance = squared_distance(X[i], point)
                if distance < least:
                    least, closest[i], owner[i] = distance, distance, c
            if least > most:
                farthest, most = i, least
    return k


@kernel()
def _farthest_of_tiles(tiles: Array, n: int, chosen: IntArray, given: int) -> int:
    """Do what `_farthest_rows` does, for n rows in tiles, without the triangle inequality: a jump takes longer than a distance.

    Lanes have no order in which the compiler could keep the largest of floating-point numbers; the bits of those that are not
    negative are integers in the same order.
    """
    closest, distances = np.full((tiles.shape[0], TILE), np.inf), np.empty(TILE)
    closest[-1, (n - 1) % TILE + 1 :] = 0.0
    bits, most, at = closest.view(np.int64), np.int64(1), 0
    for c in range(len(chosen)):
        if c >= given:
            if most == 0:
                return c
            chosen[c] = at * TILE + (bits[at] == most).argmax()
        point, most = tiles[chosen[c] // TILE, :, chosen[c] % TILE].copy(), np.int64(-1)
        for t in range(tiles.shape[0]):
            _tile_distances(tiles[t], point, distances)
            least, own, largest = closest[t], bits[t], np.int64(0)
            for i in range(TILE):
                least[i] = min(least[i], distances[i])
            for i in range(TILE):
                largest = max(largest, own[i])
            if largest > most:
                most, at = largest, t
    return len(chosen)


@kernel()
def rows_drawn(
    X: FloatArray,
    weights: FloatArray,
    seed: FloatArray,
    closest: FloatArray,
    ends: FloatArray,
    at: FloatArray,
    tiles: IntArray,
    rows: IntArray,
) -> None:
    """rows[t] = the first row up to which weights[i] min(closest[i], |X_i - seed|^2) add up to more than at[t].

    `ends` are the sums up to the end of each tile, and tiles[t] is the one to look in. Where rounding leaves no such row,
    it is the last of the tile that adds anything.
    """
    for t in range(at.shape[0]):
        tile = tiles[t]
        total = ends[tile - 1] if tile > 0 else 0.0
        for i in range(tile * TILE, min((tile + 1) * TILE, X.shape[0])):
            added = weights[i] * min(closest[i], squared_distance(X[i], seed))
            total += added
            if added > 0.0:
                rows[t] = i
                if total > at[t]:
                    break


@kernel()
def _candidates_of(
    X: FloatArray, weights: FloatArray, seed: FloatArray, closest: FloatArray, ends: FloatArray, uniforms: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the rows (c,) that numbers in [0, 1) draw after the latest seed, and points (1 + c, d): the seed and these rows."""
    candidates, d = uniforms.shape[0], X.shape[1]
    at, into, rows = np.empty(candidates), np.empty(candidates, np.int64), np.empty(candidates, np.int64)
    points = np.empty((1 + candidates, d))
    for j in range(d):  # in loops: numba takes two seconds to compile assignments of arrays
        points[0, j] = seed[j]
    for t in range(candidates):
        at[t] = uniforms[t] * ends[-1]
        # Tiles that add nothing are skipped; the total keeps a number rounded up to it in range.
        into[t] = 0  # np.searchsorted takes half a second to compile
        while ends[into[t]] <= at[t] and ends[into[t]] < ends[-1]:
            into[t] += 1
    rows_drawn(X, weights, points[0], closest, ends, at, into, rows)
    for t in range(candidates):
        for j in range(d):
            points[1 + t, j] = X[rows[t], j]
    return rows, points


@kernel()
def more_seeds(
    X: FloatArray,
    weights: FloatArray,
    tiles: Array,
    uniforms: FloatArray,
    closest: FloatArray,
    sums: FloatArray,
    ends: FloatArray,
    chosen: IntArray,
    found: int,
) -> int:
    """Choose a seed for each line of `uniforms`, after the `found` rows in `chosen`; return how many there are then.

    Fewer than that where every row of positive weight coincides with a seed. `sums` has room for the seed and the candidates
    of each tile; `ends` are the sums of weights times squared distances to the closest seed, up to the end of each tile.
    """
    for line in range(uniforms.shape[0]):
        if ends[-1] == 0.0:
            break
        rows, points = _candidates_of(X, weights, X[chosen[found - 1]], closest, ends, uniforms[line])
        seeds_with(X, weights, tiles, points, closest, sums)
        best, least = 0, np.inf
        for candidate in range(rows.shape[0]):
            total = 0.0
            for t in range(ends.shape[0]):
                total += sums[1 + candidate, t]
            if total < least:
                best, least = candidate, total
        chosen[found] = rows[best]
        total = 0.0
        for t in range(ends.shape[0]):
            total += sums[1 + best, t]
            ends[t] = total
        found += 1
    return found
