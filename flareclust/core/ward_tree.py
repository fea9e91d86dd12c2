"""Ward's tree over points with weights: always the two sets are merged whose union adds least to the sum of squares.

Source: Ward (1963), Hierarchical grouping to optimize an objective function; Murtagh (1983), A survey of recent advances in
hierarchical clustering algorithms, for chains of nearest neighbours.

A point may stand for several rows with their mean. Then the tree is that of the rows from the sets on that the points are, and
what a merging adds to the sum of squares is exact. Time O(m^2 d) for m points of d columns, memory O(m d).
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_int
from flareclust.core.runtime import kernel

#: Heights below this part of the largest count as that.
_TINY = 1e-9


class Linkage(NamedTuple):
    """The m - 1 merges of m points, numbered as in SciPy's hierarchical clusterings: below m a point, m + s the set of merge s.

    Attributes:
        left, right: the two sets of each merge (m-1,), left < right.
        height: where each merge stands (m-1,), not decreasing.
        rows: weight of the set that each merge makes (m-1,).
    """

    left: IntArray
    right: IntArray
    height: FloatArray
    rows: FloatArray


def ward_linkage(points: FloatArray, weights: FloatArray | IntArray) -> Linkage:
    """Return Ward's tree over points (m, d) with positive weights (m,), m >= 1.

    The height of a merge is the square root of twice what it adds to the sum of squares: of two single rows their distance, as
    in SciPy and scikit-learn.
    """
    m = len(points)
    pairs, added = np.empty((max(m - 1, 0), 2), np.int64), np.empty(max(m - 1, 0))
    _chain(points - points.mean(axis=0), weights.astype(np.float64), pairs, added)
    return linkage_of(pairs, np.sqrt(2 * added), weights)


def warm_up() -> None:
    """Compile the kernels, so that processes started later find them on disk."""
    ward_linkage(np.arange(3.0)[:, None], np.ones(3))


def linkage_of(pairs: IntArray, height: FloatArray, weights: FloatArray | IntArray) -> Linkage:
    """Return the tree that merges the sets of pairs of points (m-1, 2) at these heights (m-1,), the lowest first.

    Of equal heights the first pair is merged first; `weights` (m,) are those of the points.
    """
    m, order = len(weights), np.argsort(height, kind="stable")
    left, right, rows = np.empty(m - 1, np.int64), np.empty(m - 1, np.int64), np.empty(m - 1)
    _merge_sets(np.ascontiguousarray(pairs[order]), weights.astype(np.float64), left, right, rows)
    return Linkage(left, right, height[order], rows)


def cut(linkage: Linkage, k: int) -> IntArray:
    """Return the set of each point (m,) when k sets are left, numbered 0 to k - 1 by their first point.

    Raises UserError where k is not between 1 and m.
    """
    m = len(linkage.left) + 1
    if check_int("k", k, 1) > m:
        raise UserError(f"k must be at most the number of points, {m}, got {k}")
    top = np.arange(2 * m - 1)
    for s in range(m - k - 1, -1, -1):  # from the sets that are left to their parts
        top[linkage.left[s]] = top[linkage.right[s]] = top[m + s]
    _, first, sets = np.unique(top[:m], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[sets.reshape(-1)].astype(np.int64)


def longest_lived(linkage: Linkage, most: int, least: int = 2) -> int:
    """Return the number of sets, from `least` to `most`, that lasts for the largest factor of heights (ties: the fewest); 1 of one point.

    Source: the lifetime of Fred, Jain (2005), Combining multiple clusterings using evidence accumulation, section 3.3. It is a
    factor here and no difference, which nearly always is largest between the last two merges.
    """
    k = np.arange(least, min(most, len(linkage.left) + 1) + 1)
    if not len(k) or not linkage.height[-1]:
        return 1
    ends = len(linkage.height) - k + 1  # the merge that ends k sets; the one before it made them
    made, least = np.where(ends > 0, linkage.height[ends - 1], 0.0), _TINY * linkage.height[-1]
    return int(k[np.argmax(np.maximum(linkage.height[ends], least) / np.maximum(made, least))])


def representatives(points: FloatArray, weights: FloatArray | IntArray, cluster: IntArray, most: int) -> IntArray:
    """Return which set each point (m,) is in, 0, 1, ...: at most `most` sets of two points or more in each cluster (m,).

    The sets are those of Ward's tree over the cluster's points; a single point joins the set with the nearest mean. A cluster of one
    point has one set. The points in no cluster, -1, have sets, too, but for a single one, whose set is -1.
    """
    sets, found = np.full(len(points), -1), 0
    for c in np.unique(cluster):
        own = np.flatnonzero(cluster == c)
        if c < 0 and len(own) == 1:
            continue
        parts = cut(ward_linkage(points[own], weights[own]), max(1, min(most, len(own) // 2)))
        parts = _without_singles(points[own], weights[own], parts)
        sets[own] = parts + found
        found += int(parts.max()) + 1
    return sets


def _without_singles(points: FloatArray, weights: FloatArray | IntArray, sets: IntArray) -> IntArray:
    """Return sets (m,) numbered anew after those of one point, the first one first, have joined the set with the nearest mean."""
    while len(size := np.bincount(sets)) > 1 and size.min() == 1:
        single = int(np.argmin(size))
        sums = np.column_stack([np.bincount(sets, weights * column) for column in points.T])
        means = sums / np.bincount(sets, weights)[:, None]
        apart = ((means - means[single]) ** 2).sum(axis=1)
        apart[single] = np.inf
        sets = np.where(sets == single, int(np.argmin(apart)), sets)
        sets = sets - (sets > single)
    return sets


@kernel()
def _chain(points: FloatArray, weights: FloatArray, pairs: IntArray, added: FloatArray) -> None:
    """Merge points (m, d) along chains of nearest neighbours; both arrays are spoilt.

    Fills two points of the sets of each merge (m-1, 2), and what it adds to the sum of squares (m-1,). A set is where its
    first point was.
    """
    m, d = points.shape
    there, n = np.arange(m), m  # which places have a set
    chain, length = np.empty(m, np.int64), 0
    for step in range(m - 1):
        if length == 0:
            chain[0], length = there[0], 1
        while True:
            own = chain[length - 1]
            before = chain[length - 2] if length > 1 else -1
            near, least = -1, np.inf
            for t in range(n):
                i = there[t]
                if i == own:
                    continue
                squared = 0.0
                for j in range(d):
                    squared += (points[i, j] - points[own, j]) ** 2
                cost = squared / (1.0 / weights[i] + 1.0 / weights[own])
                if near < 0 or cost < least or (cost == least and i == before):
                    near, least = i, cost
            if near == before:
                break
            chain[length] = near
            length += 1
        length -= 2
        a, b = min(own, near), max(own, near)
        pairs[step, 0], pairs[step, 1], added[step] = a, b, least
        total = weights[a] + weights[b]
        for j in range(d):
            points[a, j] += weights[b] / total * (points[b, j] - points[a, j])
        weights[a] = total
        place = np.searchsorted(there[:n], b)
        for t in range(place + 1, n):
            there[t - 1] = there[t]
        n -= 1


@kernel()
def _merge_sets(pairs: IntArray, weights: FloatArray, left: IntArray, right: IntArray, rows: FloatArray) -> None:
    """Fill the columns (m-1,) of a tree from a point of each set that is merged (m-1, 2), in the order of the merges."""
    m = weights.shape[0]
    above, name, total = np.arange(m), np.arange(m), weights.copy()
    for s in range(m - 1):
        a, b = pairs[s, 0], pairs[s, 1]
        while above[a] != a:
            above[a] = above[above[a]]
            a = above[a]
        while above[b] != b:
            above[b] = above[above[b]]
            b = above[b]
        left[s], right[s] = min(name[a], name[b]), max(name[a], name[b])
        if total[a] < total[b]:
            a, b = b, a
        above[b], name[a] = a, m + s
        total[a] += total[b]
        rows[s] = total[a]
