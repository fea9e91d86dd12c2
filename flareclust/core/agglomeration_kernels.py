"""Numba kernels of the agglomeration by attraction.

Each merge writes a column of a matrix and looks at the sets that are left. Array expressions over all columns take seven
times as long as SciPy's compiled linkage; these loops pass by the sets that are gone.
"""

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.jit import kernel

#: Rows and columns of a block, so that a matrix can be compared with its transpose in the cache.
_BLOCK = 32

#: In place of the best partner of a set that has to be looked for.
_UNKNOWN = -1


@kernel()
def _at(c: int, i: int, j: int) -> int:
    """Return the place of a pair i < j of c among all pairs, row by row."""
    return i * (2 * c - i - 1) // 2 + j - i - 1


@kernel()
def put_pairs(force: Array, pairs: Array, both: FloatArray) -> tuple[bool, bool]:
    """both[p] = force[i, j], pairs[i, j] for every pair i < j; return whether each is finite, not negative and symmetric."""
    c, good, fine = force.shape[0], True, True
    for top in range(0, c, _BLOCK):
        for left in range(top, c, _BLOCK):
            for i in range(top, min(c, top + _BLOCK)):
                first = _at(c, i, 0)
                for j in range(max(i + 1, left), min(c, left + _BLOCK)):
                    a, b = force[i, j], pairs[i, j]
                    good &= (a >= 0) & (a < np.inf) & (a == force[j, i])
                    fine &= (b >= 0) & (b < np.inf) & (b == pairs[j, i])
                    both[first + j, 0], both[first + j, 1] = a, b
    for i in range(c):
        good &= (force[i, i] >= 0) & (force[i, i] < np.inf)
        fine &= (pairs[i, i] >= 0) & (pairs[i, i] < np.inf)
    return good, fine


@kernel()
def merge_all(both: FloatArray, left: IntArray, right: IntArray, force: FloatArray, size: IntArray) -> None:
    """Fill the columns (c - 1,) of a tree from the sums of the attraction and the numbers of pairs of points.

    `both` (c (c - 1) / 2, 2) has the two for every pair of clusters, row by row, and is spoilt.
    """
    c = left.shape[0] + 1
    name, members = np.arange(c), np.ones(c, np.int64)
    there, nearest, best = np.arange(c), np.empty(c, np.int64), np.empty(c)  # of the sets that are left, in order
    for row in range(c):
        _look(c, both, there, row, nearest, best)
    for step in range(c - 1):
        n = c - step
        place = np.int64(best[:n].argmax())
        while nearest[place] == _UNKNOWN:
            _look(c, both, there[:n], place, nearest, best)
            place = np.int64(best[:n].argmax())
        strongest, r = best[place], there[place]
        s = nearest[place] if strongest > -np.inf else there[1]
        members[r] += members[s]
        left[step], right[step] = min(name[r], name[s]), max(name[r], name[s])
        force[step], size[step] = strongest if strongest > -np.inf else np.nan, members[r]
        name[r], gone = c + step, np.searchsorted(there[:n], s)
        for later in range(gone + 1, n):
            there[later - 1], nearest[later - 1], best[later - 1] = there[later], nearest[later], best[later]
        _join(c, both, there[: n - 1], place, s, nearest, best)


@kernel()
def _join(c: int, both: FloatArray, there: IntArray, place: int, s: int, nearest: IntArray, best: FloatArray) -> None:
    """Add both sums of s and each other set that is left to those of r = there[place] < s, and correct the best partners.

    One that was r or s becomes unknown. `best` bounds it until then: no set that is left attracts more, except r if so here.
    """
    r = there[place]
    ours, theirs = _at(c, r, 0), _at(c, s, 0)
    for i in there[:place]:  # from far apart in memory: a loop that does no more waits for several at a time
        a, b = _at(c, i, r), _at(c, i, s)
        both[a, 0] += both[b, 0]
        both[a, 1] += both[b, 1]
    for before in range(place):
        value = _normal(both, _at(c, there[before], r))
        if nearest[before] == r or nearest[before] == s:
            nearest[before] = _UNKNOWN
        if value > best[before] or (value == best[before] and r < nearest[before]):
            nearest[before], best[before] = r, value
    for after in range(place + 1, there.shape[0]):
        i = there[after]
        b = theirs + i if i > s else _at(c, i, s)
        both[ours + i, 0] += both[b, 0]
        both[ours + i, 1] += both[b, 1]
        if nearest[after] == s:
            nearest[after] = _UNKNOWN
    _look(c, both, there, place, nearest, best)


@kernel()
def _look(c: int, both: FloatArray, there: IntArray, place: int, nearest: IntArray, best: FloatArray) -> None:
    """Find the best partner of a set among the later ones, the first of equals."""
    row = there[place]
    first = _at(c, row, 0)
    highest, at = -np.inf, row + 1
    for other in there[place + 1 :]:
        value = _normal(both, first + other)
        if value > highest:
            highest, at = value, other
    nearest[place], best[place] = at, highest


@kernel()
def _normal(both: FloatArray, at: int) -> float:
    """Return the normalised attraction of a pair; minus infinity where the two are not comparable."""
    return both[at, 0] / both[at, 1] if both[at, 1] > 0.0 else -np.inf
