"""The p % rule of disclosure control: no value of a row stands alone in the mean of its group.

Source: Hundepool et al. (2012), Statistical Disclosure Control, chapter 4 (dominance and p % rules for sums). A sum over a
group tells its largest contribution, here a deviation from the group's median, if all but the two largest ones come to
less than p % of it.
"""

import numpy as np
from numba import njit

from flareclust.core.loops import argsort, fill
from flareclust.typing import FloatArray, IntArray

#: p % as a share.
SHARE = 0.1


def without_dominant(X: FloatArray, labels: IntArray) -> FloatArray:
    """Return the rows X (n, d) with those values moved which the mean of their group (n,) and column would tell.

    Args:
        X: rows (n, d).
        labels: the group of each, -1 for rows that belong to none.
    """
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    grouped, moved = X[order], X.copy()
    _pull_in(grouped, np.cumsum(np.bincount(labels[order] + 1)), SHARE)
    moved[order] = grouped
    return moved


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _pull_in(X: FloatArray, starts: IntArray, share: float) -> None:
    """Move, in place, values of the rows X (n, d) towards the median of their group; group g is `X[starts[g]:starts[g + 1]]`.

    The two values become as far away as the third. Of fewer than six rows the largest alone is looked at, for the median
    can be the value of one row there.
    """
    for g in range(len(starts) - 1):
        lo, n = starts[g], starts[g + 1] - starts[g]
        most = 2 if n >= 6 else 1
        values, away = np.empty(n), np.empty(n)
        for j in range(X.shape[1]):
            for i in range(n):
                values[i] = X[lo + i, j]
            if not _lopsided(values, most, share):
                continue
            by_value = argsort(values)
            median = values[by_value[n // 2]] / 2 + values[by_value[(n - 1) // 2]] / 2
            for i in range(n):
                away[i] = abs(values[i] - median)
            ranked, rest = argsort(away), 0.0
            for i in range(n - most):
                rest += away[ranked[i]]
            if rest < share * away[ranked[n - 1]]:
                limit = away[ranked[n - 1 - most]]
                for r in range(most):
                    i = ranked[n - 1 - r]
                    X[lo + i, j] = median + limit if values[i] > median else median - limit


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _lopsided(values: FloatArray, most: int, share: float) -> bool:
    """Return whether all values but the `most` least or largest ones lie so close together that `_pull_in` may apply."""
    ends = np.empty((2, 3))  # the three least, and the three largest negated, each in increasing order
    fill(ends[0], np.inf)
    fill(ends[1], np.inf)
    for value in values:
        for side in range(2):
            x = value if side == 0 else -value
            for r in range(3):
                if x < ends[side, r]:
                    x, ends[side, r] = ends[side, r], x
    reach = -ends[1, 0] - ends[0, 0]
    closest = np.inf
    for r in range(most + 1):
        closest = min(closest, -ends[1, most - r] - ends[0, r])
    return bool(closest < share * reach)
