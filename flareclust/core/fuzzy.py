"""Fuzzy c-means on one site's rows: memberships, and the iteration that moves the centroids.

Bezdek, Ehrlich, Full (1984), FCM: the fuzzy c-means clustering algorithm, Computers & Geosciences 10, 191-203.

The kernels are serial, release the GIL and add in the order of the rows, as those of `flareclust.core.kernels`, whose
form of array they take. They use nothing of that module, since numba's cache of a kernel does not notice a change in
another file.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import Aborted, UserError
from flareclust._foundation.typing import AbortCheck, FloatArray, never_abort
from flareclust.core.arrays import as_centroids, as_count, as_matrix
from flareclust.core.jit import kernel
from flareclust.core.rounds import check_tol

#: Coordinate differences per kernel call, some tenths of a second of work; `aborted` is asked between calls.
_WORK_PER_CALL = 100_000_000

#: Squared distances between these keep all their digits; a row with any beyond takes plain distances, scaled.
_LEAST_SQUARE, _LARGEST_SQUARE = 1e-280, 1e300

#: Centroids whose rows weigh less than this together stay where they are: so little has lost its digits.
_NO_MASS = 1e-200


class FuzzyClustering(NamedTuple):
    """A fuzzy clustering of n rows into k clusters.

    Attributes:
        centroids: (k, d).
        memberships: u (n, k) that the centroids are the weighted means of, with weights u^m.
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
    found = np.zeros((len(X), len(centroids)))
    update_memberships(X, centroids, check_fuzzifier(fuzzifier), found)
    return found


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

    Raises:
        UserError: for input that does not fit the above.
        Aborted: when `aborted` says so.
    """
    X = as_matrix(X)
    if len(X) == 0:
        raise UserError("X must have at least one row, got none")
    centroids = as_centroids(start, X.shape[1]).copy()
    m, max_iter, tol = check_fuzzifier(fuzzifier), as_count(max_iter, "max_iter"), check_tol(tol)
    k, d = centroids.shape
    origin = X.mean(axis=0)  # sums about a point amid the rows keep their precision
    u = np.full((len(X), k), -1.0)  # so the first iteration changes every membership
    for n_iter in range(1, max_iter + 1):
        sums, sum_u, sum_um, change = np.zeros((k, d)), np.zeros(k), np.zeros(k), 0.0
        for part in _parts(len(X), k * d):
            if aborted():
                raise Aborted(f"stopped in iteration {n_iter} of fuzzy c-means")
            change = max(change, update_memberships(X[part], centroids, m, u[part]))
            add_weighted_rows(X[part], u[part], m, origin, sums, sum_u, sum_um)
        sum_um[sum_um < _NO_MASS] = 0.0
        moving = sum_um > 0
        centroids[moving] = origin + sums[moving] / sum_um[moving, None]
        if change <= tol:
            break
    return FuzzyClustering(centroids, u, sum_u, sum_um, n_iter)


def check_fuzzifier(fuzzifier: object) -> float:
    """Return the fuzzifier as a float, or raise UserError unless it is a finite number > 1."""
    number = isinstance(fuzzifier, int | float | np.integer | np.floating) and not isinstance(fuzzifier, bool)
    if not number or not 1 < fuzzifier < math.inf:  # type: ignore[operator]
        raise UserError(
            f"fuzzifier must be a finite number greater than 1, got {fuzzifier!r}; 2 is usual, and 1 would be k-means"
        )
    return float(fuzzifier)  # type: ignore[arg-type]


def _parts(n: int, work_per_row: int) -> Iterator[slice]:
    step = max(1, _WORK_PER_CALL // work_per_row)
    return (slice(start, start + step) for start in range(0, n, step))


@kernel()
def update_memberships(X: FloatArray, centroids: FloatArray, fuzzifier: float, u: FloatArray) -> float:
    """u[i, c] = membership of row i in cluster c. Returns the largest change of a number in u."""
    n, k = X.shape[0], centroids.shape[0]
    step = max(16, min(256, 8192 // k))  # rows whose distances to all centroids fit the cache; no result depends on it
    shares, column, own = np.empty((k, step)), np.empty(step), np.empty(k)
    low, high, total = np.empty(step), np.empty(step), np.empty(step)
    change = 0.0
    for start in range(0, n, step):
        rows = min(step, n - start)
        _squared_distances(X, start, rows, centroids, column, shares)
        _tile_shares(shares[:, :rows], 1.0 / (fuzzifier - 1.0), low, high, total)
        for i in range(rows):
            if low[i] < _LEAST_SQUARE or not high[i] < _LARGEST_SQUARE:
                _distances(X, start + i, centroids, own)
                _shares(own, 2.0 / (fuzzifier - 1.0))
                shares[:, i] = own
        for i in range(rows):
            for c in range(k):
                change = max(change, abs(shares[c, i] - u[start + i, c]))
                u[start + i, c] = shares[c, i]
    return change


@kernel(error_model="numpy")
def _tile_shares(values: FloatArray, power: float, low: FloatArray, high: FloatArray, total: FloatArray) -> None:
    """Do what `_shares` does in each column (k, rows), row after row, so that columns are independent lanes.

    `low` and `high` become the extremes of each column; where 0 or infinity is one, its shares are no numbers.
    """
    k, rows = values.shape
    low[:rows], high[:rows], total[:rows] = values[0], values[0], 0.0
    for c in range(1, k):
        for i in range(rows):
            low[i] = min(low[i], values[c, i])
            high[i] = max(high[i], values[c, i])
    for c in range(k):
        for i in range(rows):
            values[c, i] = low[i] / values[c, i]
        if power != 1.0:
            for i in range(rows):
                values[c, i] = values[c, i] ** power
        for i in range(rows):
            total[i] += values[c, i]
    for c in range(k):
        for i in range(rows):
            values[c, i] /= total[i]


@kernel()
def add_weighted_rows(
    X: FloatArray,
    u: FloatArray,
    fuzzifier: float,
    origin: FloatArray,
    sums: FloatArray,
    sum_u: FloatArray,
    sum_um: FloatArray,
) -> None:
    """Add to sums[c], sum_u[c], sum_um[c] over the rows: u^m (X_i - origin), u and u^m with u = u[i, c]."""
    by_column, weights = sums.T.copy(), np.empty(u.shape[1])  # clusters side by side: independent sums, which vectorise
    for i in range(X.shape[0]):
        for c in range(u.shape[1]):
            weights[c] = u[i, c] * u[i, c] if fuzzifier == 2.0 else u[i, c] ** fuzzifier
        for c in range(u.shape[1]):
            sum_u[c] += u[i, c]
            sum_um[c] += weights[c]
        for j in range(X.shape[1]):
            away = X[i, j] - origin[j]
            for c in range(u.shape[1]):
                by_column[j, c] += weights[c] * away
    sums[:] = by_column.T


@kernel()
def _squared_distances(
    X: FloatArray, start: int, rows: int, centroids: FloatArray, column: FloatArray, squared: FloatArray
) -> None:
    """squared[c, i] = |X[start + i] - centroids[c]|^2: independent sums over the features, which vectorise."""
    squared[:, :rows] = 0.0
    for j in range(X.shape[1]):
        for i in range(rows):
            column[i] = X[start + i, j]
        for c in range(centroids.shape[0]):
            coordinate = centroids[c, j]
            for i in range(rows):
                difference = column[i] - coordinate
                squared[c, i] += difference * difference


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


@kernel()
def _shares(values: FloatArray, power: float) -> None:
    """Turn distances to the centroids, taken to some power, into memberships, in place.

    Ratios to the smallest are at most 1, so that no power of them overflows; those that underflow are 0.
    """
    minimum = values.min()
    total = 0.0
    for c in range(len(values)):
        if minimum == 0.0:
            values[c] = 1.0 if values[c] == 0.0 else 0.0
        elif power == 1.0:
            values[c] = minimum / values[c]
        else:
            values[c] = (minimum / values[c]) ** power
        total += values[c]
    for c in range(len(values)):
        values[c] /= total


def warm_up() -> None:
    """Compile every kernel, or load it from the cache on disk, so that processes started later find it there."""
    fuzzy_cmeans(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0]]), max_iter=1)
