"""HDBSCAN's tree over groups of rows, each with its mean, its number of rows and the spread of these.

Source: Campello, Moulavi, Sander (2013), Density-based clustering based on hierarchical density estimates; Campello, Moulavi,
Zimek, Sander (2015), Hierarchical density estimates for data clustering, visualization, and outlier detection, section 3.

Readings, and what is different for groups:
1. Core distance of a group: the radius around its mean within which `min_samples` rows are, of all groups. The rows of a group
   are taken to lie in a ball around its mean with the group's mean squared distance from it, its radius R; within r of a point at distance
   a are those that lie between a - R and a + R, evenly.
2. No core distance is below the group's own R: what is closer together than that, the group does not show.
3. Two groups are as far apart as their means, less the mean of their standard deviations along the line between them: rows of two
   groups that touch are closer to each other than the means. Single rows have none, so that their tree is HDBSCAN's.
4. `min_cluster_size` is in rows. A part below it falls off a cluster at the distance of the split. A single group is a part of its
   own only if its core distance is smaller than that, until which it lasts then.
5. With k asked, the k clusters of different branches with the largest stability in all are selected; without, as many as have the
   largest (the excess of mass). The root is one of them only where there is nothing else, or where k is 1.
6. Densities are 1 / distance; distances below 1e-9 of the largest count as that, so that stabilities are finite.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import kernel
from flareclust.core.ward_tree import Linkage, linkage_of

#: Steps of halving in which a core distance is found, and the smallest distance in parts of the largest.
_HALVINGS, _TINY = 40, 1e-9


class _CondensedTree(NamedTuple):
    """Clusters of at least `min_cluster_size` rows, c in all, parents before their children; the first is the root.

    Attributes:
        parent: of each cluster (c,); -1 of the root.
        birth: density at which it splits off its parent (c,); 0 of the root.
        death: density at which its last rows leave it or it splits (c,).
        rows: at its birth (c,).
        stability: sum over its rows of how much longer they stay in it (c,).
        cluster: the smallest cluster that each group was ever in (m,).
        density: at which each group leaves it (m,).
    """

    parent: IntArray
    birth: FloatArray
    death: FloatArray
    rows: FloatArray
    stability: FloatArray
    cluster: IntArray
    density: FloatArray


class Branches(NamedTuple):
    """The clusters of a condensed tree without its groups, fields as there; `cluster` (c,) is the selected one, -1 for none."""

    parent: IntArray
    birth: FloatArray
    death: FloatArray
    rows: FloatArray
    cluster: IntArray


def density_linkage(
    means: FloatArray, counts: IntArray, sse: FloatArray, min_samples: int
) -> tuple[Linkage, FloatArray]:
    """Return the minimum spanning tree of mutual reachability over groups as a tree of merges (m-1,), and their core distances (m,).

    Args:
        means: of the groups (m, d), m >= 1.
        counts: their rows (m,), above 0.
        sse: sum of the squared distances of a group's rows to its mean (m,).
        min_samples: rows that make a place dense.
    """
    m, d = means.shape
    points, rows = means - means.mean(axis=0), counts.astype(np.float64)
    spread = np.sqrt(sse / rows / d)  # along any line
    radius = np.sqrt(d + 2.0) * spread
    core, pairs, height = np.empty(m), np.empty((max(m - 1, 0), 2), np.int64), np.empty(max(m - 1, 0))
    _core_distances(points, rows, radius, float(min(min_samples, rows.sum())), core)
    _spanning_tree(points, spread, core, pairs, height)
    return linkage_of(pairs, height, rows), core


def condensed(linkage: Linkage, core: FloatArray, counts: IntArray, min_cluster_size: int) -> _CondensedTree:
    """Return the clusters of a tree of merges over groups with these core distances and numbers of rows (m,)."""
    m, rows = len(counts), np.concatenate([counts, linkage.rows])
    least = _TINY * float(linkage.height[-1] if m > 1 else core[0]) or 1.0
    density, own = 1.0 / np.maximum(linkage.height, least), 1.0 / np.maximum(core, least)
    size = 2 * m
    parent, cluster, leaves = np.full(size, -1), np.zeros(m, np.int64), np.zeros(m)
    birth, death, at_birth, stability = (np.zeros(size) for _ in range(4))
    at_birth[0] = rows[-1]
    into = parent, birth, at_birth, cluster, leaves
    found = _condense(linkage.left, linkage.right, density, own, rows, float(min_cluster_size), *into)
    np.maximum.at(death, cluster, leaves)
    np.maximum.at(death, parent[1:found], birth[1:found])
    np.add.at(stability, cluster, counts * (leaves - birth[cluster]))
    np.add.at(stability, parent[1:found], at_birth[1:found] * (birth[1:found] - birth[parent[1:found]]))
    return _CondensedTree(
        parent[:found], birth[:found], death[:found], at_birth[:found], stability[:found], cluster, leaves
    )


def warm_up() -> None:
    """Compile the kernels, so that processes started later find them on disk."""
    ones = np.ones(3, np.int64)
    condensed(*density_linkage(np.arange(3.0)[:, None], ones, np.zeros(3), 1), ones, 2)


def select_clusters(tree: _CondensedTree, k: int, least: int = 0) -> IntArray:
    """Return the selected cluster that each of the tree's is or is part of (c,), numbered 0, 1, ... in its order; -1 for none.

    From `least` to k are selected, as many as are stablest; fewer where the tree has fewer leaves.
    """
    c = len(tree.parent)
    children: list[list[int]] = [[] for _ in range(c)]
    for i in range(1, c):
        children[tree.parent[i]].append(i)
    # best[i][j]: the largest stability in all of j clusters of the branch of i; and how many of them the first child has.
    best: list[FloatArray] = [np.empty(0)] * c
    firsts: list[IntArray] = [np.empty(0, np.int64)] * c
    for i in range(c - 1, -1, -1):
        own = -np.inf if i == 0 and children[0] else float(tree.stability[i])  # the root only where nothing else is
        best[i], firsts[i] = _of_branch(own, [best[one] for one in children[i]], k)
    least = min(least, len(best[0]) - 1)
    number = int(np.argmax(best[0][max(least, 1) :])) + max(least, 1)
    chosen, numbers, stack = np.full(c, -1), 0, [(0, number)]
    if least == k == 1:
        return np.zeros(c, np.int64)
    while stack:
        i, j = stack.pop()
        if j == 1 and firsts[i][1] < 0:
            chosen[i], numbers = numbers, numbers + 1
        elif j:
            first = int(firsts[i][j])
            stack += [(children[i][1], j - first), (children[i][0], first)]
    for i in range(1, c):
        if chosen[i] < 0 <= tree.parent[i]:
            chosen[i] = chosen[tree.parent[i]]
    return chosen


def _of_branch(own: float, parts: list[FloatArray], k: int) -> tuple[FloatArray, IntArray]:
    """Return the largest stabilities of 0, 1, ... up to k clusters of a branch, and how many of each the first part has; -1 for the branch itself."""
    if not parts:
        return np.array([0.0, own]), np.array([0, -1])
    a, b = parts
    n = min(k, len(a) + len(b) - 2)
    best, first = np.full(n + 1, -np.inf), np.zeros(n + 1, np.int64)
    best[:2], first[1] = (0.0, own), -1
    for i in range(min(len(a), n + 1)):
        there = min(len(b), n + 1 - i)
        sums, at = a[i] + b[:there], slice(i, i + there)
        better = sums > best[at]
        best[at], first[at] = np.where(better, sums, best[at]), np.where(better, i, first[at])
    return best, first


@kernel()
def _core_distances(points: FloatArray, rows: FloatArray, radius: FloatArray, needed: float, core: FloatArray) -> None:
    """Fill the core distance of each group (m,): within it are `needed` rows, and it is at least the group's radius."""
    m, d = points.shape
    low, high, others = np.empty(m), np.empty(m), np.empty(m, np.int64)
    for i in range(m):
        most, close, near = 0.0, np.inf, -1
        for j in range(m):
            squared = 0.0
            for c in range(d):
                squared += (points[i, c] - points[j, c]) ** 2
            away = np.sqrt(squared)
            low[j], high[j] = max(away - radius[j], 0.0), away + radius[j]
            most = max(most, high[j])
            if j < i and away < close:
                close, near = away, j
        a, b, inside = 0.0, most, 0.0
        # A group close by has needed about as much, so that most groups are out of the way before the halving.
        for guess in (np.inf if near < 0 else core[near] + close, most):
            total, n = 0.0, 0
            for j in range(m):
                if low[j] <= guess:
                    total += rows[j] * _part_within(low[j], high[j], guess)
                    others[n] = j
                    n += 1
            if total >= needed:
                b = min(guess, most)
                break
        for _ in range(_HALVINGS):
            r, total = (a + b) / 2, inside
            for t in range(n):
                j = others[t]
                total += rows[j] * _part_within(low[j], high[j], r)
            if total >= needed:
                b = r
            else:
                a = r
            kept = 0
            for t in range(n):  # the groups that are neither wholly within a nor wholly beyond b
                j = others[t]
                if high[j] <= a:
                    inside += rows[j]
                elif low[j] < b or (low[j] == 0.0 and b == 0.0):
                    others[kept] = j
                    kept += 1
            n = kept
        core[i] = max(b, radius[i])


@kernel()
def _part_within(low: float, high: float, r: float) -> float:
    """Return the part of rows evenly at distances from low to high that are within r."""
    if r >= high:
        return 1.0
    return (r - low) / (high - low) if r > low else 0.0


@kernel()
def _spanning_tree(
    points: FloatArray, spread: FloatArray, core: FloatArray, pairs: IntArray, height: FloatArray
) -> None:
    """Fill the edges (m-1, 2) of the minimum spanning tree of mutual reachability, and their lengths (m-1,), by Prim's algorithm."""
    m, d = points.shape
    there = np.arange(1, m)
    nearest, least = np.zeros(m, np.int64), np.full(m, np.inf)
    last = 0
    for step in range(m - 1):
        n, at = m - 1 - step, 0
        for t in range(n):
            i, squared = there[t], 0.0
            for c in range(d):
                squared += (points[i, c] - points[last, c]) ** 2
            reach = max(np.sqrt(squared) - (spread[i] + spread[last]) / 2, core[i], core[last])
            if reach < least[i]:
                least[i], nearest[i] = reach, last
            if least[i] < least[there[at]] or (least[i] == least[there[at]] and i < there[at]):
                at = t
        last = there[at]
        pairs[step, 0], pairs[step, 1], height[step] = nearest[last], last, least[last]
        there[at] = there[n - 1]


@kernel()
def _condense(
    left: IntArray,
    right: IntArray,
    density: FloatArray,
    alone: FloatArray,
    rows: FloatArray,
    least: float,
    parent: IntArray,
    birth: FloatArray,
    at_birth: FloatArray,
    cluster: IntArray,
    leaves: FloatArray,
) -> int:
    """Walk down a tree of merges and fill what `_CondensedTree` has; return the number of clusters."""
    m, found = cluster.shape[0], 1
    nodes, own, fell = np.empty(2 * m, np.int64), np.empty(2 * m, np.int64), np.empty(2 * m)
    nodes[0], own[0], fell[0] = 2 * m - 2, 0, -1.0  # `fell`: at which density from its cluster; -1 of what is in it
    top = 1
    while top:
        top -= 1
        node, c, off = nodes[top], own[top], fell[top]
        if node < m:
            cluster[node], leaves[node] = c, alone[node] if off < 0 else off
            continue
        a, b = left[node - m], right[node - m]
        here = density[node - m]
        a_lasts = off < 0 and rows[a] >= least and (a >= m or alone[a] > here)
        b_lasts = off < 0 and rows[b] >= least and (b >= m or alone[b] > here)
        for part, lasts in ((a, a_lasts), (b, b_lasts)):
            nodes[top], own[top], fell[top] = part, c, off
            if a_lasts and b_lasts:
                parent[found], birth[found], at_birth[found] = c, here, rows[part]
                own[top] = found
                found += 1
            elif off < 0 and (part < m or not lasts):
                fell[top] = here
            top += 1
    return found
