"""Numba kernels of microaggregation: rows are cut into groups of similar rows, none smaller than a floor.

Serial, and added in a fixed order, as those of core/kernels.py. A segment of rows is `order[lo:hi]`, row numbers of Z; the
kernels permute it, and threads do so for several segments at once.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import kernel
from flareclust.core.threads import Team, team

_T = TypeVar("_T")

#: Segments of at most so many rows are cut to groups and then refined together: the work grows with its square.
_NODE = 512

#: Coordinate differences, at the least, for each number of the rows.
_WORK = 500

#: Most tries to improve the direction of a cut: few while segments are large.
_TRIES, _TRIES_LARGE, _POWER_STEPS = 8, 2, 4


def partition(Z: FloatArray, floor: int, far: float) -> IntArray:
    """Return the group (n,) of each row of Z (n, d), or -1 for rows that belong to none.

    A group has at least `floor` rows. Rows are in none where fewer than `floor` of them lie more than `far` times as far
    from the others as these spread, or where all rows around are the same few.
    """
    labels, order, groups = np.full(len(Z), -1, dtype=np.int64), np.arange(len(Z)), 0
    with team(_WORK * Z.size) as own:
        segments = _segments(Z, order, floor, far, own)
        # Of each segment its groups get numbers from 0 on.
        numbers = _of_each(own, lambda lo, hi: _finish(Z, order[lo:hi], floor, far, labels), segments)
    for (lo, hi), number in zip(segments, numbers, strict=True):
        members = order[lo:hi]
        labels[members[labels[members] >= 0]] += groups
        groups += number
    return labels


def _segments(Z: FloatArray, order: IntArray, floor: int, far: float, own: Team) -> list[tuple[int, int]]:
    """Sort rows; return segments lo:hi of them, without rows far away, of `floor` to `_NODE` rows."""
    waiting, found = [(0, len(order))], []

    def divide(lo: int, hi: int) -> tuple[int, int, int]:
        hi = _without_far(Z, order, lo, hi, floor, far)
        return lo, (_cut(Z, order, lo, hi, floor) if hi - lo > _NODE else 0), hi

    while waiting:
        divided = _of_each(own, divide, waiting)
        found += [(lo, hi) for lo, mid, hi in divided if not mid and floor <= hi - lo <= _NODE]
        waiting = [half for lo, mid, hi in divided if mid for half in ((lo, mid), (mid, hi))]
    return sorted(found)


def _of_each(own: Team, work: Callable[[int, int], _T], segments: list[tuple[int, int]]) -> list[_T]:
    """Return what the work returns of each segment lo:hi, in turn; large ones are begun first, since sizes differ."""
    found: dict[tuple[int, int], _T] = {}
    left = iter(sorted(segments, key=lambda segment: segment[0] - segment[1]))  # threads take one at a time

    def take(_: slice) -> None:
        try:
            found.update((segment, work(*segment)) for segment in left)
        except BaseException:
            list(left)  # other threads begin nothing more
            raise

    own.each(take, [slice(0)] * own.threads)
    return [found[segment] for segment in segments]


def of_different_rows(Z: FloatArray, labels: IntArray) -> IntArray:
    """Return the groups (n,) of rows Z (n, d), numbered anew, without those of too few different rows."""
    order = np.argsort(labels, kind="stable")
    grouped, kept, groups = labels[order], np.full_like(labels, -1), 0
    starts = np.flatnonzero(np.diff(grouped, prepend=-1))
    for members in np.split(order, starts)[1:]:
        if _different(Z, members) >= _DIFFERENT:
            kept[members] = groups
            groups += 1
    return kept


@kernel()
def _finish(Z: FloatArray, order: IntArray, floor: int, far: float, labels: IntArray) -> int:
    """Cut a small segment into groups, refine them, and number those that can be released; return how many these are."""
    own, found, groups = np.full(len(order), -1, np.int64), 0, 0
    waiting, size = np.empty((len(order) + 1, 2), np.int64), 1
    waiting[0, 0], waiting[0, 1] = 0, len(order)
    while size > 0:
        size -= 1
        lo = waiting[size, 0]
        hi = _without_far(Z, order, lo, waiting[size, 1], floor, far)
        mid = _cut(Z, order, lo, hi, floor) if hi - lo >= 2 * floor else 0
        if mid > 0:
            waiting[size, 0], waiting[size, 1] = mid, hi
            waiting[size + 1, 0], waiting[size + 1, 1] = lo, mid
            size += 2
        elif hi - lo >= floor:
            own[lo:hi] = found
            found += 1
    _refine(Z, order, own, found, floor)
    _merge_uniform(Z, order, own, found)
    for g in range(found):
        members = order[own == g]
        size = _without_far(Z, members, np.int64(0), len(members), floor, far)  # compiled again for a plain 0
        if size >= floor and _different(Z, members[:size]) >= _DIFFERENT:
            for row in members[:size]:
                labels[row] = groups
            groups += 1
    return groups


@kernel()
def _without_far(Z: FloatArray, order: IntArray, lo: int, hi: int, floor: int, far: float) -> int:
    """Move rows that lie far from all others to the end of the segment; return where the others end."""
    d = Z.shape[1]
    centre, along, shift, total = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    while hi - lo >= max(floor, 2):
        n = hi - lo
        maximum = min(floor - 1, n // 2)
        _segment_mean(Z, order, lo, hi, centre)
        farthest, reach = lo, 0.0
        for i in range(lo, hi):
            squared = _squared_distance(Z[order[i]], centre)
            if squared > reach:
                farthest, reach = i, squared
        if maximum < 1 or reach == 0:
            return hi
        total[:] = 0.0
        for j in range(d):
            along[j] = Z[order[farthest], j] - centre[j]
        first = _first(Z, order, lo, hi, centre, along, maximum)
        best, size = 0.0, 0
        for i in range(maximum):
            for j in range(d):
                total[j] += Z[order[first[i]], j] - centre[j]
            gain = _squared_norm(total) * (1 / (i + 1) + 1 / (n - i - 1))
            if gain > best:
                best, size = gain, i + 1
                for j in range(d):
                    shift[j] = total[j]
        rest, spread = n - size, 0.0
        for j in range(d):
            centre[j] -= shift[j] / rest
        moved = np.zeros(n, np.bool_)
        for i in range(size):
            moved[first[i] - lo] = True
        for i in range(n):
            if not moved[i]:
                spread += _squared_distance(Z[order[lo + i]], centre)
        if size == 0 or not _squared_norm(shift) * (1 / size + 1 / rest) ** 2 > far * far * spread / rest:
            return hi
        segment, stay, leave = order[lo:hi].copy(), lo, hi - size
        for i in range(n):
            order[leave if moved[i] else stay] = segment[i]
            leave, stay = leave + moved[i], stay + 1 - moved[i]
        hi -= size
    return hi


@kernel()
def _first(
    Z: FloatArray, order: IntArray, lo: int, hi: int, centre: FloatArray, along: FloatArray, maximum: int
) -> IntArray:
    """Return the places of the `most` rows of a segment that lie farthest along a direction, the farthest first."""
    places, values, size = np.zeros(maximum, np.int64), np.empty(maximum), 0
    for i in range(lo, hi):
        value = _projection(Z[order[i]], centre, along)
        if size < maximum or value > values[size - 1]:
            if size < maximum:
                size += 1
            r = size - 1
            while r > 0 and values[r - 1] < value:
                values[r], places[r] = values[r - 1], places[r - 1]
                r -= 1
            values[r], places[r] = value, i
    return places


@kernel()
def _cut(Z: FloatArray, order: IntArray, lo: int, hi: int, floor: int) -> int:
    """Sort a segment along the line that divides it best into two parts of at least `floor` rows; return where, or 0.

    "Best" is the smallest sum of squares within the parts. The line starts as the first principal axis and then connects
    the two means, as in k-means with k = 2, as long as that is better.
    """
    n, d = hi - lo, Z.shape[1]
    centre, total, shift = np.empty(d), np.empty(d), np.zeros(d)
    _segment_mean(Z, order, lo, hi, centre)
    along = _principal_axis(Z, order, lo, hi, centre)
    best, at, ranking = 0.0, 0, np.arange(n)
    projected = np.empty(n)
    for _ in range(_TRIES if n <= _NODE else _TRIES_LARGE):
        for i in range(n):
            projected[i] = _projection(Z[order[lo + i]], centre, along)
        ranked = argsort(projected)
        total[:] = 0.0
        better, here = 0.0, 0
        for i in range(1, n - floor + 1):
            x = Z[order[lo + ranked[i - 1]]]
            for j in range(d):
                total[j] += x[j] - centre[j]
            if i >= floor:
                gain = _squared_norm(total) * (1 / i + 1 / (n - i))
                if gain > better:
                    better, here = gain, i
                    for j in range(d):
                        shift[j] = total[j]
        if not better > best * (1 + 1e-12):
            break
        best, at, ranking = better, here, ranked
        for j in range(d):
            along[j] = -shift[j]
    if at == 0:
        return 0
    for i, row in enumerate(order[lo:hi][ranking]):
        order[lo + i] = row
    return lo + at


@kernel()
def _principal_axis(Z: FloatArray, order: IntArray, lo: int, hi: int, centre: FloatArray) -> FloatArray:
    """Return roughly the first principal axis of a segment, by a few steps of the power method."""
    d = len(centre)
    axis, moved = np.zeros(d), np.zeros(d)
    for i in range(lo, hi):
        x = Z[order[i]]
        for j in range(d):
            moved[j] += (x[j] - centre[j]) ** 2
    axis[moved.argmax()] = 1.0
    for _ in range(_POWER_STEPS):
        moved[:] = 0.0
        for i in range(lo, hi):
            x = Z[order[i]]
            projected = _projection(x, centre, axis)
            for j in range(d):
                moved[j] += (x[j] - centre[j]) * projected
        size = np.sqrt(_squared_norm(moved))
        if size == 0:
            break
        for j in range(d):
            axis[j] = moved[j] / size
    return axis


# Groups of a small segment: better ones, and groups of enough different rows. A segment is `order`, row numbers of Z; `own` is
# the group of each, -1 for none.

#: Most passes of a refinement.
_PASSES = 10

#: Values of fewer different rows than this follow from their mean and spread.
_DIFFERENT = 3

#: Rows of scaled columns count as the same row for a mean if the square of their distance is no larger.
_SAME = 1e-12


@kernel()
def _refine(Z: FloatArray, order: IntArray, own: IntArray, groups: int, floor: int) -> None:
    """Move rows to groups with a nearer mean, or swap them where a group would fall below the floor."""
    m = len(order)
    squared, means = np.empty((m, max(groups, 1))), np.empty((groups, Z.shape[1]))
    nearest, gain, sizes = np.zeros(m, np.int64), np.zeros(m), np.zeros(groups, np.int64)
    for _ in range(_PASSES):
        _group_means(Z, order, own, means, sizes)
        gain[:] = 0.0
        for i in range(m):
            if own[i] >= 0:
                nearest[i] = 0
                for g in range(groups):
                    squared[i, g] = _squared_distance(Z[order[i]], means[g])
                    if squared[i, g] < squared[i, nearest[i]]:
                        nearest[i] = g
                gain[i] = squared[i, nearest[i]] - squared[i, own[i]]
        moved = False
        for i in argsort(gain):
            a, b = own[i], nearest[i]
            if gain[i] >= 0:
                break
            if a == b or squared[i, b] >= squared[i, a]:
                continue
            if sizes[a] > floor:
                own[i], moved = b, True
                sizes[a] -= 1
                sizes[b] += 1
                continue
            back, cost = -1, (squared[i, a] - squared[i, b]) * (1 - 1e-9)
            for j in range(m):
                if own[j] == b and squared[j, a] - squared[j, b] < cost:
                    back, cost = j, squared[j, a] - squared[j, b]
            if back >= 0:
                own[i], own[back], moved = b, a, True
        if not moved:
            break


@kernel()
def _merge_uniform(Z: FloatArray, order: IntArray, own: IntArray, groups: int) -> None:
    """Join groups of too few different rows to the group with the nearest mean, until none is left or all are one."""
    means, sizes = np.empty((groups, Z.shape[1])), np.zeros(groups, np.int64)
    for g in range(groups):
        while True:
            members = order[own == g]
            if len(members) == 0 or _different(Z, members) >= _DIFFERENT:
                break
            _group_means(Z, order, own, means, sizes)
            other, minimum = -1, np.inf
            for h in range(groups):
                if h != g and sizes[h] > 0:
                    apart = _squared_distance(means[h], means[g])
                    if apart < minimum:
                        other, minimum = h, apart
            if other < 0:
                break
            own[own == other] = g


@kernel()
def _different(Z: FloatArray, members: IntArray) -> int:
    """Return how many of these rows differ from one another where both are known, `_DIFFERENT` for more."""
    kinds, found = np.empty(_DIFFERENT, np.int64), 0
    for i in members:
        new = True
        for r in range(found):
            if _apart(Z[i], Z[kinds[r]]) <= _SAME:
                new = False
        if new:
            kinds[found] = i
            found += 1
            if found == _DIFFERENT:
                break
    return found


@kernel()
def _apart(x: FloatArray, y: FloatArray) -> float:
    """Return the square of the distance between x and y in the columns that both know; NaN is unknown."""
    total = 0.0
    for j in range(len(x)):
        if not np.isnan(x[j] - y[j]):
            total += (x[j] - y[j]) ** 2
    return total


# Loops that kernels share. Written out, since array expressions allocate and take long to compile.


@kernel()
def _segment_mean(Z: FloatArray, order: IntArray, lo: int, hi: int, mean: FloatArray) -> None:
    """mean (d,) becomes the mean of a segment's rows."""
    mean[:] = 0.0
    for i in range(lo, hi):
        x = Z[order[i]]
        for j in range(len(mean)):
            mean[j] += x[j]
    for j in range(len(mean)):
        mean[j] /= hi - lo


@kernel()
def _projection(x: FloatArray, centre: FloatArray, axis: FloatArray) -> float:
    """Return the coordinate of x along an axis, from a centre."""
    total = 0.0
    for j in range(len(axis)):
        total += (x[j] - centre[j]) * axis[j]
    return total


@kernel()
def _squared_distance(x: FloatArray, y: FloatArray) -> float:
    """Return the square of the distance between x and y."""
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return total


@kernel()
def _squared_norm(x: FloatArray) -> float:
    """Return the square of the length of x."""
    total = 0.0
    for value in x:
        total += value * value
    return total


@kernel()
def argsort(values: FloatArray) -> IntArray:
    """Return `np.argsort(values, kind="stable")` by a bottom-up merge sort, which compiles in a third of its time."""
    n, width = len(values), 1
    ranked, merged = np.arange(n), np.empty(n, np.int64)
    while width < n:
        for lo in range(0, n, 2 * width):
            middle, hi = min(lo + width, n), min(lo + 2 * width, n)
            a, b = lo, middle
            for at in range(lo, hi):
                if a < middle and (b == hi or values[ranked[a]] <= values[ranked[b]]):
                    merged[at] = ranked[a]
                    a += 1
                else:
                    merged[at] = ranked[b]
                    b += 1
        ranked, merged = merged, ranked
        width *= 2
    return ranked


@kernel()
def _group_means(Z: FloatArray, order: IntArray, own: IntArray, means: FloatArray, sizes: IntArray) -> None:
    """means (groups, d) and sizes become those of the groups `own` of a segment's rows."""
    means[:], sizes[:] = 0.0, 0
    for i in range(len(order)):
        if own[i] >= 0:
            sizes[own[i]] += 1
            for j in range(Z.shape[1]):
                means[own[i], j] += Z[order[i], j]
    for g in range(len(sizes)):
        for j in range(Z.shape[1]):
            means[g, j] /= max(sizes[g], 1)
