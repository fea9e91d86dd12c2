"""Numba kernels of the agglomeration by attraction.

Each merge writes a column of a matrix and looks at the sets that are left. Array expressions over all columns take seven
times as long as SciPy's compiled linkage; these loops pass by the sets that are gone.
"""

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.jit import kernel

#: Rows and columns of a block, so that a matrix can be compared with its transpose in the cache.
_BLOCK = 32


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
    there, n = np.arange(c), c  # the sets that are left, in order
    name, members = np.arange(c), np.ones(c, np.int64)
    nearest, best = np.zeros(c, np.int64), np.full(c, -np.inf)
    for place in range(c):
        _look(c, both, there, n, place, nearest, best)
    for step in range(c - 1):
        r = np.int64(best.argmax())
        strongest, s = best[r], nearest[r]
        if strongest == -np.inf:
            r, s = there[0], there[1]
        members[r] += members[s]
        left[step], right[step] = min(name[r], name[s]), max(name[r], name[s])
        force[step], size[step] = strongest if strongest > -np.inf else np.nan, members[r]
        name[r], best[s] = c + step, -np.inf
        n = _without(there, n, s)
        _join(c, both, there, n, r, s)
        _partners(c, both, there, n, r, s, nearest, best)


@kernel()
def _without(there: IntArray, n: int, s: int) -> int:
    """Take a set out of the list."""
    for place in range(np.searchsorted(there[:n], s), n - 1):
        there[place] = there[place + 1]
    return n - 1


@kernel()
def _join(c: int, both: FloatArray, there: IntArray, n: int, r: int, s: int) -> None:
    """Add both sums of s and each other set that is left to those of r."""
    ours, theirs = _at(c, r, 0), _at(c, s, 0)
    for place in range(n):
        i = there[place]
        a = ours + i if i > r else _at(c, i, r)
        b = theirs + i if i > s else _at(c, i, s)
        if i != r:
            both[a, 0] += both[b, 0]
            both[a, 1] += both[b, 1]


@kernel()
def _partners(
    c: int, both: FloatArray, there: IntArray, n: int, r: int, s: int, nearest: IntArray, best: FloatArray
) -> None:
    """Correct the best partners of the sets that are left after s has become part of r."""
    for place in range(n):
        i = there[place]
        if i == r or (i < s and (nearest[i] == s or nearest[i] == r)):
            _look(c, both, there, n, place, nearest, best)
        elif i < r:  # r is among its later ones
            value = _normal(both, _at(c, i, r))
            if value > best[i] or (value == best[i] and r < nearest[i]):
                nearest[i], best[i] = r, value


@kernel()
def _look(c: int, both: FloatArray, there: IntArray, n: int, place: int, nearest: IntArray, best: FloatArray) -> None:
    """Find the best partner of a set among the later ones, the first of equals."""
    row = there[place]
    first = _at(c, row, 0)
    highest, at = -np.inf, row + 1
    for other in range(place + 1, n):
        value = _normal(both, first + there[other])
        if value > highest:
            highest, at = value, there[other]
    nearest[row], best[row] = at, highest


@kernel()
def _normal(both: FloatArray, at: int) -> float:
    """Return the normalised attraction of a pair; minus infinity where the two are not comparable."""
    return both[at, 0] / both[at, 1] if both[at, 1] > 0.0 else -np.inf
