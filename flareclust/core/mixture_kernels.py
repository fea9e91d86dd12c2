"""Compiled passes over rows for Gaussian mixtures: responsibilities, and the sums of an expectation step.

Rows are taken in tiles that stay in the cache, component by component, so that rows are independent lanes. Densities are logarithms.
Sums are about the mean of each component, so that they keep their digits wherever the rows lie. The kernels use nothing of another
module, since numba's cache of a kernel does not notice a change in another file.
"""

import math

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import kernel

#: A mixture, as `flareclust.core.mixtures.Prepared` has it, or sums.
_Arrays = tuple[FloatArray, ...]

#: Rows whose densities are computed together.
TILE = 128


@kernel(error_model="numpy", fastmath={"contract", "nsz"})
def _distances(columns: FloatArray, mean: FloatArray, inverse: FloatArray, work: FloatArray, out: FloatArray) -> None:
    """out[i] = |inverse (columns[:, i] - mean)|^2, for a lower triangular inverse (d, d)."""
    d = columns.shape[0]
    z = work[d]
    for j in range(d):
        column, m, difference = columns[j], mean[j], work[j]
        for i in range(TILE):
            difference[i] = column[i] - m
    out[:] = 0.0
    for a in range(d):
        row, b = inverse[a], 1
        first = work[0]
        for i in range(TILE):
            z[i] = row[0] * first[i]
        while b + 3 <= a:  # four at a time, so that sums stay in registers
            p, q, r, s = row[b], row[b + 1], row[b + 2], row[b + 3]
            u, v, w, x = work[b], work[b + 1], work[b + 2], work[b + 3]
            for i in range(TILE):
                z[i] += p * u[i] + q * v[i] + r * w[i] + s * x[i]
            b += 4
        while b <= a:
            p, u = row[b], work[b]
            for i in range(TILE):
                z[i] += p * u[i]
            b += 1
        for i in range(TILE):
            out[i] += z[i] * z[i]


@kernel(error_model="numpy", fastmath={"contract", "nsz"})
def _diagonal_distances(columns: FloatArray, mean: FloatArray, inverse: FloatArray, out: FloatArray) -> None:
    """out[i] = |inverse (columns[:, i] - mean)|^2, for a diagonal inverse (d,)."""
    out[:] = 0.0
    for j in range(columns.shape[0]):
        column, m, s = columns[j], mean[j], inverse[j]
        for i in range(TILE):
            z = (column[i] - m) * s
            out[i] += z * z


@kernel(error_model="numpy")
def _densities(
    X: FloatArray,
    start: int,
    rows: int,
    mixture: _Arrays,
    columns: FloatArray,
    work: FloatArray,
    density: FloatArray,
    top: FloatArray,
) -> None:
    """density[c, i] = log weight times density of component c at row i of a tile, top[i] the largest of them.

    Of the mixture `diagonal` (k, d) takes the place of `inverse` (k, d, d) where that has no components.
    """
    log_scale, means, inverse, diagonal = mixture
    for i in range(rows):
        for j in range(X.shape[1]):
            columns[j, i] = X[start + i, j]
    top[:] = -np.inf
    for c in range(means.shape[0]):
        if inverse.shape[0] > 0:
            _distances(columns, means[c], inverse[c], work, density[c])
        else:
            _diagonal_distances(columns, means[c], diagonal[c], density[c])
        for i in range(TILE):
            density[c, i] = log_scale[c] - 0.5 * density[c, i]
            top[i] = max(top[i], density[c, i])


@kernel(error_model="numpy")
def _shares(density: FloatArray, top: FloatArray, total: FloatArray, mixed: FloatArray) -> None:
    """Responsibilities take the place of log densities; total[i] = sum of exp(density - top), mixed[i] = entropy of row i."""
    total[:], mixed[:] = 0.0, 0.0
    for c in range(density.shape[0]):
        for i in range(TILE):
            gap = density[c, i] - top[i]
            share = math.exp(gap)
            density[c, i] = share
            total[i] += share
            mixed[i] += share * gap if share > 0.0 else 0.0
    for c in range(density.shape[0]):
        for i in range(TILE):
            density[c, i] /= total[i]
    for i in range(TILE):
        mixed[i] = math.log(total[i]) - mixed[i] / total[i]


@kernel(error_model="numpy", fastmath={"contract", "nsz"})
def _add_full(
    X: FloatArray, share: FloatArray, mean: FloatArray, own: FloatArray, shift: FloatArray, m2: FloatArray
) -> None:
    """Add share (X_i - mean) to shift (d,), and its products with X_i - mean to the lower triangle of m2 (d, d)."""
    d = X.shape[1]
    for i in range(X.shape[0]):
        w = share[i]
        if w > 0.0:
            for j in range(d):
                own[j] = X[i, j] - mean[j]
            for a in range(d):
                weighted, row = w * own[a], m2[a]
                shift[a] += weighted
                for b in range(a + 1):
                    row[b] += weighted * own[b]


@kernel(error_model="numpy", fastmath={"contract", "nsz"})
def _add_diagonal(X: FloatArray, share: FloatArray, mean: FloatArray, shift: FloatArray, m2: FloatArray) -> None:
    """Add share (X_i - mean) to shift (d,), and its squares to m2 (d,)."""
    for i in range(X.shape[0]):
        w = share[i]
        if w > 0.0:
            for j in range(X.shape[1]):
                difference = X[i, j] - mean[j]
                shift[j] += w * difference
                m2[j] += w * difference * difference


@kernel(error_model="numpy")
def expect(X: FloatArray, mixture: _Arrays, shares: FloatArray, found: FloatArray) -> None:
    """Set responsibilities of rows (n, d) by tile and component (t, k, 128), and their log densities and entropies (n, 2)."""
    n, d = X.shape
    columns, work = np.zeros((d, TILE)), np.empty((d + 1, TILE))
    top, total, mixed = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        rows, density = min(TILE, n - start), shares[start // TILE]
        _densities(X, start, rows, mixture, columns, work, density, top)
        _shares(density, top, total, mixed)
        for i in range(rows):
            found[start + i, 0], found[start + i, 1] = top[i] + math.log(total[i]), mixed[i]


@kernel(error_model="numpy")
def add_shares(
    X: FloatArray, copies: IntArray, counted: FloatArray, shares: FloatArray, first: int, mixed: _Arrays
) -> None:
    """Add rows X (n, d) to the sums of some components (m, ...) of a mixture, from `first` on.

    Args:
        copies: how many of all rows are equal to each (n,).
        counted: as how much of a row each counts (n,).
        shares: responsibilities by tile and component (t, k, 128), which become those of what rows count.
        mixed: the means (m, d), then the sums: of responsibilities (m,); of these times X - mean (m, d); of the same times X - mean, lower
            triangles (m, d, d), and diagonal ones (m, d); the largest responsibility (m,), and that times the copies of its row (m,).
    """
    means, weights, shifts, m2, squares, most, most_alike = mixed
    n, own = X.shape[0], np.empty(X.shape[1])
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        part = X[start : start + rows]
        for c in range(means.shape[0]):
            share = shares[start // TILE, first + c]
            weight, largest, alike = weights[c], most[c], most_alike[c]  # written once: threads share their cache lines
            for i in range(rows):
                share[i] *= counted[start + i]
                weight += share[i]
                largest, alike = max(largest, share[i]), max(alike, share[i] * copies[start + i])
            weights[c], most[c], most_alike[c] = weight, largest, alike
            if m2.shape[0] > 0:
                _add_full(part, share, means[c], own, shifts[c], m2[c])
            else:
                _add_diagonal(part, share, means[c], shifts[c], squares[c])


@kernel(error_model="numpy")
def shares_of(X: FloatArray, mixture: _Arrays, found: FloatArray, likelihood: FloatArray) -> None:
    """found (n, k) becomes the responsibilities of the rows (n, d), and likelihood (n,) their log densities under the mixture."""
    (n, d), k = X.shape, mixture[1].shape[0]
    columns, work, density = np.zeros((d, TILE)), np.empty((d + 1, TILE)), np.empty((k, TILE))
    top, total, mixed = np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for start in range(0, n, TILE):
        rows = min(TILE, n - start)
        _densities(X, start, rows, mixture, columns, work, density, top)
        for i in range(rows):  # of rows infinitely far from all components, the first one's
            if not top[i] > -np.inf:
                top[i], density[0, i] = 0.0, 0.0
        _shares(density, top, total, mixed)
        for i in range(rows):
            likelihood[start + i] = top[i] + math.log(total[i])
            for c in range(k):
                found[start + i, c] = density[c, i]


@kernel()
def row_digests(X: FloatArray, bits: IntArray, found: IntArray) -> None:
    """found (n,) becomes a digest of each row (n, d), of `bits` unsigned: the same for equal rows, and else different but for chance."""
    for i in range(X.shape[0]):
        digest = np.uint64(14695981039346656037)
        for j in range(X.shape[1]):
            own = bits[i, j] if X[i, j] != 0.0 else np.uint64(0)  # -0.0 equals 0.0
            digest = (digest ^ (own >> np.uint64(32))) * np.uint64(1099511628211)
            digest = (digest ^ own) * np.uint64(1099511628211)
            digest ^= digest >> np.uint64(29)
        found[i] = digest
