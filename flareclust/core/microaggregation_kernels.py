"""Numba kernels of microaggregation: rows are cut into groups of similar rows, none smaller than a floor.

Serial, and added in a fixed order, as those of core/kernels.py. A segment of rows is `order[lo:hi]`, row numbers of Z; the
kernels permute it.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel
from flareclust.core.loops import (
    argsort,
    copy_into,
    fill,
    projection,
    segment_mean,
    segment_of,
    squared_distance,
    squared_norm,
)
from flareclust.core.microaggregation_groups import DIFFERENT, different, merge_uniform, refine

#: Segments of at most so many rows are cut to groups and then refined together: the work grows with its square.
NODE = 512

#: Most tries to improve the direction of a cut: few while segments are large.
_TRIES, _TRIES_LARGE, _POWER_STEPS = 8, 2, 4


def partition(Z: FloatArray, floor: int, far: float) -> IntArray:
    """Return the group (n,) of each row of Z (n, d), or -1 for rows that belong to none.

    A group has at least `floor` rows. Rows are in none where fewer than `floor` of them lie more than `far` times as far
    from the others as these spread, or where all rows around are the same few.
    """
    labels, order, groups = np.full(len(Z), -1, dtype=np.int64), np.arange(len(Z)), 0
    segments = [(0, len(Z))]
    while segments:
        lo, hi = segments.pop()
        hi = _without_far(Z, order, lo, hi, floor, far)
        if hi - lo > NODE:
            mid = _cut(Z, order, lo, hi, floor)
            segments += [(mid, hi), (lo, mid)] if mid else []
        elif hi - lo >= floor:
            groups = _finish(Z, order[lo:hi], floor, far, labels, groups)
    return labels


def of_different_rows(Z: FloatArray, labels: IntArray) -> IntArray:
    """Return the groups (n,) of rows Z (n, d), numbered anew, without those of too few different rows."""
    order = np.argsort(labels, kind="stable")
    grouped, kept, groups = labels[order], np.full_like(labels, -1), 0
    starts = np.flatnonzero(np.diff(grouped, prepend=-1))
    for members in np.split(order, starts)[1:]:
        if different(Z, members) >= DIFFERENT:
            kept[members] = groups
            groups += 1
    return kept


def _finish(Z: FloatArray, order: IntArray, floor: int, far: float, labels: IntArray, groups: int) -> int:
    """Cut a small segment into groups, refine them, and number those that can be released from `groups` on."""
    own, found = np.full(len(order), -1, dtype=np.int64), 0
    segments = [(0, len(order))]
    while segments:
        lo, hi = segments.pop()
        hi = _without_far(Z, order, lo, hi, floor, far)
        mid = _cut(Z, order, lo, hi, floor) if hi - lo >= 2 * floor else 0
        if mid:
            segments += [(mid, hi), (lo, mid)]
        elif hi - lo >= floor:
            own[lo:hi] = found
            found += 1
    refine(Z, order, own, found, floor)
    merge_uniform(Z, order, own, found)
    for g in range(found):
        members = order[own == g]
        members = members[: _without_far(Z, members, 0, len(members), floor, far)]
        if len(members) >= floor and different(Z, members) >= DIFFERENT:
            labels[members] = groups
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
        segment_mean(Z, order, lo, hi, centre)
        farthest, reach = lo, 0.0
        for i in range(lo, hi):
            squared = squared_distance(Z[order[i]], centre)
            if squared > reach:
                farthest, reach = i, squared
        if maximum < 1 or reach == 0:
            return hi
        for j in range(d):
            along[j] = Z[order[farthest], j] - centre[j]
            total[j] = 0.0
        first = _first(Z, order, lo, hi, centre, along, maximum)
        best, size = 0.0, 0
        for i in range(maximum):
            for j in range(d):
                total[j] += Z[order[first[i]], j] - centre[j]
            gain = squared_norm(total) * (1 / (i + 1) + 1 / (n - i - 1))
            if gain > best:
                best, size = gain, i + 1
                copy_into(total, shift)
        rest, spread = n - size, 0.0
        for j in range(d):
            centre[j] -= shift[j] / rest
        moved = np.zeros(n, np.bool_)
        for i in range(size):
            moved[first[i] - lo] = True
        for i in range(n):
            if not moved[i]:
                spread += squared_distance(Z[order[lo + i]], centre)
        if size == 0 or not squared_norm(shift) * (1 / size + 1 / rest) ** 2 > far * far * spread / rest:
            return hi
        segment, at = segment_of(order, lo, hi), lo
        for last in range(2):
            for i in range(n):
                if moved[i] == (last == 1):
                    order[at] = segment[i]
                    at += 1
        hi -= size
    return hi


@kernel()
def _first(
    Z: FloatArray, order: IntArray, lo: int, hi: int, centre: FloatArray, along: FloatArray, maximum: int
) -> IntArray:
    """Return the places of the `most` rows of a segment that lie farthest along a direction, the farthest first."""
    places, values, size = np.zeros(maximum, np.int64), np.empty(maximum), 0
    for i in range(lo, hi):
        value = projection(Z[order[i]], centre, along)
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
    segment_mean(Z, order, lo, hi, centre)
    along = _principal_axis(Z, order, lo, hi, centre)
    best, at, ranking = 0.0, 0, np.arange(n)
    projected = np.empty(n)
    for _ in range(_TRIES if n <= NODE else _TRIES_LARGE):
        for i in range(n):
            projected[i] = projection(Z[order[lo + i]], centre, along)
        ranked = argsort(projected)
        fill(total, 0.0)
        better, here = 0.0, 0
        for i in range(1, n - floor + 1):
            x = Z[order[lo + ranked[i - 1]]]
            for j in range(d):
                total[j] += x[j] - centre[j]
            if i >= floor:
                gain = squared_norm(total) * (1 / i + 1 / (n - i))
                if gain > better:
                    better, here = gain, i
                    copy_into(total, shift)
        if not better > best * (1 + 1e-12):
            break
        best, at, ranking = better, here, ranked
        for j in range(d):
            along[j] = -shift[j]
    if at == 0:
        return 0
    segment = segment_of(order, lo, hi)
    for i in range(n):
        order[lo + i] = segment[ranking[i]]
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
    widest = 0
    for j in range(d):
        if moved[j] > moved[widest]:
            widest = j
    axis[widest] = 1.0
    for _ in range(_POWER_STEPS):
        fill(moved, 0.0)
        for i in range(lo, hi):
            x = Z[order[i]]
            projected = projection(x, centre, axis)
            for j in range(d):
                moved[j] += (x[j] - centre[j]) * projected
        size = np.sqrt(squared_norm(moved))
        if size == 0:
            break
        for j in range(d):
            axis[j] = moved[j] / size
    return axis
