"""Grouping the centroids of sites that see different columns: merge, and methods A and B, of federated masked k-means.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 4.1.2. A centroid
is a row with NaN in the columns that nobody behind it observes. c is the number of all sites' centroids together, D that
of the columns in the union. Distances are in core/missing/distances.py, with S = all c centroids.

Readings where the printed text cannot be meant, or leaves open:
1. Equation 4 is the mean over the members that observe an entry, each weighing as many rows as it has: the numerator
   gets the weights too, and the denominator is at least 1.
2. Method A places centroids until none is left that can be placed, and merges all members of the group anew each time,
   with each entry's own number of rows.
3. Method A starts from the first site with exactly k centroids. Where there is none, from all of the site that has most
   (of those with fewer than k), and adds the centroid that is farthest from its nearest seed, among those comparable
   with all seeds; where no centroid is, among those comparable with most. Where all sites have more than k, k of those
   of the site with fewest are taken in that way, beginning with the farthest two.
4. A centroid stays without a group (-1) when no group is comparable with it, or when all that are hold one of its site.
   Groups that agree with it in nothing but constant columns are not comparable.
5. Method B adds the seed that it found last; seeds need not all be comparable, as in 3. A group that loses all members
   keeps its centroid, with 0 rows behind it. It stops when no group changes, at the latest after 100 rounds. With k = 1
   it starts from the first of the two farthest centroids.
6. Ties go to the lower index of centroid, then of group.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_choice
from flareclust.core.arrays import as_count
from flareclust.core.missing.distances import (
    PHIS,
    Extremes,
    as_masked,
    as_points,
    blocks,
    extremes,
    largest,
    lowest,
    scaled,
    scaled_distances,
)
from flareclust.core.missing.kernels import Points, pair_distances
from flareclust.core.runtime import one_thread

_MOST_ROUNDS = 100


class Grouping(NamedTuple):
    """Groups of c centroids; each group becomes one global centroid.

    Attributes:
        group: group of each centroid (c,) int64; -1 where it could not be placed (reading 4).
        centroids: (k, D), NaN where no member observes the entry.
        counts: rows behind each entry (k, D) int64.
    """

    group: IntArray
    centroids: FloatArray
    counts: IntArray


def merge(centroids: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Return the mean (D,) of centroids (c, D), entry by entry over those that know it: equation 4 as corrected; NaN where
    none does.

    `counts` (c,) are the rows behind each, at least 1; c may be 0. Raises UserError for other input.
    """
    points = as_masked(centroids, "centroids")
    return _merge(points, _as_numbers(counts, "counts", len(points), 1))[0]


def method_a(centroids: ArrayLike, counts: ArrayLike, site: ArrayLike, k: int, phi: str = "euclidean") -> Grouping:
    """Group centroids by placing, again and again, the one that is nearest to a group: method A (Assumption 1).

    A group never holds two centroids of one site. Time O(c^2 D): about 1 s (cosine 3 s) for 100 sites with 16 centroids each and D = 1024.

    Args:
        centroids: of all sites (c, D), NaN where unknown.
        counts: rows behind each (c,), at least 1.
        site: number of the site that each comes from (c,), from 0.
        k: number of groups, at most c.
        phi: "euclidean" or "cosine".

    Raises:
        JobFailed: all sites together have fewer than k centroids.
        UserError: for input that does not fit the above.
    """
    points, weights = _checked(centroids, counts, k, phi)
    sites, over = _as_numbers(site, "site", len(points), 0), extremes(points)
    with one_thread():
        group = _place(points, weights, sites, _seeds_a(points, sites, k, over, phi), over, phi)
    return regroup(points, weights, group, k)


def method_b(
    centroids: ArrayLike,
    counts: ArrayLike,
    site: ArrayLike,
    k: int,
    phi: str = "euclidean",
    start: IntArray | None = None,
) -> Grouping:
    """Group centroids by k-means from those farthest from each other: method B (Assumptions 2 and 3).

    Arguments and errors as for `method_a`; a group may hold several centroids of one site. With `start`, groups (c,) with -1
    for none, k-means goes on from these groups, which must not be empty.
    """
    points, weights = _checked(centroids, counts, k, phi)
    _as_numbers(site, "site", len(points), 0)
    over, group = extremes(points), np.full(len(points), -1, np.int64)
    with one_thread():
        if start is None:
            start = np.full(len(points), -1, np.int64)
            start[_spread(points, _farthest_pair(points, over, phi)[:k], k, over, phi)] = np.arange(k)
        means = _merge_groups(points, weights, start, k)[0]
        for _ in range(_MOST_ROUNDS):
            before, group = group, lowest(scaled(points, means, over, phi))
            group = np.where(group < 0, start, group)  # what knows constant columns only stays where it was
            if np.array_equal(group, before):
                break
            merged, _ = _merge_groups(points, weights, group, k)
            alive = np.bincount(group[group >= 0], minlength=k) > 0
            means = np.where(alive[:, None], merged, means)
    return Grouping(group, means, _merge_groups(points, weights, group, k)[1])


def objective(centroids: ArrayLike, counts: ArrayLike, group: ArrayLike, k: int, phi: str = "euclidean") -> float:
    """Return equation 5: squared scaled distances of centroids (c, D) to the merged centroid of their group, added.

    Those without a group, -1 in `group` (c,), are left out. Other arguments and errors are as for `method_a`.
    """
    points, weights = _checked(centroids, counts, k, phi)
    labels = _as_numbers(group, "group", len(points), -1)
    if labels.max() >= k:
        raise UserError(f"group must be below k={k}, got {labels.max()}")
    placed, (merged, _) = np.flatnonzero(labels >= 0), _merge_groups(points, weights, labels, k)
    distances = scaled_distances(points[placed], merged, extremes(points), phi)
    own = distances[np.arange(len(placed)), labels[placed]]
    return float(np.nansum(own**2))  # NaN: a centroid without known entries


def regroup(centroids: FloatArray, counts: IntArray, group: IntArray, k: int) -> Grouping:
    """Return the groups (c,) of centroids (c, D), -1 for none, with their merged centroids."""
    return Grouping(group, *_merge_groups(centroids, counts, group, k))


def _merge(points: FloatArray, counts: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the merged centroid (D,) and the rows behind each entry (D,)."""
    known = ~np.isnan(points)
    rows = counts @ known
    low = np.fmin.reduce(points, axis=0, initial=np.nan)  # as origin: the mean of equal numbers is that number
    sums = counts.astype(np.float64) @ np.where(known, points - low, 0.0)
    return low + sums / np.maximum(1, rows), rows


def _merge_groups(points: FloatArray, counts: IntArray, group: IntArray, k: int) -> tuple[FloatArray, IntArray]:
    """Return the merged centroids of all groups and the rows behind each entry, both (k, D)."""
    merged = [_merge(points[group == g], counts[group == g]) for g in range(k)]
    return np.array([mean for mean, _ in merged]), np.array([rows for _, rows in merged])


def _seeds_a(points: FloatArray, site: IntArray, k: int, over: Extremes, phi: str) -> IntArray:
    """Return the k centroids that the groups of method A start from (reading 3)."""
    sizes = np.bincount(site)
    fitting = np.flatnonzero((sizes > 0) & (sizes <= k))
    if len(fitting):
        own = np.flatnonzero(site == fitting[sizes[fitting].argmax()])
        return _spread(points, own, k, over, phi)
    own = np.flatnonzero(site == np.where(sizes > 0, sizes, len(site) + 1).argmin())
    return own[_spread(points[own], _farthest_pair(points[own], over, phi)[:k], k, over, phi)]


def _farthest_pair(points: FloatArray, over: Extremes, phi: str) -> IntArray:
    """Return the first two points (2,) with the largest distance, or the first point (1,) where none are comparable."""
    best, pair = -1.0, [0]
    for rows in blocks(len(points), max(points.shape)):
        distances = np.nan_to_num(scaled(points[rows], points, over, phi), nan=-1.0)
        if distances.max() > best:
            i, j = np.unravel_index(distances.argmax(), distances.shape)
            best, pair = float(distances[i, j]), [rows.start + int(i), int(j)]
    return np.unique(pair)


def _spread(points: FloatArray, chosen: IntArray, k: int, over: Extremes, phi: str) -> IntArray:
    """Return `chosen` and points added to it, (k,): each time the one farthest from its nearest chosen one (reading 3)."""
    seeds = [int(z) for z in chosen]
    distances = scaled(points, points[seeds], over, phi)
    closest, comparable = np.fmin.reduce(distances, axis=1), (~np.isnan(distances)).sum(axis=1)
    while len(seeds) < k:
        comparable[seeds] = -1
        z = int(np.where(comparable == comparable.max(), np.nan_to_num(closest, nan=0.0), -1.0).argmax())
        seeds.append(z)
        new = scaled(points, points[[z]], over, phi)[:, 0]
        closest = np.fmin(closest, new)
        comparable += ~np.isnan(new)
    return np.array(seeds)


def _checked(centroids: ArrayLike, counts: ArrayLike, k: int, phi: str) -> tuple[FloatArray, IntArray]:
    """Return centroids (c, D) and counts (c,), or raise what `method_a` promises."""
    points = as_masked(centroids, "centroids")
    check_choice("phi", phi, PHIS)
    if as_count(k, "k") > len(points):
        raise JobFailed(
            f"the sites found {len(points)} clusters in all, which cannot make k={k} groups; ask for fewer clusters (k), "
            "or let sites send more of theirs (a higher k_local, a lower min_count)"
        )
    return points, _as_numbers(counts, "counts", len(points), 1)


def _as_numbers(values: ArrayLike, name: str, c: int, minimum: int) -> IntArray:
    """Return c integers of at least `least` as int64 (c,), or raise UserError."""
    array = np.asarray(values)
    if array.shape != (c,) or (c > 0 and array.dtype.kind not in "iuf"):
        raise UserError(f"{name} must be {c} integers, one for each centroid, got shape {array.shape} of {array.dtype}")
    if not (np.isfinite(array) & (array >= minimum) & (array == np.floor(array))).all():
        raise UserError(f"{name} must be integers of at least {minimum}, got {array.tolist()}")
    return array.astype(np.int64)


# The inner part of method A: centroids join groups one by one, the nearest first.


def _place(
    centroids: FloatArray, counts: IntArray, site: IntArray, seeds: IntArray, over: Extremes, phi: str
) -> IntArray:
    """Return the group of each centroid (c,), -1 where none can take it: lines 3 to 21 of method A.

    `seeds` (k,) are the centroids that the groups start from; the others are as for `method_a`.
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
        pair_distances(self.points, free, merged, same, self.phi == "cosine", new)
        new /= self.divisors[g, pattern[free]]
        self.distances[member] = np.inf
        self.distances[:, g] = np.inf
        self.distances[free, g] = np.where(np.isnan(new), np.inf, new)
