"""The inner part of method A (core/missing/grouping.py): centroids join groups one by one, the nearest first."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.missing.distances import Extremes, Points, as_points, largest
from flareclust.core.missing.kernels import pair_distances


def place(
    centroids: FloatArray, counts: IntArray, site: IntArray, seeds: IntArray, over: Extremes, phi: str
) -> IntArray:
    """Return the group of each centroid (c,), -1 where none can take it: lines 3 to 21 of method A.

    Args:
        centroids: (c, D), NaN where unknown.
        counts: rows behind each (c,).
        site: number of the site of each (c,), from 0.
        seeds: the centroids that the groups start from (k,).
        over: extremes of the centroids.
        phi: "euclidean" or "cosine".
    """
    groups = _Groups(centroids, counts, site, len(seeds), over, phi)
    groups.group[seeds] = np.arange(len(seeds))
    groups.distances[seeds] = np.inf
    for g, seed in enumerate(seeds):
        groups.join(int(seed), g)
    while True:
        member, g = divmod(int(groups.distances.argmin()), len(seeds))
        if groups.distances[member, g] == np.inf:
            return groups.group
        groups.join(member, g)


class _Groups:
    """Groups that grow, and the distances (c, k) to them, infinite where a centroid cannot join (any more).

    One column of the distances changes when a centroid joins, and that group's divisors only when it thereby comes to
    know more entries.
    """

    def __init__(
        self, centroids: FloatArray, counts: IntArray, site: IntArray, k: int, over: Extremes, phi: str
    ) -> None:
        self.points = as_points(centroids, over, phi)
        self.counts, self.site, self.over, self.phi = counts, site, over, phi
        c, d = centroids.shape
        self.group = np.full(c, -1, np.int64)
        self.distances = np.full((c, k), np.inf)
        self.sums, self.rows = np.zeros((k, d)), np.zeros((k, d))
        self.divisors = np.full((k, len(self.points.masks)), np.nan)

    def join(self, member: int, g: int) -> None:
        """Add a centroid to group g and compute the distances of those that still can join the group."""
        values, masks, pattern = self.points
        known = masks[pattern[member]]
        grows = bool((known > (self.rows[g] > 0)).any())
        self.group[member] = g
        self.rows[g] += self.counts[member] * known
        self.sums[g] += self.counts[member] * values[member]
        mask = (self.rows[g] > 0).astype(np.float64)
        if grows:
            self.divisors[g] = largest(masks, mask[None], self.over, self.phi)[:, 0]
        present = np.zeros(self.site.max() + 1, np.bool_)
        present[self.site[self.group == g]] = True
        free = np.flatnonzero((self.group < 0) & ~present[self.site])
        merged = Points((self.sums[g] / np.maximum(1, self.rows[g]))[None], mask[None], np.zeros(1, np.int64))
        new, same = np.empty(len(free)), np.zeros(len(free), np.int64)
        pair_distances(*self.points, free, *merged, same, self.phi == "cosine", new)
        new /= self.divisors[g, pattern[free]]
        self.distances[member] = np.inf
        self.distances[:, g] = np.inf
        self.distances[free, g] = np.where(np.isnan(new), np.inf, new)
