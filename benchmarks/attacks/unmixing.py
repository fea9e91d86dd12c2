"""From the synthetic rows that jobs see to the groups behind them, and to rows that are alone with a value in their group.

A server learns synthetic rows one by one (`server.borders`). How they lie about the mean of their group is public: a pattern
that is the same everywhere, times a spread for each column. So two rows of a group predict all others, and a group is found
where the predicted rows are among those that were learned. Its sum is that of its true rows.
"""

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.attacks import server
from benchmarks.attacks.questions import Ask
from flareclust._foundation.typing import FloatArray, IntArray

#: Columns by which predicted rows are looked up before all others are compared.
_COLUMNS = 3

#: Directions in which borders move; the few rows at either end of each are not reported.
_DIRECTIONS = 6

#: How well a predicted row must fit, in units of its column's spread.
_FITS = 1e-6


def sums_of_groups(rows: FloatArray, floor: int) -> tuple[list[FloatArray], int]:
    """Return the sums (d,) of the groups that synthetic rows (m, d) are made of, as far as they are found in order.

    Returns also of how many rows they are.
    """
    columns = rows.std(axis=0)
    used = np.argsort(-columns, kind="stable")
    used = used[columns[used] > 0]
    unit = rows[:, used] / columns[used]
    drawn = np.random.default_rng(0).normal(size=(len(rows) + 4 * floor, rows.shape[1]))[:, used]
    left, at, sums = np.arange(len(rows)), 0, list[FloatArray]()
    while len(left) >= floor:
        members = _group(unit, left, drawn[at : at + 3 * floor], floor)
        if members is None:
            break
        sums.append(rows[members].sum(axis=0))
        left, at = np.setdiff1d(left, members), at + len(members)
    return sums, at


def _group(unit: FloatArray, left: IntArray, drawn: FloatArray, floor: int) -> IntArray | None:
    """Return which of the rows that are left are a group with this part of the pattern; None where there is none.

    A column of a group is its mean and a multiple of the pattern, so that two rows of it locate the others.
    """
    few, own = slice(0, _COLUMNS), unit[left]
    tree = cKDTree(own[:, few])
    i, j = (axis.ravel() for axis in np.meshgrid(np.arange(len(left)), np.arange(len(left)), indexing="ij"))
    i, j = i[i != j], j[i != j]
    steps = (drawn - drawn[0]) / (drawn[1] - drawn[0])
    third = own[i][:, few] + (own[j] - own[i])[:, few] * steps[2, few]
    near, _ = tree.query(third, distance_upper_bound=10 * _FITS)
    for p in np.flatnonzero(np.isfinite(near)):
        predicted = own[i[p]] + (own[j[p]] - own[i[p]]) * steps
        where = tree.query(predicted[:, few])[1]
        fits = np.abs(own[where] - predicted).max(axis=1) <= 1e3 * _FITS
        size = int(np.argmin(fits)) if not fits.all() else len(fits)
        if size >= floor and len(np.unique(where[:size])) == size:
            members: IntArray = left[where[:size]]
            return members
    return None


def _different(rows: Sequence[FloatArray]) -> list[FloatArray]:
    """Return rows without those that are another one but for rounding."""
    if not len(rows):
        return []
    found = np.array(rows)
    unit = found / np.where(found.std(axis=0) > 0, found.std(axis=0), 1.0)
    again = cKDTree(unit).query_pairs(_FITS, p=np.inf, output_type="ndarray")
    return list(np.delete(found, np.unique(again[:, 1]), axis=0))


def rows_alone(ask: Ask, d: int, exchanges: int, floor: int = 10) -> list[FloatArray]:
    """Claim rows that are alone with a value in their group and column, and have 0 in all others, from answers only."""
    by_direction = [server.borders(ask, d, exchanges // _DIRECTIONS, i, every_row=True) for i in range(_DIRECTIONS)]
    learned = _different([row for own in by_direction for row in own])
    if len(learned) < floor:
        return []
    sums, _ = sums_of_groups(np.array(learned), floor)
    return server.alone(np.array(sums)) if sums else []
