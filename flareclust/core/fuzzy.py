"""Fuzzy c-means on one site's rows: memberships, and the iteration that moves the centroids.

Bezdek, Ehrlich, Full (1984), FCM: the fuzzy c-means clustering algorithm, Computers & Geosciences 10, 191-203.

Rows are taken in blocks that stay in the cache, cluster by cluster, so that rows are independent lanes. Kernels compute
what NumPy would write to memory again and again; NumPy takes powers, eight at a time, and sums as products of matrices. The
kernels take the form of array of `flareclust.core.kernels`. They use nothing of that module, since numba's cache of a kernel
does not notice a change in another file.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError, stop_if
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, never_abort
from flareclust.core.arrays import as_centroids, as_count, as_matrix
from flareclust.core.rounds import check_tol
from flareclust.core.runtime import kernel, one_thread

#: Coordinate differences per kernel call, some tenths of a second of work; `aborted` is asked between calls.
_WORK_PER_CALL = 100_000_000

#: Rows whose distances are computed together, and numbers in a temporary array, a quarter of a megabyte: both stay in caches.
_TILE, _BLOCK = 128, 1 << 15

#: Squared distances between these keep all their digits; a row with any beyond takes plain distances, scaled.
_LEAST_SQUARE, _LARGEST_SQUARE = 1e-280, 1e300

#: Centroids whose rows weigh less than this together stay where they are: so little has lost its digits.
_NO_MASS = 1e-200


class FuzzyClustering(NamedTuple):
    """A fuzzy clustering of n rows into k clusters.

    Attributes:
        centroids: (k, d).
        memberships: u (n, k), which lies in memory by cluster, that the centroids are the weighted means of, with weights u^m.
        sum_u: sum of u over the rows (k,).
        sum_um: sum of u^m over the rows (k,); 0 for a centroid that stayed where it was, as no row weighs anything in it.
        n_iter: iterations run.
    """

    centroids: FloatArray
    memberships: FloatArray
    sum_u: FloatArray
    sum_um: FloatArray
    n_iter: int


def memberships(X: ArrayLike, centroids: ArrayLike, fuzzifier: float = 2.0) -> FloatArray:
    """Return how much each row belongs to each cluster, u (n, k); every row adds up to 1.

    u_ic = 1 / sum_b (|x_i - c_c| / |x_i - c_b|)^(2 / (m - 1)) with the fuzzifier m. A row that coincides with centroids
    belongs to these alone, in equal parts. The nearest centroid has the largest membership. Distances may be as large
    or as small as numbers can be.

    Args:
        X: rows (n, d); n may be 0.
        centroids: (k, d), k >= 1, e.g. `Result.centroids`.
        fuzzifier: m > 1. Near 1 the memberships are 0 or 1, and large values make them equal.

    Raises:
        UserError: for input that does not fit the above.

    Example:
        >>> memberships([[0.0], [1.0], [4.0]], [[0.0], [4.0]])
        array([[1. , 0. ],
               [0.9, 0.1],
               [0. , 1. ]])
    """
    X = as_matrix(X)
    centroids = as_centroids(centroids, X.shape[1])
    found = np.zeros((len(centroids), len(X)))
    _update(X, slice(0, len(X)), centroids, _check_fuzzifier(fuzzifier), found)
    return np.ascontiguousarray(found.T)


def fuzzy_cmeans(
    X: ArrayLike,
    start: ArrayLike,
    fuzzifier: float = 2.0,
    *,
    max_iter: int = 30,
    tol: float = 1e-3,
    aborted: AbortCheck = never_abort,
) -> FuzzyClustering:
    """Run fuzzy c-means from the centroids `start`: memberships of the rows, then weighted means, and again.

    It stops after the iteration in which no membership changed by more than `tol`, or after `max_iter`. A centroid in
    which no row weighs anything (all of them coincide with others, or are too far for a fuzzifier near 1) stays where it
    is. Memory beside the rows: n * k numbers.

    Args:
        X: rows (n, d), n >= 1.
        start: (k, d).
        fuzzifier: m > 1.
        max_iter: most iterations, at least 1.
        tol: of memberships, so without unit; at least 0.
        aborted: asked before every kernel call, some tenths of a second of work.

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    X = as_matrix(X, empty=False)
    centroids = as_centroids(start, X.shape[1]).copy()
    m, max_iter, tol = _check_fuzzifier(fuzzifier), as_count(max_iter, "max_iter"), check_tol(tol)
    k, d = centroids.shape
    step = max(1, _WORK_PER_CALL // (k * d * _block(k))) * _block(k)
    origin = X.mean(axis=0)  # sums about a point amid the rows keep their precision
    u = np.full((k, len(X)), -1.0)  # so the first iteration changes every membership
    with one_thread():  # for all iterations: to limit the threads takes longer than an iteration on some hundred rows
        for n_iter in range(1, max_iter + 1):
            sums, change = _Sums(k, origin), 0.0
            for part in (slice(start, start + step) for start in range(0, len(X), step)):
                stop_if(aborted, f"in iteration {n_iter} of fuzzy c-means")
                change = max(change, _update(X, part, centroids, m, u, sums))
            sums.um[sums.um < _NO_MASS] = 0.0
            moving = sums.um > 0
            centroids[moving] = origin + sums.moments[moving] / sums.um[moving, None]
            if change <= tol:
                break
    return FuzzyClustering(centroids, u.T, sums.u, sums.um, n_iter)


def _check_fuzzifier(fuzzifier: object) -> float:
    """Return the fuzzifier as a float, or raise UserError unless it is a finite number > 1."""
    number = isinstance(fuzzifier, int | float | np.integer | np.floating) and not isinstance(fuzzifier, bool)
    if not number or not 1 < fuzzifier < math.inf:  # type: ignore[operator]
        raise UserError(
            f"fuzzifier must be a finite number greater than 1, got {fuzzifier!r}; 2 is usual, and 1 would be k-means"
        )
    return float(fuzzifier)  # type: ignore[arg-type]


def _block(k: int) -> int:
    """Return the number of rows whose numbers are computed together, k each."""
    return max(_TILE, _BLOCK // k // _TILE * _TILE)


def _update(
    X: FloatArray, part: slice, centroids: FloatArray, fuzzifier: float, u: FloatArray, sums: "_Sums | None" = None
) -> float:
    """u[c, i] = membership of row i of a part in cluster c; return the largest change of one. Add the rows to sums, if any.

    With r = the least squared distance over that to c, u = r^(1 / (m - 1)) / T, where T is such that a row adds up to 1. So
    u^m = r u T^(1 - m) takes no second power of each number.
    """
    power, block, change = 1 / (fuzzifier - 1), _block(len(u)), 0.0
    weights, shares = np.ones((2, len(u), block))
    far = np.zeros(block, np.bool_)
    for start in range(part.start, min(part.stop, len(X)), block):
        rows = X[start : min(start + block, part.stop)]
        n = len(rows)  # fewer than a block at the end, where kernels get the whole block all the same
        extreme = np.flatnonzero(far[:n]) if _nearness(rows, centroids, weights, far) else ()
        np.power(weights[:, :n], power, out=shares[:, :n])
        if len(extreme):
            shares[:, extreme] = weights[:, extreme] ** (2 * power)
        total = shares[:, :n].sum(axis=0)
        change = max(change, _exchange(shares, weights, total, total ** (1 - fuzzifier), u, start, n))
        if sums is not None:
            if len(extreme):
                weights[:, extreme] = shares[:, extreme] ** fuzzifier
            sums.add(rows, shares[:, :n], weights[:, :n])
    return change


class _Sums:
    """Sums over the rows: u^m (X_i - origin) by cluster (k, d), u and u^m (k,)."""

    def __init__(self, k: int, origin: FloatArray) -> None:
        self.origin, self.moments, self.u, self.um = origin, np.zeros((k, len(origin))), np.zeros(k), np.zeros(k)

    def add(self, rows: FloatArray, u: FloatArray, weights: FloatArray) -> None:
        """Add the rows (n, d) of a block with their u and u^m (k, n)."""
        ones = np.ones(len(rows))
        self.moments += weights @ (rows - self.origin)
        self.u += u @ ones
        self.um += weights @ ones


@kernel()
def _exchange(
    shares: FloatArray, ratios: FloatArray, total: FloatArray, factor: FloatArray, u: FloatArray, start: int, rows: int
) -> float:
    """Divide shares by their total, and let them take their place in u; return the largest change of a number in u.

    ratios become ratios * shares * factor, u^m. One pass over numbers in the cache, where NumPy makes eight.
    """
    most = np.zeros(rows)
    for c in range(u.shape[0]):
        share, ratio, old = shares[c], ratios[c], u[c, start : start + rows]
        for i in range(rows):
            new = share[i] / total[i]
            moved = abs(new - old[i])
            most[i] = max(most[i], moved)
            share[i], old[i] = new, new
            ratio[i] = ratio[i] * new * factor[i]
    return float(most.max())


@kernel(error_model="numpy")
def _nearness(X: FloatArray, centroids: FloatArray, ratios: FloatArray, extreme: BoolArray) -> bool:
    """ratios[c, i] = the least squared distance of row i to a centroid, over that to centroid c; 0 / 0 = 1.

    Where squares would lose digits, or coincide, extreme[i] is set, and ratios are those of distances, not squared. Returns
    whether there is such a row. From differences, which NumPy would write to memory one by one: rows that coincide are 0
    apart, and small distances have all their digits.
    """
    (n, d), k = X.shape, centroids.shape[0]
    columns, squared, own = np.zeros((d, _TILE)), np.empty((k, _TILE)), np.empty(k)
    low, high = np.empty(_TILE), np.empty(_TILE)
    found = False
    for start in range(0, n, _TILE):
        rows = min(_TILE, n - start)
        for i in range(rows):
            for j in range(d):
                columns[j, i] = X[start + i, j]
        low[:], high[:] = np.inf, 0.0
        for c in range(k):
            _squared_distances(columns, centroids[c], squared[c])
            _extremes(squared[c], low, high)
        for c in range(k):
            of_cluster = ratios[c, start : start + rows]
            for i in range(rows):
                of_cluster[i] = low[i] / squared[c, i]
        for i in range(rows):
            extreme[start + i] = low[i] < _LEAST_SQUARE or not high[i] < _LARGEST_SQUARE
            if extreme[start + i]:
                found = True
                _distances(X, start + i, centroids, own)
                least = own.min()
                for c in range(k):
                    ratios[c, start + i] = least / own[c] if own[c] > 0.0 else 1.0
    return found


@kernel()
def _extremes(values: FloatArray, low: FloatArray, high: FloatArray) -> None:
    """Low and high become the extremes of themselves and the values."""
    for i in range(_TILE):
        low[i] = min(low[i], values[i])
        high[i] = max(high[i], values[i])


@kernel(fastmath={"contract", "nsz"})
def _squared_distances(columns: FloatArray, point: FloatArray, out: FloatArray) -> None:
    """out[i] = |columns[:, i] - point|^2: independent sums over the features, two at a time, which vectorise."""
    d = columns.shape[0]
    first, p = columns[0], point[0]
    if d % 2 == 1:
        for i in range(_TILE):
            out[i] = (first[i] - p) * (first[i] - p)
    else:
        second, q = columns[1], point[1]
        for i in range(_TILE):
            a, b = first[i] - p, second[i] - q
            out[i] = a * a + b * b
    for j in range(2 - d % 2, d, 2):
        u, v, r, s = columns[j], columns[j + 1], point[j], point[j + 1]
        for i in range(_TILE):
            a, b = u[i] - r, v[i] - s
            out[i] = out[i] + a * a + b * b


@kernel()
def _distances(X: FloatArray, i: int, centroids: FloatArray, out: FloatArray) -> None:
    """out[c] = a |X_i - centroids_c| for some a > 0; 0 exactly where the two are equal, and never infinite."""
    k, d = centroids.shape
    biggest = 0.0
    for j in range(d):
        for c in range(k):
            biggest = max(biggest, abs(X[i, j]), abs(centroids[c, j]))
    scale = 2.0**-20 if biggest > 1e290 else 1.0
    for c in range(k):
        largest = 0.0
        for j in range(d):
            largest = max(largest, abs(X[i, j] * scale - centroids[c, j] * scale))
        total = 0.0
        if largest > 0.0:
            for j in range(d):
                total += ((X[i, j] * scale - centroids[c, j] * scale) / largest) ** 2
        out[c] = largest * math.sqrt(total)


def warm_up() -> None:
    """Compile every kernel, or load it from the cache on disk, so that processes started later find it there."""
    fuzzy_cmeans(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0]]), max_iter=1)
