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
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_int
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
    total, number = _as_square(force, "force"), _as_square(pairs, "pairs")
    c = len(total)
    if len(number) != c:
        raise UserError(f"force and pairs must have the same shape, got {total.shape} and {number.shape}")
    normal = np.divide(total, number, out=np.full((c, c), -np.inf), where=number > 0)
    nearest, best = np.zeros(c, np.int64), np.full(c, -np.inf)
    name, size, alive = np.arange(c), np.ones(c, np.int64), np.ones(c, np.bool_)
    merges: list[tuple[int, int, float, int]] = []

    def look(row: int) -> None:
        """Find the best partner of a set among the later ones."""
        if row + 1 < c:
            at = row + 1 + int(normal[row, row + 1 :].argmax())
            nearest[row], best[row] = at, normal[row, at]

    for row in range(c):
        look(row)
    for step in range(c - 1):
        r = int(best.argmax())
        strongest, s = float(best[r]), int(nearest[r])
        if strongest == -np.inf:
            r, s = (int(x) for x in np.flatnonzero(alive)[:2])
            strongest = np.nan
        size[r] += size[s]
        pair = int(name[r]), int(name[s])
        merges.append((min(pair), max(pair), strongest, int(size[r])))
        name[r], alive[s] = c + step, False
        for sums in (total, number):
            sums[r] += sums[s]
            sums[:, r] = sums[r]
        normal[s], normal[:, s], best[s] = -np.inf, -np.inf, -np.inf
        merged = np.divide(total[r], number[r], out=np.full(c, -np.inf), where=(number[r] > 0) & alive)
        merged[r] = -np.inf
        normal[r], normal[:, r] = merged, merged
        look(r)
        before = slice(0, r)  # rows that have r among their later ones
        lost = (nearest == s) | (nearest == r)
        better = (merged[before] > best[before]) | ((merged[before] == best[before]) & (r < nearest[before]))
        better &= ~lost[before] & alive[before]
        nearest[before][better], best[before][better] = r, merged[before][better]
        for other in np.flatnonzero(lost & alive & (np.arange(c) < s) & (np.arange(c) != r)):
            look(int(other))
    left, right, strength, sizes = zip(*merges, strict=True) if merges else ((), (), (), ())
    return Tree(
        np.array(left, np.int64), np.array(right, np.int64), np.array(strength, float), np.array(sizes, np.int64)
    )


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
    seen = point_sums(points, cluster, lambda distance: distance, phi)
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


def _as_square(values: ArrayLike, name: str) -> FloatArray:
    square = np.array(values, np.float64)
    if square.ndim != 2 or len(square) == 0 or square.shape[0] != square.shape[1]:
        raise UserError(f"{name} must be (c, c) with c >= 1, got shape {square.shape}")
    if not np.isfinite(square).all() or (square < 0).any() or not np.array_equal(square, square.T):
        raise UserError(f"{name} must be finite, not negative and symmetric")
    return square
