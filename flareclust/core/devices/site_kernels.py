"""One small site's k-means in compiled form, to be called in a loop over many sites.

Bit for bit what `flareclust.core.lloyd`, `seeds`, `local`, `spectral` and `disclosure` compute with an array operation for
each line, which takes longer than the work itself where a site has few rows. The kernels underneath are the same. Rows have
two columns or more, since NumPy adds up a single one in another order.
"""

from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import LARGEST_VALUE, LEAST_VALUE
from flareclust.core import kernels
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.group_kernels import described_groups
from flareclust.core.kernels import column_means, column_variances
from flareclust.core.runtime import kernel
from flareclust.core.screen import Screen
from flareclust.core.seeds import TILE, TILED, more_seeds, row_at, seeds_with

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
    sums, chosen = np.empty((1 + candidates, -(-n // TILE))), np.empty(k, np.int64)
    uniforms = np.empty((k - 1, candidates))
    chosen[0] = row_at(mass, float(n), _uniform(state))
    for s in range(k - 1):
        for t in range(candidates):
            uniforms[s, t] = _uniform(state)
    seeds_with(X, mass, tiles, X[chosen[0] : chosen[0] + 1], closest, sums)
    found: int = more_seeds(X, mass, tiles, uniforms, closest, sums, np.cumsum(sums[0]), chosen, 1)
    for c in range(found):
        seeds[c] = X[chosen[c]]
    return found


@kernel()
def lloyd_from(X: FloatArray, centroids: FloatArray, max_iter: int, tol: float, labels: IntArray) -> int:
    """labels (n,) become those of `lloyd` from these centroids (k, d), which move; return how many clusters there are."""
    n, d = X.shape
    k = centroids.shape[0]
    origin, variance = np.empty(d), np.empty(d)
    column_means(X, origin)
    column_variances(X, origin, variance)
    threshold = tol * (pairwise_sum(variance) / d)
    weights, squared = np.ones(n), np.empty(n)
    no_screen = Screen(1.0, np.empty((0, d, TILE), np.float32), np.empty(0))
    labels[:] = -1
    _, status = kernels.lloyd_steps(
        X, weights, origin, centroids, labels, squared, max_iter, threshold, _MOVING, no_screen
    )
    if status != _SETTLED:
        kernels.nearest_centroids(X, centroids, labels, squared)
    present = np.zeros(k, np.int64)
    present[labels] = 1
    up_to = np.cumsum(present)
    labels[:] = up_to[labels] - 1
    return int(up_to[-1])


@kernel()
def means_by_label(X: FloatArray, labels: IntArray, means: FloatArray, counts: IntArray) -> None:
    """means (k, d) and counts (k,) become those of the rows of each label, about the mean of all; 0 without rows."""
    d = X.shape[1]
    origin = np.empty(d)
    column_means(X, origin)
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
    """keep (k,) becomes which clusters `describable` lets out; return how many, or -1 where one is of a row repeated."""
    _, varied, is_row, _ = described_groups(X, labels, means)
    keep[:] = (counts >= min_count) & varied & ~is_row
    repeated = ~varied & (counts >= max(min_count, LEAST_ROWS))
    return -1 if repeated.any() else int(keep.sum())


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


# The random numbers of `numpy.random.default_rng([seed, round, site])`, for compiled loops over many sites.
#
# NumPy takes some 15 us to make one generator; here it is a few hundred operations. The numbers are NumPy's, bit for bit.
#
# Sources: O'Neill (2014), PCG: a family of simple fast space-efficient statistically good algorithms for random number
# generation (the generator with 128 bits of state and the output XSL-RR); O'Neill (2015), Developing a seed_seq alternative
# (how words of entropy become that state). NumPy promises that neither changes (NEP 19).

#: The multiplier of the 128-bit congruential generator, in two halves.
_HIGH, _LOW = np.uint64(2549297995355413924), np.uint64(4865540595714422341)

_U32 = np.uint64(0xFFFFFFFF)
_32, _16, _11, _58, _63, _1 = (np.uint64(value) for value in (32, 16, 11, 58, 63, 1))

_INIT_A, _MULT_A, _INIT_B, _MULT_B = (np.uint64(value) for value in (0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED))
_MIX_LEFT, _MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)


@kernel()
def start_stream(seed: int, round_: int, site: int, state: Array) -> None:
    """state (4,) uint64 becomes that of `default_rng([seed, round_, site])`, of three numbers below 2^32."""
    pool, constant = np.zeros(4, np.uint64), _INIT_A
    pool[0], pool[1], pool[2] = np.uint64(seed), np.uint64(round_), np.uint64(site)
    for i in range(4):
        pool[i], constant = _hashed(pool[i], constant, _MULT_A)
    for source in range(4):
        for target in range(4):
            if source != target:
                word, constant = _hashed(pool[source], constant, _MULT_A)
                mixed = (_MIX_LEFT * pool[target] - _MIX_RIGHT * word) & _U32
                pool[target] = mixed ^ (mixed >> _16)
    words, constant = np.empty(8, np.uint64), _INIT_B
    for i in range(8):
        words[i], constant = _hashed(pool[i % 4], constant, _MULT_B)
    for i in range(4):
        pool[i] = words[2 * i] | (words[2 * i + 1] << _32)
    # The increment is odd; the first step is from 0.
    state[2], state[3] = (pool[2] << _1) | (pool[3] >> _63), (pool[3] << _1) | _1
    state[0], state[1] = _added(state[2], state[3], pool[0], pool[1])
    _step(state)


@kernel()
def _uniform(state: Array) -> float:
    """Return the next number in [0, 1) of `Generator.random`."""
    _step(state)
    turned, by = state[0] ^ state[1], state[0] >> _58
    word = (turned >> by) | (turned << ((np.uint64(64) - by) & _63))
    return float(word >> _11) * (1.0 / 9007199254740992.0)


@kernel()
def _hashed(word: Any, constant: Any, multiplier: Any) -> Any:
    """Return a hash of 32 bits and the next constant."""
    word, constant = (word ^ constant) & _U32, (constant * multiplier) & _U32
    word = (word * constant) & _U32
    return word ^ (word >> _16), constant


@kernel()
def _step(state: Array) -> None:
    """Advance the generator: state = state * multiplier + increment, in 128 bits."""
    high, low = state[0], state[1]
    a, b, c, d = low >> _32, low & _U32, _LOW >> _32, _LOW & _U32
    middle = a * d + ((b * d) >> _32)
    other = b * c + (middle & _U32)
    upper = a * c + (middle >> _32) + (other >> _32) + high * _LOW + low * _HIGH
    state[0], state[1] = _added(upper, low * _LOW, state[2], state[3])


@kernel()
def _added(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    """Return the sum of two numbers of 128 bits."""
    total = low + other_low
    carry = _1 if total < low else np.uint64(0)
    return high + other_high + carry, total
