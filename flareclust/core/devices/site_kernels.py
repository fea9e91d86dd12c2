"""One small site's k-means in compiled form, to be called in a loop over many sites.

Bit for bit what `flareclust.core.lloyd`, `seeds`, `local`, `spectral` and `disclosure` compute with an array operation for
each line, which takes longer than the work itself where a site has few rows. The kernels underneath are the same. Rows have
two columns or more, since NumPy adds up a single one in another order.
"""

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import LARGEST_VALUE, LEAST_VALUE
from flareclust.core import kernels
from flareclust.core.devices.streams import uniform
from flareclust.core.group_kernels import described_groups
from flareclust.core.jit import kernel
from flareclust.core.moments import column_moments
from flareclust.core.seed_kernels import TILE, TILED, more_seeds, row_at, seeds_with

#: Sums of more numbers are added up by NumPy in blocks of so many.
MOST_SUMMED = 128

_MOVING, _SETTLED = kernels.MOVING, kernels.SETTLED


@kernel()
def computable(X: FloatArray) -> bool:
    """Return whether all numbers are finite, and neither too large nor too small to be squared."""
    largest = 0.0
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            size = abs(X[i, j])
            if not size <= LARGEST_VALUE:
                return False
            largest = max(largest, size)
    return largest == 0.0 or largest >= LEAST_VALUE


@kernel()
def pairwise_sum(values: FloatArray) -> float:
    """Return `values.sum()` of at most `MOST_SUMMED` numbers: eight partial sums, as NumPy adds."""
    n, total = values.shape[0], 0.0
    if n < 8:
        for value in values:
            total += value
        return float(total)
    r = values[:8].copy()
    for i in range(8, n - n % 8, 8):
        for j in range(8):
            r[j] += values[i + j]
    total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
    for i in range(n - n % 8, n):
        total += values[i]
    return float(total)


@kernel()
def plusplus(X: FloatArray, k: int, state: Array, seeds: FloatArray) -> int:
    """seeds (k, d) become those of `kmeans_plusplus`; return how many there are."""
    n, d = X.shape
    mass, closest, tiles = np.ones(n), np.full(n, np.inf), np.zeros((0, min(d, TILED), TILE))
    candidates = 2 + int(np.log(k))
    sums, chosen, uniforms = (
        np.empty((1 + candidates, -(-n // TILE))),
        np.empty(k, np.int64),
        np.empty((k - 1, candidates)),
    )
    chosen[0] = _first_row(n, uniform(state))
    for s in range(k - 1):
        for t in range(candidates):
            uniforms[s, t] = uniform(state)
    seeds_with(X, mass, tiles, X[chosen[0] : chosen[0] + 1], closest, sums)
    found: int = more_seeds(X, mass, tiles, uniforms, closest, sums, np.cumsum(sums[0]), chosen, 1)
    for c in range(found):
        seeds[c] = X[chosen[c]]
    return found


@kernel()
def _first_row(n: int, drawn: float) -> int:
    """Return the row that `numpy.random.Generator.choice(n, p=...)` draws with equal chances."""
    return int(row_at(np.ones(n), float(n), drawn))


@kernel()
def lloyd_from(X: FloatArray, centroids: FloatArray, max_iter: int, tol: float, labels: IntArray) -> int:
    """labels (n,) become those of `lloyd` from these centroids (k, d), which move; return how many clusters there are."""
    n, d = X.shape
    k = centroids.shape[0]
    origin, variance = np.empty(d), np.empty(d)
    column_moments(X, origin, variance)
    threshold = tol * (pairwise_sum(variance) / d)
    weights, squared = np.ones(n), np.empty(n)
    no_tiles, no_lengths = np.empty((0, d, TILE), np.float32), np.empty(0)
    labels[:] = -1
    _, status = kernels.lloyd_steps(
        X, weights, origin, centroids, labels, squared, max_iter, threshold, _MOVING, 1.0, no_tiles, no_lengths
    )
    if status != _SETTLED:
        kernels.nearest_centroids(X, centroids, labels, squared)
    number, found = np.zeros(k, np.int64), 0
    for label in labels:
        number[label] = 1
    for c in range(k):
        found += number[c]
        number[c] = found - 1
    for i in range(n):
        labels[i] = number[labels[i]]
    return found


@kernel()
def means_by_label(X: FloatArray, labels: IntArray, means: FloatArray, counts: IntArray) -> None:
    """means (k, d) and counts (k,) become those of the rows of each label, about the mean of all; 0 without rows."""
    d = X.shape[1]
    origin, variance = np.empty(d), np.empty(d)
    column_moments(X, origin, variance)
    means[:], counts[:] = 0.0, 0
    for i in range(X.shape[0]):
        c = labels[i]
        counts[c] += 1
        for j in range(d):
            means[c, j] += X[i, j] - origin[j]
    for c in range(counts.shape[0]):
        for j in range(d):
            means[c, j] = origin[j] + means[c, j] / counts[c] if counts[c] > 0 else 0.0


@kernel()
def may_be_described(
    X: FloatArray, labels: IntArray, means: FloatArray, counts: IntArray, min_count: int, keep: BoolArray
) -> int:
    """keep (k,) becomes which clusters `describable` lets out; return how many."""
    _, varied, is_row, _ = described_groups(X, labels, means)
    kept = 0
    for c in range(counts.shape[0]):
        keep[c] = counts[c] >= min_count and varied[c] and not is_row[c]
        kept += keep[c]
    return kept


@kernel()
def trusted_means(X: FloatArray, projected: FloatArray, seeds: FloatArray, means: FloatArray) -> None:
    """means (k, d) become those of the rows that `trusted_rows` trusts to each seed (k, p)."""
    n, k = X.shape[0], seeds.shape[0]
    apart, squares, nearest = np.empty((n, k)), np.empty(projected.shape[1]), np.empty(n, np.int64)
    least, second = np.full(n, np.inf), np.full(n, np.inf)
    for i in range(n):
        for c in range(k):
            for j in range(projected.shape[1]):
                squares[j] = (projected[i, j] - seeds[c, j]) * (projected[i, j] - seeds[c, j])
            apart[i, c] = distance = np.sqrt(pairwise_sum(squares))
            if distance < least[i]:
                least[i], second[i], nearest[i] = distance, least[i], c
            elif distance < second[i]:
                second[i] = distance
    for c in range(k):
        size = 0
        means[c] = 0.0
        for trusted in (True, False):  # without trusted rows, those nearest to the seed
            for i in range(n):
                own = nearest[i] == c
                other = second[i] if own else least[i]
                if (apart[i, c] <= other / 3) if trusted else own:
                    size += 1
                    for j in range(X.shape[1]):
                        means[c, j] += X[i, j]
            if size > 0:
                break
        for j in range(X.shape[1]):
            means[c, j] /= size
