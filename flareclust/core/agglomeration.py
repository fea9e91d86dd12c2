"""Merging clusters pair by pair, those that attract each other most first, and choosing where to stop.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", sections 5.1 and 5.2,
Algorithm 2. c is the number of clusters to begin with.

Readings, and what is added:
1. Equation 11: the sum of the attraction is over the one set and the other, and is divided by the number of comparable
   pairs of points alone. With pairs in the denominator that cannot attract each other, sets whose sites share few
   columns would look far apart.
2. Sets without any comparable pair have no attraction; they are merged when nothing else is left, lowest numbers first.
3. Ties go to the pair that comes first in the list of sets, where a merged set takes the place of its first part.
4. The number of clusters is the one with the largest mean silhouette of the points in scaled distances: only comparable
   points count, a point alone in its set has silhouette 0, and one that is comparable with no other set is left out.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust._foundation.validation import check_int
from flareclust.core.forces import PointSums, point_sums
from flareclust.core.runtime import kernel


class Tree(NamedTuple):
    """The c - 1 merges of c clusters, in the order they were made; numbered as in SciPy's hierarchical clusterings.

    Attributes:
        left, right: numbers of the two sets of each merge (c-1,), left < right: below c a cluster, from c on the set that
            merge number - c made.
        force: normalised attraction of the two (c-1,), not increasing; NaN where they are not comparable, at the end.
        size: clusters in the set that the merge makes (c-1,).
    """

    left: IntArray
    right: IntArray
    force: FloatArray
    size: IntArray


def agglomerate(force: ArrayLike, pairs: ArrayLike) -> Tree:
    """Merge clusters until one set is left, always the two sets with the largest normalised attraction (equation 11).

    Each set keeps its best partner among the later ones, so that a merge takes O(c) time as a rule.

    Args:
        force: sum of the attraction over pairs of points (c, c), symmetric, not negative; the diagonal does not count.
        pairs: number of comparable pairs of points (c, c), symmetric.

    Raises UserError for input that does not fit the above.
    """
    squares = _as_square(force, "force"), _as_square(pairs, "pairs")
    c = len(squares[0])
    if len(squares[1]) != c:
        raise UserError(f"force and pairs must have the same shape, got {squares[0].shape} and {squares[1].shape}")
    both = np.empty((c * (c - 1) // 2, 2))
    for name, good in zip(("force", "pairs"), _put_pairs(*squares, both), strict=True):
        if not good:
            raise UserError(f"{name} must be finite, not negative and symmetric")
    tree = Tree(np.empty(c - 1, np.int64), np.empty(c - 1, np.int64), np.empty(c - 1), np.empty(c - 1, np.int64))
    _merge_all(both, *tree)
    return tree


def cut(tree: Tree, k: int) -> IntArray:
    """Return the set of each cluster (c,) when k sets are left, numbered 0 to k - 1 by their first cluster.

    Raises UserError where k is not between 1 and c.
    """
    c = len(tree.left) + 1
    if check_int("k", k, 1) > c:
        raise UserError(f"k must be at most the number of clusters to merge, {c}, got {k}")
    group, members = np.arange(c), {number: [number] for number in range(c)}
    for step in range(c - k):
        joined = members.pop(int(tree.left[step])) + members.pop(int(tree.right[step]))
        members[c + step] = joined
        group[joined] = min(joined)
    return np.unique(group, return_inverse=True)[1].reshape(-1).astype(np.int64)


def choose_k(tree: Tree, points: ArrayLike, cluster: ArrayLike, largest: int, phi: str = "euclidean") -> int:
    """Return the number of sets, from 2 to `largest`, with the largest mean silhouette (reading 4; ties: the smaller).

    One cluster alone is 1. `largest` where no silhouette exists, as nothing speaks for merging clusters.

    Args:
        tree: of the c clusters.
        points: (N, D), NaN where unknown.
        cluster: of each point (N,), every number from 0 to c - 1.
        largest: at least 1; what exceeds c counts as c.
        phi: "euclidean" or "cosine".

    Raises UserError for input that does not fit the above.
    """
    c = len(tree.left) + 1
    largest, seen = min(check_int("largest", largest, 1), c), point_sums(points, cluster, phi=phi)
    if len(seen.size) != c:
        raise UserError(f"cluster must hold the {c} clusters of the tree, got {len(seen.size)}")
    labels = np.asarray(cluster, np.int64)
    scores = [_silhouette(seen, labels, cut(tree, k)) for k in range(2, largest + 1)]
    return 2 + int(np.nanargmax(scores)) if np.isfinite(scores).any() else largest


def _silhouette(seen: PointSums, labels: IntArray, group: IntArray) -> float:
    """Return the mean silhouette of the points when cluster i belongs to set group[i]; NaN where no point has one."""
    member = np.eye(group.max() + 1)[group]
    number, sums = ((seen.comparable * seen.size) @ member)[labels], seen.sums @ member
    at = np.arange(len(labels)), group[labels]
    others = number[at] - 1
    inside = sums[at] / np.maximum(others, 1)
    means = np.divide(sums, number, out=np.full_like(sums, np.inf), where=number > 0)
    means[at] = np.inf
    outside = means.min(axis=1)
    exists = np.isfinite(outside)
    if not exists.any():
        return float("nan")
    a, b = inside[exists], outside[exists]
    widest = np.maximum(a, b)
    values = np.divide(b - a, widest, out=np.zeros_like(a), where=(widest > 0) & (others[exists] > 0))
    return float(values.mean())


def _as_square(values: ArrayLike, name: str) -> Array:
    whole = np.asarray(values).dtype == np.int64  # as numbers of pairs are, which are not copied
    square = np.require(values, np.int64 if whole else np.float64, ["C", "A", "W"])
    if square.ndim != 2 or len(square) == 0 or square.shape[0] != square.shape[1]:
        raise UserError(f"{name} must be (c, c) with c >= 1, got shape {square.shape}")
    return square


# Each merge writes a column of a matrix and looks at the sets that are left. Array expressions over all columns take seven
# times as long as SciPy's compiled linkage; these loops pass by the sets that are gone.

#: Rows and columns of a block, so that a matrix can be compared with its transpose in the cache.
_BLOCK = 32

#: In place of the best partner of a set that has to be looked for.
_UNKNOWN = -1


@kernel()
def _at(c: int, i: int, j: int) -> int:
    """Return the place of a pair i < j of c among all pairs, row by row."""
    return i * (2 * c - i - 1) // 2 + j - i - 1


@kernel()
def _put_pairs(force: Array, pairs: Array, both: FloatArray) -> tuple[bool, bool]:
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
def _merge_all(both: FloatArray, left: IntArray, right: IntArray, force: FloatArray, size: IntArray) -> None:
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
