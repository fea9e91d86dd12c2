"""Dominance: whether a sum or a mean tells the value of one of its rows, since that row is most of it.

Sources: Hundepool et al. 2012, Statistical Disclosure Control, section 4.2: of a cell with the total X of values x1 >= x2 >= ... >= 0,
the p % rule asks for X - x1 - x2 >= p/100 x1, so that who knows x2 cannot tell x1 to within p %, and the (n, k) rule for
x1 + ... + xn <= k/100 X. The parameters are those of ACRO.

1. A mean with its number of rows is a sum.
2. The rules are for values that are not negative. Cells with negative values are counted, and not judged.
3. Where rows are not here, their number, mean and deviation bound the largest values: m of n rows with the mean a and the deviation s
   add up to m a + s sqrt(m (n - m)) at most (Cauchy-Schwarz; for m = 1 it is Samuelson's inequality). Where a rule holds even for that
   bound it holds for the rows, if none is negative. Otherwise nobody here knows.
"""

from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray

#: The p % rule, and the (n, k) rule, k as a percentage.
P, N, K = 10, 2, 90


@dataclass(frozen=True)
class Dominance:
    """Which cells of a table the rules find, each (r, c).

    Attributes:
        p_ratio: those that the p % rule does not allow.
        nk: those that the (n, k) rule does not allow.
        negative: those with negative values.
        unknown: those of which this is not known.
        exact: whether it is from the rows, and not from bounds.
    """

    p_ratio: BoolArray
    nk: BoolArray
    negative: BoolArray
    unknown: BoolArray
    exact: bool

    def without(self, columns: BoolArray) -> "Dominance":
        """Return it without these columns (c,), in which nothing is found."""
        names = ("p_ratio", "nk", "negative", "unknown")
        return replace(self, **{name: getattr(self, name) & ~columns for name in names})


def dominance_in(X: FloatArray, labels: IntArray, k: int) -> Dominance:
    """Return it of the sums of rows X (n, d) by label (n,), -1 for rows of none, as a table (k, d); X is finite."""
    shape = k, X.shape[1]
    p_ratio, nk, negative = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
    for c in range(k):
        own = X[labels == c]
        if not len(own):
            continue
        negative[c] = (own < 0).any(axis=0)
        largest = -np.sort(-own, axis=0)[:N]
        p_ratio[c], nk[c] = _found(own.sum(axis=0), largest[0], largest.sum(axis=0))
    return Dominance(p_ratio & ~negative, nk & ~negative, negative, np.zeros(shape, dtype=np.bool_), exact=True)


def dominance_by_moments(rows: IntArray, means: FloatArray, squares: FloatArray) -> Dominance:
    """Return it of sums (r, c) by their numbers of rows, means and sums of squared deviations from these, each (r, c)."""
    n = np.maximum(rows, 1)
    deviation, total = np.sqrt(squares / n), n * means
    largest, two = (m * means + deviation * np.sqrt(m * np.maximum(n - m, 0)) for m in (1, N))
    p_ratio, nk = _found(total, largest, np.where(n > N, two, total))
    there, negative = rows > 0, (means < 0) & (rows > 0)
    few = there & (n <= N) & (total > 0)  # so few rows are always all of it
    unknown = there & ~few & ~negative & (p_ratio | nk)
    return Dominance(few & ~negative, few & ~negative, negative, unknown, exact=False)


def _found(total: FloatArray, largest: FloatArray, two: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Return where the p % rule, and the (n, k) rule, do not allow a total with these largest values."""
    rest, error = total - two, 1e-12 * np.abs(total)  # of sums
    return rest + error < P / 100 * largest, two - error > K / 100 * total
