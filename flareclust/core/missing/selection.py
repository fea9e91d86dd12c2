"""Which grouping of the sites' centroids to take: methods A and B are both run, and equation 5 decides.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 4.1.2: what is sought
is the grouping with the smallest objective (equation 5), which methods A and B approximate. D is the number of columns, c
that of centroids.

Added:
1. Equation 5 measures every centroid against that of its group, on all columns of its site and over the same divisor, so
   that the objectives of two groupings of the same centroids are comparable. A centroid without a group adds 1, the
   largest squared distance that there is (euclidean): a grouping does not become better by leaving centroids out.
2. Of equal objectives the one of the preferred method counts.
3. Both methods are run a second time without the columns that tell least about clusters: those in which the clusters
   of a site differ by less than half of what is usual (the median over all columns). Two sites that have nothing but noise
   in common otherwise match their clusters by it. The objective is that over all columns, so that dropping a column that
   does tell something is not rewarded; the centroids of groups are over all columns as well.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.missing.grouping import Grouping, method_a, method_b, objective, regroup

Method = Literal["A", "B"]

_METHODS = {"A": method_a, "B": method_b}

#: A column tells little where the clusters of the sites differ by less than this share of the median (3).
_LITTLE = 0.5

#: Objectives that differ by less, relatively, are equal.
_SAME = 1e-9


class Chosen(NamedTuple):
    """A grouping, and why it was taken.

    Attributes:
        grouping: of all c centroids.
        method: that found it.
        objectives: the smallest objective of each method that was run, with 1 for every centroid without a group.
        left_out: columns by which the centroids were not compared (D,).
    """

    grouping: Grouping
    method: Method
    objectives: dict[Method, float]
    left_out: BoolArray


def best_grouping(
    centroids: FloatArray, counts: IntArray, site: IntArray, k: int, phi: str, methods: str, preferred: Method
) -> Chosen:
    """Return the grouping of centroids (c, D) with the smallest objective.

    Args:
        centroids, counts, site, k, phi: as for `method_a`.
        methods: which to run: "A", "B" or "AB".
        preferred: whose grouping counts of equal ones.

    Raises:
        JobFailed, UserError: as `method_a`.
    """
    found: list[tuple[float, Method, Grouping, BoolArray]] = []
    order: list[Method] = ["A", "B"] if preferred == "A" else ["B", "A"]
    for dropped in _dropped(centroids, counts, site):
        for method in (name for name in order if name in methods):
            grouping = _METHODS[method](np.where(dropped, np.nan, centroids), counts, site, k, phi)
            if dropped.any():
                if len(np.unique(grouping.group[grouping.group >= 0])) < k:
                    continue  # an empty group has no centroid in the columns left out
                grouping = regroup(centroids, counts, grouping.group, k)
            found.append((cost(centroids, counts, grouping.group, k, phi), method, grouping, dropped))
    lowest = min(value for value, *_ in found)
    _, method, grouping, dropped = next(one for one in found if one[0] <= lowest * (1 + _SAME))
    objectives = {name: min(v for v, by, *_ in found if by == name) for name in order if name in methods}
    return Chosen(grouping, method, objectives, dropped)


def cost(centroids: ArrayLike, counts: ArrayLike, group: IntArray, k: int, phi: str = "euclidean") -> float:
    """Return equation 5 of groups (c,), and 1 for every centroid without one."""
    return objective(centroids, counts, group, k, phi) + float((group < 0).sum())


def telling(centroids: FloatArray, counts: IntArray, site: IntArray) -> FloatArray:
    """Return how much the clusters of the same site differ in each column (D,): their variance, by rows, over all sites.

    Args:
        centroids: (c, D), NaN where unknown.
        counts: rows behind each (c,).
        site: number of the site that each comes from (c,).
    """
    squares, rows = np.zeros(centroids.shape[1]), np.zeros(centroids.shape[1])
    for number in np.unique(site):
        own, weights = centroids[site == number], counts[site == number].astype(np.float64)
        known = ~np.isnan(own[0])
        values = own[:, known]
        squares[known] += weights @ (values - weights @ values / weights.sum()) ** 2
        rows[known] += weights.sum()
    return np.divide(squares, rows, out=np.zeros_like(squares), where=rows > 0)


def _dropped(centroids: FloatArray, counts: IntArray, site: IntArray) -> Iterator[BoolArray]:
    """Give the columns to leave out (D,): first none, then those that tell little if there are any and each site keeps some."""
    yield np.zeros(centroids.shape[1], np.bool_)
    told = telling(centroids, counts, site)
    little: BoolArray = told < _LITTLE * np.median(told)
    if little.any() and (~np.isnan(centroids) & ~little).any(axis=1).all():
        yield little
