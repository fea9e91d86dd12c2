"""The p % rule of disclosure control: no value of a row stands alone in the mean of its group.

Source: Hundepool et al. (2012), Statistical Disclosure Control, chapter 4 (dominance and p % rules for sums). A sum over a
group discloses its largest contribution, here a deviation from the group's median, if all but the two largest ones come to
less than p % of it.

Here the values above move to the largest one that the values below it do hide, since the sum discloses the next one otherwise.
"""

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.jit import kernel
from flareclust.core.loops import argsort, fill

#: p % as a share.
SHARE = 0.1

#: So many rows have to have values of their own in each column; fewer would be disclosed by the others' moving to theirs.
_BASE = 3


def without_dominant(X: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the rows X (n, d) with those values moved that the mean of their group (n,) and column would disclose.

    With them come the groups (n,), where rows belong to none (-1) if their group would have less than three rows left that
    no value was moved to. Where that is so in a column with NaN, the group has NaN in all of that column instead.

    Args:
        X: rows (n, d), NaN for values that are in no mean.
        labels: the group of each, -1 for rows that belong to none.
    """
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    grouped, moved, kept = X[order], X.copy(), labels.copy()
    starts = np.cumsum(np.bincount(labels[order] + 1))
    exposed = np.zeros(max(len(starts) - 1, 0), dtype=np.bool_)
    _pull_in(grouped, starts, SHARE, exposed)
    moved[order] = grouped
    kept[order[exposed[labels[order]]]] = -1
    return moved, kept


@kernel()
def _pull_in(X: FloatArray, starts: IntArray, share: float, exposed: BoolArray) -> None:
    """Move, in place, values of the rows X (n, d) towards the median of their group; group g is `X[starts[g]:starts[g + 1]]`.

    Groups become `exposed` if their values would have to move to one or two rows' own.
    """
    for g in range(len(starts) - 1):
        lo, hi = starts[g], starts[g + 1]
        places, known, away = np.empty(hi - lo, np.int64), np.empty(hi - lo), np.empty(hi - lo)
        for j in range(X.shape[1]):
            n = 0
            for i in range(lo, hi):
                if not np.isnan(X[i, j]):
                    places[n], known[n] = i, X[i, j]
                    n += 1
            values, maximum = known[:n], 2 if n > _BASE else 1
            if not _lopsided(values, maximum, share):
                continue
            by_value = argsort(values)
            median = values[by_value[n // 2]] / 2 + values[by_value[(n - 1) // 2]] / 2
            for i in range(n):
                away[i] = abs(values[i] - median)
            ranked, rest = argsort(away[:n]), 0.0
            for i in range(n - maximum):
                rest += away[ranked[i]]
            if rest >= share * away[ranked[n - 1]]:
                continue
            last = n - 1 - maximum  # the place of the largest value that stays
            while last >= 0:
                rest = 0.0
                for i in range(last):
                    rest += away[ranked[i]]
                if away[ranked[last]] == 0 or rest >= share * away[ranked[last]]:
                    break
                last -= 1
            if last < _BASE - 1 and n < hi - lo:
                for i in range(n):
                    X[places[i], j] = np.nan
                continue
            if last < _BASE - 1:
                exposed[g] = True
                break
            limit = away[ranked[last]]
            for r in range(last + 1, n):
                i = ranked[r]
                X[places[i], j] = median + limit if values[i] > median else median - limit


@kernel()
def _lopsided(values: FloatArray, maximum: int, share: float) -> bool:
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
    for r in range(maximum + 1):
        closest = min(closest, -ends[1, maximum - r] - ends[0, r])
    return bool(closest < share * reach)
