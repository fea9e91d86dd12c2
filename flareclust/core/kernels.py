"""Numba kernels of the numerical core.

Every kernel is serial, releases the GIL, writes into arrays it was given and adds in a fixed order, so a result
depends on nothing but the input: not on threads, not on how often it was called. Arrays are C-contiguous, aligned,
writeable float64 or int64. `flareclust.core.arrays` brings a caller's arrays into this form, because
numba compiles a kernel again for every other form (a read-only array is one). Rows in a mapped file stay where they are,
and a kernel is compiled again for them: a copy might not fit in memory. Kernels do not check their input. numba's cache of
a kernel does not notice a change in another module: change this one, too, where `screen` or `two_best` changes.

Rows are taken in tiles, stored feature by feature: distances of a whole tile to one point are then independent
sums over the features, which the compiler vectorises without reordering any of them.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import kernel
from flareclust.core.screen import Screen, screened_labels

#: Where `lloyd_steps` stands. RELOCATED: as MOVING, and an empty cluster has just been given a row.
#: SETTLED: labels belong to the centroids. WITHIN_TOLERANCE: centroids moved a last time, labels are one step behind.
MOVING, RELOCATED, SETTLED, WITHIN_TOLERANCE = 0, 1, 2, 3

#: A tile holds about this many numbers (64 KiB, so that it stays in the second-level cache), in 16 to 256 rows.
_TILE_SIZE = 8192


@kernel()
def _tile_rows(d: int) -> int:
    """Rows per tile. No result depends on it: every sum over features belongs to one row."""
    return max(16, min(256, _TILE_SIZE // d))


@kernel()
def _fill_tile(X: FloatArray, start: int, rows: int, tile: FloatArray) -> None:
    """tile[j, i] = X[start + i, j]."""
    for i in range(rows):
        for j in range(X.shape[1]):
            tile[j, i] = X[start + i, j]


@kernel()
def _tile_distances(tile: FloatArray, rows: int, point: FloatArray, out: FloatArray) -> None:
    """out[i] = sum_j (tile[j, i] - point[j])^2: never negative, and 0 exactly for equal rows.

    Added in the order of j, four at a time, so that the sums are read and written less often.
    """
    d = tile.shape[0]
    for i in range(rows):
        out[i] = 0.0
    for j in range(0, d - 3, 4):
        t, u, v, w = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
        p, q, r, s = point[j], point[j + 1], point[j + 2], point[j + 3]
        for i in range(rows):
            a, b, c, e = t[i] - p, u[i] - q, v[i] - r, w[i] - s
            out[i] = out[i] + a * a + b * b + c * c + e * e
    for j in range(d - d % 4, d):
        coordinate = point[j]
        for i in range(rows):
            difference = tile[j, i] - coordinate
            out[i] += difference * difference


@kernel()
def nearest_centroids(X: FloatArray, centroids: FloatArray, labels: IntArray, squared: FloatArray) -> int:
    """labels[i] = argmin_c |X_i - centroids_c|^2 (lowest c on ties), squared[i] = the minimum.

    Returns how many labels differ from those that `labels` held before.
    """
    n, d = X.shape
    step = _tile_rows(d)
    tile, distances, best = np.empty((d, step)), np.empty(step), np.empty(step)
    nearest, changed = np.empty(step, np.int64), 0
    for start in range(0, n, step):
        rows = min(step, n - start)
        _fill_tile(X, start, rows, tile)
        _tile_distances(tile, rows, centroids[0], best)
        nearest[:] = 0
        for c in range(1, centroids.shape[0]):
            _tile_distances(tile, rows, centroids[c], distances)
            for i in range(rows):
                closer = distances[i] < best[i]
                best[i] = distances[i] if closer else best[i]
                nearest[i] = c if closer else nearest[i]
        for i in range(rows):
            changed += labels[start + i] != nearest[i]
            labels[start + i] = nearest[i]
            squared[start + i] = best[i]
    return changed


@kernel()
def two_nearest(
    X: FloatArray, centroids: FloatArray, labels: IntArray, squared: FloatArray, second: FloatArray
) -> None:
    """As `nearest_centroids`, and second[i] = min over c != labels[i] of |X_i - centroids_c|^2 (infinity if k = 1)."""
    n, d = X.shape
    step = _tile_rows(d)
    tile, distances = np.empty((d, step)), np.empty(step)
    for start in range(0, n, step):
        rows = min(step, n - start)
        _fill_tile(X, start, rows, tile)
        nearest, best, other = labels[start : start + rows], squared[start : start + rows], second[start : start + rows]
        nearest[:], best[:], other[:] = 0, np.inf, np.inf
        for c in range(centroids.shape[0]):
            _tile_distances(tile, rows, centroids[c], distances)
            for i in range(rows):
                closer = distances[i] < best[i]
                farther = best[i] if closer else distances[i]
                other[i] = min(other[i], farther)
                best[i] = distances[i] if closer else best[i]
                nearest[i] = c if closer else nearest[i]


@kernel()
def own_distances(X: FloatArray, centroids: FloatArray, labels: IntArray, squared: FloatArray) -> None:
    """squared[i] = |X_i - centroids_labels[i]|^2."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            difference = X[i, j] - centroids[labels[i], j]
            total += difference * difference
        squared[i] = total


@kernel()
def add_to_sums(
    X: FloatArray, weights: FloatArray, origin: FloatArray, labels: IntArray, sums: FloatArray, mass: FloatArray
) -> None:
    """Add weights[i] (X_i - origin) to sums[c], and weights[i] to mass[c], of the label c of each row: rows may come in parts."""
    if X.shape[1] == 2:  # where the loop over the features takes longer than the sums
        for i in range(X.shape[0]):
            c = np.uint64(labels[i])  # not negative, so that no index is wrapped
            mass[c] += weights[i]
            sums[c, 0] += weights[i] * (X[i, 0] - origin[0])
            sums[c, 1] += weights[i] * (X[i, 1] - origin[1])
        return
    for i in range(X.shape[0]):
        c = np.uint64(labels[i])
        mass[c] += weights[i]
        for j in range(X.shape[1]):
            sums[c, j] += weights[i] * (X[i, j] - origin[j])


@kernel()
def give_rows_to_empty_clusters(weights: FloatArray, mass: FloatArray, labels: IntArray, squared: FloatArray) -> bool:
    """Label the rows farthest from their centroids with the clusters of mass 0; False if all distances are 0.

    Spoils `squared`: rows that are taken, or that weigh nothing, get -1.
    """
    for i in range(weights.shape[0]):
        if weights[i] == 0.0:
            squared[i] = -1.0
    moved = False
    for c in range(mass.shape[0]):
        if mass[c] == 0.0:
            farthest = squared.argmax()
            if squared[farthest] < 0.0 or (squared[farthest] == 0.0 and not moved):
                break
            labels[farthest] = c
            squared[farthest] = -1.0
            moved = True
    return moved


@kernel()
def move_centroids(sums: FloatArray, mass: FloatArray, origin: FloatArray, centroids: FloatArray) -> float:
    """Move each centroid to the mean of its rows; return the sum of the squared shifts."""
    biggest, shift = mass.argmax(), 0.0
    for c in range(centroids.shape[0]):
        source = c if mass[c] > 0.0 else biggest  # a cluster that stays empty waits at the biggest one
        for j in range(centroids.shape[1]):
            mean = sums[source, j] / mass[source] + origin[j]
            shift += (mean - centroids[c, j]) ** 2
            centroids[c, j] = mean
    return shift


@kernel()
def lloyd_steps(
    X: FloatArray,
    weights: FloatArray,
    origin: FloatArray,
    centroids: FloatArray,
    labels: IntArray,
    squared: FloatArray,
    n_steps: int,
    tol: float,
    status: int,
    screen: Screen,
) -> tuple[int, int]:
    """Run at most `n_steps` of Lloyd's iterations on `centroids` in place; return (steps run, status).

    No result depends on the screen of X.
    `squared` is that of `labels` where the status is SETTLED, and anything where it is another.

    One step: labels = nearest centroids; centroid_c = sum_c w (x - origin) / sum_c w + origin. It is over when no
    label changed, or when sum_c |shift of centroid_c|^2 <= tol. Sums about an origin amid the data keep their
    precision where the data lie far from 0, and equal labels give bitwise equal centroids.
    """
    k, d = centroids.shape
    sums, mass = np.empty((k, d)), np.empty(k)
    for step in range(n_steps):
        changed = screened_labels(X, origin, screen, centroids, labels)
        if changed < 0:
            changed = nearest_centroids(X, centroids, labels, squared)
        if changed == 0 and status != RELOCATED:
            own_distances(X, centroids, labels, squared)
            return step + 1, SETTLED
        status = MOVING
        while True:  # adding up again, not subtracting: a cluster that lost its last row must have mass 0 exactly
            sums[:], mass[:] = 0.0, 0.0
            add_to_sums(X, weights, origin, labels, sums, mass)
            if status == RELOCATED or mass[mass.argmin()] > 0.0:  # `min` takes longer to compile
                break
            own_distances(X, centroids, labels, squared)
            if not give_rows_to_empty_clusters(weights, mass, labels, squared):
                break
            status = RELOCATED
        shift = move_centroids(sums, mass, origin, centroids)
        if shift <= tol:
            return step + 1, WITHIN_TOLERANCE
    return n_steps, status


# Mean and variance of columns in one compiled pass each.


@kernel()
def column_means(X: FloatArray, mean: FloatArray) -> None:
    """mean (d,) becomes `X.mean(axis=0)`, bit for bit for d > 1."""
    n, d = X.shape
    mean[:] = 0.0
    if d <= 3:
        b, e = d // 2, d - 1
        s0 = s1 = s2 = 0.0
        for i in range(n):
            s0 += X[i, 0]
            s1 += X[i, b]
            s2 += X[i, e]
        mean[0], mean[b], mean[e] = s0 / n, s1 / n, s2 / n
        return
    for i in range(n):
        for j in range(d):
            mean[j] += X[i, j]
    for j in range(d):
        mean[j] /= n


@kernel()
def column_variances(X: FloatArray, mean: FloatArray, variance: FloatArray) -> None:
    """variance (d,) becomes `X.var(axis=0)` of rows with this mean, bit for bit for d > 1.

    One row after the other, as NumPy adds; two and three columns in registers.
    """
    n, d = X.shape
    variance[:] = 0.0
    if d <= 3:
        b, e = d // 2, d - 1
        m0, m1, m2 = mean[0], mean[b], mean[e]
        s0 = s1 = s2 = 0.0
        for i in range(n):
            x, y, z = X[i, 0] - m0, X[i, b] - m1, X[i, e] - m2
            s0 += x * x
            s1 += y * y
            s2 += z * z
        variance[0], variance[b], variance[e] = s0 / n, s1 / n, s2 / n
        return
    for i in range(n):
        for j in range(d):
            deviation = X[i, j] - mean[j]
            variance[j] += deviation * deviation
    for j in range(d):
        variance[j] /= n
