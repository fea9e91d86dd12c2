"""Convex clustering, also called sum-of-norms clustering, of a few hundred points.

Every point x_i gets a position u_i, and points whose positions coincide are a group. The positions minimise

    1/2 sum_i |x_i - u_i|^2 + lam sum_{i<j} |u_i - u_j|,

so that lam = 0 leaves every point alone and a large lam fuses all. Pairs weigh the same, as in the theory that
distributed k-means++ relies on.

Sources: Chi, Lange, "Splitting methods for convex clustering" (2015), section 3, for ADMM; Hocking, Joulin, Bach, Vert,
"Clusterpath" (2011), and Chiquet, Gutierrez, Rigaill (2017) for groups that never split as lam grows.

Readings, and what is added:
1. Which lam? As groups never split, their number falls with lam, and bisection finds a lam with exactly k of them,
   unless the interval of such lam is narrower than a thousandth of itself.
2. There may be none, since many groups can fuse at one lam. Then the groups of the largest lam found with more than k
   are joined pair by pair until there are k, each time those two that add least to the sum of squares (Ward 1963).
3. Points that are proven to have fused at a smaller lam are one point, weighing as much as they do together, at the
   larger ones.
4. ADMM stops when for 50 iterations the groups have not changed and every pair within a group was fused, or after
   3000 iterations. Close to a lam at which groups fuse it can be off by one such step.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray, never_abort
from flareclust.core.arrays import as_count, as_matrix
from flareclust.core.assessment import distances_between
from flareclust.core.runtime import kernel, one_thread

#: ADMM's penalty is this over the number of points; with 10 to 30 the groups settle fastest, whatever the points.
_PENALTY = 15.0
_OVERRELAXATION = 1.6
_ITERATIONS_PER_LOOK, _UNCHANGED_LOOKS, _MOST_LOOKS = 25, 2, 120

#: Bisection stops when lam is known to this part of itself, and after so many halvings whatever the points.
_LAM_TOLERANCE, _MOST_HALVINGS = 1e-3, 60


class _Fused(NamedTuple):
    """Groups of n points.

    Attributes:
        labels: group of each point (n,), from 0 in the order of the groups' first points.
        lam: the lam whose minimum has these groups, or more before some were joined; in the unit of the points.
        joined: how many pairs of groups were joined because no lam was found that leaves exactly k (reading 2).
    """

    labels: IntArray
    lam: float
    joined: int


def convex_clustering(points: FloatArray, k: int, *, aborted: AbortCheck = never_abort) -> _Fused:
    """Return at most k groups of points (n, d): those of convex clustering with a lam that leaves k.

    Fewer than k where there are fewer different points. Time O(n^2 d) per iteration, some thousand iterations.

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    points, k = as_matrix(points, "points", empty=False), as_count(k, "k")
    labels = _in_order(np.unique(points, axis=0, return_inverse=True)[1].reshape(-1))
    if k == 1 or labels.max() < k:
        return _Fused(np.minimum(labels, k - 1), 0.0, 0)
    points, unit = _rescaled(points)
    # From this lam on all points fuse: (x_i - x_j) / (lam n) are the norms' subgradients that balance the squares.
    low, high, above = 0.0, float(distances_between(points).max()) / len(points), labels
    for _ in range(_MOST_HALVINGS):
        if high - low <= _LAM_TOLERANCE * high:
            break
        lam = (low + high) / 2
        found, proven = _fuse(points, labels, lam, aborted)
        groups = int(found.max()) + 1
        if groups == k:
            return _Fused(found, lam * unit, 0)
        if groups > k:
            low, labels, above = lam, proven, found
        else:
            high = lam
    return _Fused(_join(points, above, k), low * unit, int(above.max()) + 1 - k)


def _fuse(points: FloatArray, labels: IntArray, lam: float, aborted: AbortCheck) -> tuple[IntArray, IntArray]:
    """Return the groups at lam of points known to have fused as `labels` say, and those of them that are proven."""
    # Imported here: sites and servers of other algorithms start in a fifth less time without it.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sizes = np.bincount(labels).astype(np.float64)
    centers = _means(points, labels, sizes)
    g = len(centers)
    a, b = np.triu_indices(g, 1)
    state, positions = centers[a] - centers[b], centers.copy()
    penalty = _PENALTY / len(points)
    radius = lam / penalty
    groups, unchanged = np.full(g, -1), 0
    for _ in range(_MOST_LOOKS):
        stop_if(aborted, "during convex clustering")
        _admm(centers, sizes, radius, penalty, state, positions)
        norm = np.sqrt((state**2).sum(axis=1))
        zero = norm <= radius
        graph = coo_array((np.ones(int(zero.sum())), (a[zero], b[zero])), shape=(g, g))
        last, groups = groups, connected_components(graph, directed=False)[1]
        members = np.bincount(groups)
        complete = int(zero.sum()) == int((members * (members - 1)).sum()) // 2
        unchanged = unchanged + 1 if complete and np.array_equal(groups, last) else 0
        if unchanged == _UNCHANGED_LOOKS:
            break
    pairs = np.flatnonzero(groups[a] == groups[b])
    q = state[pairs] / np.maximum(norm[pairs], radius)[:, None]
    proven, alone = _proven(centers, sizes, groups, lam, a[pairs], b[pairs], q), groups.max() + 1 + np.arange(g)
    return _in_order(groups[labels]), _in_order(np.where(proven[groups], groups, alone)[labels])


def _proven(
    centers: FloatArray, sizes: FloatArray, groups: IntArray, lam: float, a: IntArray, b: IntArray, q: FloatArray
) -> BoolArray:
    """Return which groups surely have one position at the minimum.

    A set C has if there are q_ab = -q_ba of norm at most 1 with x_a - mean(C) = lam * sum_b n_b q_ab for its members
    (Chiquet, Gutierrez, Rigaill 2017). ADMM's multipliers nearly are such q; what they lack is spread evenly (Jiang,
    Vavasis 2020). Here x are the centers (g, d), n their sizes (g,), `groups` those of each (g,), and q (pairs, d) is of
    the pairs a < b within groups.
    """
    total = np.bincount(groups, weights=sizes).astype(np.float64)
    lacking: FloatArray = centers - _means(centers, groups, total, sizes)[groups]
    np.subtract.at(lacking, a, lam * sizes[b, None] * q)
    np.add.at(lacking, b, lam * sizes[a, None] * q)
    q, largest = q + (lacking[a] - lacking[b]) / (lam * total[groups[a], None]), np.zeros(len(total))
    np.maximum.at(largest, groups[a], (q**2).sum(axis=1))
    return largest <= 1 + 1e-9


@kernel()
def _admm(
    centers: FloatArray, sizes: FloatArray, radius: float, penalty: float, state: FloatArray, positions: FloatArray
) -> None:
    """Run the iterations of ADMM between two looks at the groups, with over-relaxation, in place.

    `state` (pairs, d) holds, for each pair a < b in order, the split variable z plus the scaled multiplier y. Both can
    be had from it: y is its projection on the ball of `radius` = lam / penalty, z is the rest.
    """
    g, d = centers.shape
    total, middle = sizes.sum(), np.zeros(d)
    for a in range(g):
        middle += sizes[a] * centers[a]
    middle /= total
    pull, share = np.empty((g, d)), np.empty(len(state))
    for _ in range(_ITERATIONS_PER_LOOK):
        pull[:] = 0.0
        p = 0
        for a in range(g):
            for b in range(a + 1, g):
                norm = 0.0
                for f in range(d):
                    norm += state[p, f] * state[p, f]
                norm = np.sqrt(norm)
                share[p] = 0.0 if norm <= radius else 1.0 - radius / norm  # of the state that is z
                for f in range(d):
                    both = (2.0 * share[p] - 1.0) * state[p, f]  # z - y
                    pull[a, f] += sizes[b] * both
                    pull[b, f] -= sizes[a] * both
                p += 1
        positions[:] = (centers + penalty * (total * middle + pull)) / (1.0 + penalty * total)
        p = 0
        for a in range(g):
            for b in range(a + 1, g):
                for f in range(d):
                    state[p, f] += _OVERRELAXATION * (positions[a, f] - positions[b, f] - share[p] * state[p, f])
                p += 1


def _join(points: FloatArray, labels: IntArray, k: int) -> IntArray:
    """Join groups pair by pair until k are left, each time those two that add least to the sum of squares."""
    sizes = np.bincount(labels).astype(np.float64)
    means, labels = _means(points, labels, sizes), labels.copy()
    for _ in range(len(sizes) - k):
        present = np.unique(labels)
        a, b = (present[i] for i in np.triu_indices(len(present), 1))
        added = sizes[a] * sizes[b] / (sizes[a] + sizes[b]) * ((means[a] - means[b]) ** 2).sum(axis=1)
        one, other = a[added.argmin()], b[added.argmin()]
        means[one] = (sizes[one] * means[one] + sizes[other] * means[other]) / (sizes[one] + sizes[other])
        sizes[one] += sizes[other]
        labels[labels == other] = one
    return _in_order(labels)


def _means(points: FloatArray, labels: IntArray, totals: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the means (g, d) of the points (n, d) of each label, whose weights (n,) add up to `totals` (g,)."""
    sums = np.zeros((len(totals), points.shape[1]))
    np.add.at(sums, labels, points if weights is None else weights[:, None] * points)
    return sums / totals[:, None]


def _in_order(labels: IntArray) -> IntArray:
    """Number groups from 0 in the order of their first points."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return first.argsort().argsort()[inverse].astype(np.int64)


def _rescaled(points: FloatArray) -> tuple[FloatArray, float]:
    """Return the points about their middle in a unit of their own, so that no square overflows, and that unit.

    More columns than points are turned into as many as there are points, which keeps all distances.
    """
    centred = points - points.mean(axis=0)
    unit = float(np.abs(centred).max()) or 1.0
    centred /= unit
    if centred.shape[1] > len(centred):
        with one_thread():
            upper: FloatArray = np.linalg.qr(centred.T, mode="r")  # type: ignore[assignment]
        centred = np.ascontiguousarray(upper.T)
    return centred, unit
