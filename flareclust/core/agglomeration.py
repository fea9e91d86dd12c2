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
from flareclust.core.agglomeration_kernels import merge_all, put_pairs
from flareclust.core.forces import PointSums, point_sums


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

    Raises:
        UserError: for input that does not fit the above.
    """
    squares = _as_square(force, "force"), _as_square(pairs, "pairs")
    c = len(squares[0])
    if len(squares[1]) != c:
        raise UserError(f"force and pairs must have the same shape, got {squares[0].shape} and {squares[1].shape}")
    both = np.empty((c * (c - 1) // 2, 2))
    for name, good in zip(("force", "pairs"), put_pairs(*squares, both), strict=True):
        if not good:
            raise UserError(f"{name} must be finite, not negative and symmetric")
    tree = Tree(np.empty(c - 1, np.int64), np.empty(c - 1, np.int64), np.empty(c - 1), np.empty(c - 1, np.int64))
    merge_all(both, *tree)
    return tree


def cut(tree: Tree, k: int) -> IntArray:
    """Return the set of each cluster (c,) when k sets are left, numbered 0 to k - 1 by their first cluster.

    Raises:
        UserError: k is not between 1 and c.
    """
    c = len(tree.left) + 1
    if check_int("k", k, 1) > c:
        raise UserError(f"k must be at most the number of clusters to merge, {c}, got {k}")
    group = np.arange(c)
    members = {number: [number] for number in range(c)}
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

    Raises:
        UserError: for input that does not fit the above.
    """
    c = len(tree.left) + 1
    largest = min(check_int("largest", largest, 1), c)
    seen = point_sums(points, cluster, phi=phi)
    if len(seen.size) != c:
        raise UserError(f"cluster must hold the {c} clusters of the tree, got {len(seen.size)}")
    labels = np.asarray(cluster, np.int64)
    scores = [_silhouette(seen, labels, cut(tree, k)) for k in range(2, largest + 1)]
    return 2 + int(np.nanargmax(scores)) if np.isfinite(scores).any() else largest


def _silhouette(seen: PointSums, labels: IntArray, group: IntArray) -> float:
    """Return the mean silhouette of the points when cluster i belongs to set group[i]; NaN where no point has one."""
    member = np.eye(group.max() + 1)[group]
    number = ((seen.comparable * seen.size) @ member)[labels]
    sums = seen.sums @ member
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
