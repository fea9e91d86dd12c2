"""Microaggregation: a table in which no number is about fewer rows than a floor.

The rows are divided into groups of similar rows, each of at least `floor` rows. In the place of a group's rows come as many
synthetic ones with the same mean and, within the group, the same spread. Whatever is computed from such a table is
computed from the size, the mean and the spread of each group (d + 2 numbers for at least floor * d values), however often
and in whatever way it is asked.

Source: Domingo-Ferrer, Mateo-Sanz (2002), Practical data-oriented microaggregation for statistical disclosure control;
groups by repeated division with 2-means and then by exchanges, as in microaggregation with groups of variable size.

1. Columns are scaled by the geometric mean of their standard deviation and a sixth of their range: units do not matter, and
   columns that are nearly constant count less than by the standard deviation alone.
2. The groups follow from the values only, not from the order of the rows and from no random number, so that every job at
   a site works on the same groups. Tables larger than `CHUNK` are divided into chunks of consecutive rows first.
3. Fewer than `floor` rows that lie far from all others belong to no group and are not in the result: a mean with them would
   show where they are. So do rows whose near rows are all the same one or two.
4. Where a group's mean of a column would disclose the value of one row, since the others have nearly the same value, that row's
   value is moved to theirs before the mean is taken: the p % rule of disclosure control, with p = 10
   (`flareclust.core.microaggregation`).
5. Only for dividing the rows, missing cells count as the median of their column's known ones. What a group shows is the mean of
   its known cells, to which alone the p % rule is applied. A group that has fewer known cells in a column than half the floor,
   or too few that the p % rule leaves, shows none of them: it gets the mean of what the chunk's other groups show, weighted
   by their rows. That follows from what is shown anyway, so no cell can be computed from it that no group shows. A column that no
   group of the chunk shows is missing in the result.
6. Within a group the synthetic rows spread alike in all columns, in units of the column's own spread within groups.
   The sum of squares within all groups of a chunk is kept for each column.
"""

from collections.abc import Iterator

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core.chunks import pieces
from flareclust.core.microaggregation_kernels import argsort, of_different_rows, partition
from flareclust.core.runtime import kernel

#: Bytes of rows that are divided into groups at once.
CHUNK = 16 << 20

#: The smallest group whose mean and spread do not give its rows away.
SMALLEST_GROUP = 3

#: Rows are far from others beyond so many times the others' root mean square distance from their mean.
_FAR = 10.0

#: Rows beyond so many half ranges of the others are as far as any: their squares stay finite.
_FARTHEST = 1e9


def microaggregate(X: FloatArray, floor: int, withdrawn: BoolArray | None = None) -> Iterator[FloatArray]:
    """Yield synthetic rows (m, d), m <= n in all, in the place of the rows X (n, d), chunk by chunk; NaN where a cell is
    missing.

    Args:
        floor: the least number of rows of a group; at least `SMALLEST_GROUP` are taken.
        withdrawn: which rows (n,) may be in no group that is used. Their groups are left out as a whole, and all others are
            the same to the last bit as without this, so that two results can be subtracted for whole groups only.
    """
    return (rows for rows, _, _ in microaggregate_with_sources(X, floor, withdrawn))


def microaggregate_with_sources(
    X: FloatArray, floor: int, withdrawn: BoolArray | None = None
) -> Iterator[tuple[FloatArray, IntArray, IntArray]]:
    """Yield what `microaggregate` does, and for each synthetic row the place in X (m,) of a row that it stands for, each once, and
    the number of their group (m,) in the chunk.
    """
    n, d = X.shape
    for part in pieces(n, d, CHUNK):
        rows = np.array(X[part])
        order = _order_of(rows)
        shown, labels = grouped(rows[order], floor)
        by_group = np.argsort(labels, kind="stable")
        by_group = by_group[labels[by_group] >= 0]
        made, sources, groups = _synthetic_rows(shown, labels), part.start + order[by_group], labels[by_group]
        if withdrawn is not None:
            stays = ~np.isin(groups, labels[withdrawn[part][order]])
            made, sources, groups = made[stays], sources[stays], groups[stays]
        yield made, sources, groups


def in_order(X: FloatArray) -> FloatArray:
    """Return the rows X (n, d) ordered by their values, so that nothing follows from the order they had."""
    return X[_order_of(X)]


def _order_of(X: FloatArray) -> IntArray:
    return np.lexsort(X.T[::-1])


def grouped(X: FloatArray, floor: int) -> tuple[FloatArray, IntArray]:
    """Return the rows X (n, d) of a chunk, in order, as their groups (n,) show them, and these groups.

    A column that no group shows is NaN in all rows.
    """
    known = ~np.isnan(X)
    if known.all():
        return released(X, groups_of(X, floor))
    labels = groups_of(np.where(known, X, _medians(X)), floor)
    cells = _totals(known, labels)
    shown = known & (cells[labels] >= max(-(-floor // 2), SMALLEST_GROUP))
    return released(np.where(shown, X, np.nan), labels)


def _medians(X: FloatArray) -> FloatArray:
    """Return the median of the known cells of each column of X (n, d), 0 where none is known."""
    columns = (column[~np.isnan(column)] for column in X.T)
    return np.array([np.median(column) if len(column) else 0.0 for column in columns])


def groups_of(X: FloatArray, floor: int) -> IntArray:
    """Return the group (n,) of each of the rows X (n, d), n >= 1: 0, 1, ..., or -1 for rows that belong to none."""
    floor = max(floor, SMALLEST_GROUP)
    labels = partition(_scaled(X, X), floor, _FAR)
    if 0 < np.count_nonzero(labels >= 0) < len(X):
        # Once more by the others' spread: rows far away may have made all others look alike.
        labels = partition(_scaled(X, X[labels >= 0]), floor, _FAR)
    return labels


def released(X: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the rows X (n, d) and their groups (n,) whose means may be disclosed: by the p % rule, and of different rows still.

    NaN stands for cells that are not shown; they become what the groups show.
    """
    moved, labels = without_dominant(X, labels)
    filled = _filled(moved, labels)
    kept = filled[labels >= 0]
    if not len(kept):
        return filled, labels
    labels = of_different_rows(np.where(np.isnan(moved), np.nan, _scaled(filled, kept)), labels)
    return _filled(moved, labels), labels


def _filled(X: FloatArray, labels: IntArray) -> FloatArray:
    """Return the rows X (n, d) with the mean of their group (n,) in the place of NaN, or else that of the groups that have one."""
    gaps = np.isnan(X)
    if not gaps.any():
        return X
    cells, rows = _totals(~gaps, labels), _totals(np.ones(X.shape), labels)
    means = _totals(np.where(gaps, 0.0, X), labels) / np.maximum(cells, 1)
    rows[-1], rows[cells == 0] = 0.0, 0.0
    with np.errstate(invalid="ignore"):  # NaN where no group has one
        others = (rows * means).sum(axis=0) / rows.sum(axis=0)
    return np.where(gaps, np.where(cells > 0, means, others)[labels], X)


def _totals(values: Array, labels: IntArray) -> FloatArray:
    """Return the sums (groups + 1, d) of values (n, d) by group (n,), the last one of rows that belong to none."""
    groups = labels.max(initial=-1) + 1
    own = np.where(labels < 0, groups, labels)
    return np.column_stack([np.bincount(own, column, minlength=groups + 1) for column in values.T])


def _synthetic_rows(X: FloatArray, labels: IntArray) -> FloatArray:
    """Return rows (m, d), group by group, as many as each (n,) but -1 has in X (n, d), with its mean and spread."""
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    labels, n, d = labels[order], len(order), X.shape[1]
    if not n:
        return np.empty((0, d))
    within, sizes = X[order], np.bincount(labels)
    near = _near(within.mean(axis=0))
    within -= near
    means = _by_group(within, labels, sizes)
    within -= means[labels]
    column = np.sqrt((within**2).mean(axis=0))  # the spread within groups, by column
    scaled = np.divide(within, column, out=np.zeros_like(within), where=column > 0)
    spread = _by_group((scaled**2).sum(axis=1, keepdims=True), labels, sizes) / max(
        1, int(np.count_nonzero(column > 0))
    )
    return np.asarray(near + means[labels] + _pattern(labels, sizes, d) * column * np.sqrt(spread)[labels])


def _pattern(labels: IntArray, sizes: IntArray, d: int) -> FloatArray:
    """Return numbers (m, d) that have mean 0 and variance 1 in each group and column, and are the same everywhere."""
    drawn = np.random.default_rng(0).normal(size=(len(labels), d))
    drawn -= _by_group(drawn, labels, sizes)[labels]
    drawn /= np.sqrt(_by_group(drawn**2, labels, sizes))[labels]
    return drawn


def _by_group(values: FloatArray, labels: IntArray, sizes: IntArray) -> FloatArray:
    """Return the means (groups, d) of values (m, d)."""
    return _totals(values, labels)[:-1] / sizes[:, None]


def _near(mean: FloatArray) -> FloatArray:
    """Return the mean (d,) to three digits: differences from it lose none, and it holds nothing that the mean does not."""
    tiny = np.abs(mean) < 1e-290
    unit = 10.0 ** (np.floor(np.log10(np.where(tiny, 1.0, np.abs(mean)))) - 2)
    return np.where(tiny, 0.0, np.rint(mean / unit) * unit)


def _scaled(X: FloatArray, like: FloatArray) -> FloatArray:
    """Return rows in which columns are comparable, whatever their units; by the spread of the rows `like`, some of X."""
    low = like.min(axis=0)
    reach = (like.max(axis=0) - low) / 2
    unit = np.divide(X - low, reach, out=np.zeros_like(X), where=reach > 0) - 1  # now squares cannot overflow
    inside = (np.abs(unit) <= 1).all(axis=1)
    scale = np.sqrt(unit[inside].std(axis=0) / 3)  # of a range of 2
    return np.asarray(np.divide(np.clip(unit, -_FARTHEST, _FARTHEST), scale, out=np.zeros_like(X), where=scale > 0))


# The p % rule of disclosure control: no value of a row stands alone in the mean of its group.
#
# Source: Hundepool et al. (2012), Statistical Disclosure Control, chapter 4 (dominance and p % rules for sums). A sum over a
# group discloses its largest contribution, here a deviation from the group's median, if all but the two largest ones come to
# less than p % of it.
#
# Here the values above move to the largest one that the values below it do hide, since the sum discloses the next one otherwise.

#: p % as a share.
_SHARE = 0.1

#: So many rows have to have values of their own in each column; fewer would be disclosed by the others' moving to theirs.
_BASE = 3


def without_dominant(X: FloatArray, labels: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the rows X (n, d) with those values moved that the mean of their group (n,) and column would disclose; NaN is
    in no mean.

    With them come the groups (n,), where rows belong to none (-1) if their group would have less than three rows left that
    no value was moved to. Where that is so in a column with NaN, the group has NaN in all of that column instead.
    """
    order = np.argsort(labels, kind="stable")
    order = order[labels[order] >= 0]
    grouped, moved, kept = X[order], X.copy(), labels.copy()
    starts = np.cumsum(np.bincount(labels[order] + 1))
    exposed = np.zeros(max(len(starts) - 1, 0), dtype=np.bool_)
    pull_in(grouped, starts, _SHARE, exposed)
    moved[order] = grouped
    kept[order[exposed[labels[order]]]] = -1
    return moved, kept


@kernel()
def pull_in(X: FloatArray, starts: IntArray, share: float, exposed: BoolArray) -> None:
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
    """Return whether all values but the `most` least or largest ones lie so close together that `pull_in` may apply."""
    ends = np.empty((2, 3))  # the three least, and the three largest negated, each in increasing order
    ends[:] = np.inf
    for value in values:
        for side in range(2):
            x = value if side == 0 else -value
            for r in range(3):
                if x < ends[side, r]:
                    x, ends[side, r] = ends[side, r], x
    reach, closest = -ends[1, 0] - ends[0, 0], np.inf
    for r in range(maximum + 1):
        closest = min(closest, -ends[1, maximum - r] - ends[0, r])
    return bool(closest < share * reach)
