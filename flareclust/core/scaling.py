"""Location and spread of columns: of one site's rows, rounded so that they disclose none of them, and of all sites together.

Rounding: a mean is a multiple of g, and so is a deviation, where g is the power of two at or above the deviation times
max(1/64, 4/n). From exact sums of all but a few of n rows, the rest then follows within 4 deviations at best.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray

#: The grid is at least this part of a deviation, and at least so many deviations over the number of rows.
_FINEST, _HIDDEN = 1 / 64, 4.0

#: A mean of equal values is rounded to this part of itself.
_OF_EQUAL = 2.0**-20

#: Of so small a part of a sum of squares, what other parts leave of it, no digit is certain.
_LOST = 1e-14


class Spread(NamedTuple):
    """Number of rows, means (d,) and standard deviations (d,) of columns."""

    rows: int
    mean: FloatArray
    deviation: FloatArray


class KnownSpread(NamedTuple):
    """Of columns with gaps: number of known cells (d,), and means (d,) and standard deviations (d,) over these."""

    counts: IntArray
    mean: FloatArray
    deviation: FloatArray


def rounded_spread(X: FloatArray, repeats: int = 1) -> Spread:
    """Return mean and deviation of the columns of rows (n, d), rounded as the module says.

    Where the same row may be there `repeats` times, n in the grid is the fewest that can differ.
    """
    deviation = np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 0.0)
    return rounded(Spread(len(X), X.mean(axis=0), deviation), repeats)


def rounded(spread: Spread, repeats: int = 1) -> Spread:
    """Return mean and deviation as `rounded_spread` does, from the exact ones."""
    rows, mean, deviation = spread
    coarse = np.where(deviation > 0, deviation * max(_FINEST, _HIDDEN * repeats / rows), np.abs(mean) * _OF_EQUAL)
    power = np.exp2(np.ceil(np.log2(coarse, out=np.zeros_like(coarse), where=coarse > 0)))
    grid = np.where(coarse > 0, power, 1.0)
    steps = np.where(deviation > 0, np.maximum(np.round(deviation / grid), 1.0), 0.0)
    return Spread(rows, np.round(mean / grid) * grid, steps * grid)


def known_spread(X: FloatArray, least: int, repeats: int = 1) -> KnownSpread:
    """Return mean and deviation of the columns of rows (n, d) over their known cells, rounded as the module says with n their number.

    A column with fewer than `least` known cells counts as one without any: all three are 0.
    """
    counts, mean, deviation = np.zeros(X.shape[1], dtype=np.int64), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for j in range(X.shape[1]):
        cells = X[:, j][~np.isnan(X[:, j])]
        if len(cells) >= max(least, 1):
            counts[j], mean[j : j + 1], deviation[j : j + 1] = rounded_spread(cells[:, None], repeats)
    return KnownSpread(counts, mean, deviation)


def pooled_known_spread(counts: IntArray, mean: FloatArray, m2: FloatArray) -> KnownSpread:
    """Return mean and deviation of the columns over the known cells of m sites; 0 for a column without any.

    From the known cells of each site's columns, their means, and squared deviations from these, (m, d) each.
    """
    total = counts.sum(axis=0)
    weights = counts / np.maximum(total, 1)
    center = (weights * mean).sum(axis=0)
    variance = m2.sum(axis=0) / np.maximum(total, 1) + (weights * (mean - center) ** 2).sum(axis=0)
    return KnownSpread(total, center, np.sqrt(variance))


def divisors_of(deviation: FloatArray) -> FloatArray:
    """Return what columns of these standard deviations (d,) are divided by: 1 for a constant column."""
    return np.where(deviation > 0, deviation, 1.0)


def without(pooled: KnownSpread, own: KnownSpread) -> KnownSpread:
    """Return what the columns of all sites are without one site's own part; 0 for a column without other cells."""
    counts = np.maximum(pooled.counts - own.counts, 0)
    parts = np.maximum(counts, 1)
    mean = np.where(counts > 0, pooled.mean + (pooled.mean - own.mean) * (own.counts / parts), 0.0)
    squares = pooled.counts * np.square(pooled.deviation)
    within = squares - own.counts * np.square(own.deviation)
    within -= counts * own.counts / np.maximum(pooled.counts, 1) * np.square(mean - own.mean)
    # What is smaller than the rounding of the squares that were taken away is no deviation.
    left = (counts > 0) & (within > _LOST * squares)
    return KnownSpread(counts, mean, np.sqrt(np.where(left, within, 0.0) / parts))


def pooled_spread(rows: FloatArray, mean: FloatArray, m2: FloatArray) -> Spread:
    """Return mean and deviation of the columns over all rows of m sites (Chan, Golub, LeVeque 1983).

    From the rows of each site (m,), the means of its columns, and squared deviations from these, (m, d) each.
    """
    total = float(rows.sum())
    center = rows @ mean / total
    within = m2.sum(axis=0) + rows @ (mean - center) ** 2
    return Spread(int(total), center, np.sqrt(within / total))


# Rows by their direction: of length 1, the squared Euclidean distance of two is 2 (1 - cos) of the angle between them.

#: Lengths that are 1 but for rounding, so that rows of length 1 stay what they are.
_ROUNDING = 1e-14


def of_length_one(X: FloatArray) -> FloatArray:
    """Return rows (n, d) brought to length 1; one at the origin stays there, and one of length 1 keeps its bits."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    done = (lengths == 0) | (np.abs(lengths - 1.0) < _ROUNDING)
    return X / np.where(done, 1.0, lengths)


def without_direction(X: FloatArray) -> BoolArray:
    """Return which of the rows (n, d) are at the origin (n,), or so near that they have no length."""
    return np.asarray(np.linalg.norm(X, axis=1) == 0)
