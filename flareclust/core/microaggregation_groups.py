"""Numba kernels for the groups of a small segment: better groups, and groups of enough different rows.

Serial, and added in a fixed order, as those of core/kernels.py. A segment is `order`, row numbers of Z; `own` is the group of
each, -1 for none.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.jit import kernel
from flareclust.core.loops import argsort, group_means, members_of, squared_distance

#: Most passes of a refinement.
_PASSES = 10

#: Values of fewer different rows than this follow from their mean and spread.
DIFFERENT = 3

#: Rows of scaled columns count as the same row for a mean if the square of their distance is no larger.
_SAME = 1e-12


@kernel()
def refine(Z: FloatArray, order: IntArray, own: IntArray, groups: int, floor: int) -> None:
    """Move rows to groups with a nearer mean, or swap them where a group would fall below the floor."""
    m = len(order)
    squared, means = np.empty((m, max(groups, 1))), np.empty((groups, Z.shape[1]))
    nearest, gain, sizes = np.zeros(m, np.int64), np.zeros(m), np.zeros(groups, np.int64)
    for _ in range(_PASSES):
        group_means(Z, order, own, means, sizes)
        for i in range(m):
            gain[i] = 0.0
            if own[i] >= 0:
                nearest[i] = 0
                for g in range(groups):
                    squared[i, g] = squared_distance(Z[order[i]], means[g])
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
def merge_uniform(Z: FloatArray, order: IntArray, own: IntArray, groups: int) -> None:
    """Join groups of too few different rows to the group with the nearest mean, until none is left or all are one."""
    means, sizes = np.empty((groups, Z.shape[1])), np.zeros(groups, np.int64)
    for g in range(groups):
        while True:
            members = members_of(order, own, g)
            if len(members) == 0 or different(Z, members) >= DIFFERENT:
                break
            group_means(Z, order, own, means, sizes)
            other, minimum = -1, np.inf
            for h in range(groups):
                if h != g and sizes[h] > 0:
                    apart = squared_distance(means[h], means[g])
                    if apart < minimum:
                        other, minimum = h, apart
            if other < 0:
                break
            for i in range(len(own)):
                if own[i] == other:
                    own[i] = g


@kernel()
def different(Z: FloatArray, members: IntArray) -> int:
    """Return how many of these rows differ from one another where both are known, `DIFFERENT` for more."""
    kinds, found = np.empty(DIFFERENT, np.int64), 0
    for i in members:
        new = True
        for r in range(found):
            if _apart(Z[i], Z[kinds[r]]) <= _SAME:
                new = False
        if new:
            kinds[found] = i
            found += 1
            if found == DIFFERENT:
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
