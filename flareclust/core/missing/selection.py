"""Which grouping of the sites' centroids to take: methods A and B are both run, and equation 5 decides.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 4.1.2: what is sought
is the grouping with the smallest objective (equation 5), which methods A and B approximate. D is the number of columns, c
that of centroids.

Added:
1. Equation 5 measures every centroid against that of its group, on all columns of its site and over the same divisor, so
   that the objectives of two groupings of the same centroids are comparable. A centroid without a group adds 1, the
   largest squared distance that there is (euclidean): a grouping does not become better by leaving centroids out.
2. Of equal objectives the one of the preferred method counts.
3. Both methods are run a second time without the columns that separate clusters least: those in which the clusters
   of a site differ by less than half of what is usual (the median over all columns). Two sites that have nothing but noise
   in common otherwise match their clusters by it. The objective is that over all columns, so that dropping a column that
   does separate clusters is not rewarded; the centroids of groups are over all columns as well. A method that is asked for
   is run as it is.
4. The k-means of method B also goes on from the groups of method A, whose starts are better where many centroids have no
   distance to each other.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.missing.grouping import Grouping, method_a, method_b, objective, regroup

Method = Literal["A", "B"]

#: A column hardly separates clusters where those of the sites differ by less than this share of the median (3).
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
    """Return the grouping of centroids (c, D) with the smallest objective by methods "A", "B" or "AB"; of equal ones the
    preferred.

    Other arguments and errors are as for `method_a`.
    """
    found: list[tuple[float, Method, Grouping, BoolArray]] = []
    for dropped in left_out_on_trial(centroids, counts, site):
        shown = np.where(dropped, np.nan, centroids)
        for method, grouping in _groupings(shown, counts, site, k, phi, methods):
            if dropped.any():
                if not _all_held(grouping.group, k):
                    continue  # an empty group has no centroid in the columns left out
                grouping = regroup(centroids, counts, grouping.group, k)
            found.append((cost(centroids, counts, grouping.group, k, phi), method, grouping, dropped))
        if len(methods) == 1:
            break  # a method that is asked for is run as it is
    found.sort(key=lambda one: one[1] != preferred)
    lowest = min(value for value, *_ in found)
    _, method, grouping, dropped = next(one for one in found if one[0] <= lowest * (1 + _SAME))
    objectives = {name: min(value for value, by, *_ in found if by == name) for name in {by for _, by, *_ in found}}
    return Chosen(grouping, method, objectives, dropped)


def cost(centroids: ArrayLike, counts: ArrayLike, group: IntArray, k: int, phi: str = "euclidean") -> float:
    """Return equation 5 of groups (c,), and 1 for every centroid without one."""
    return objective(centroids, counts, group, k, phi) + float((group < 0).sum())


def _between_variance(centroids: FloatArray, counts: IntArray, site: IntArray) -> FloatArray:
    """Return the variance between the clusters of the same site in each column (D,), weighted by rows, over all sites.

    Centroids are (c, D), NaN where unknown, rows behind each (c,), and numbers of their sites (c,).
    """
    squares, rows = np.zeros(centroids.shape[1]), np.zeros(centroids.shape[1])
    for number in np.unique(site):
        own, weights = centroids[site == number], counts[site == number].astype(np.float64)
        known = ~np.isnan(own[0])
        values = own[:, known]
        squares[known] += weights @ (values - weights @ values / weights.sum()) ** 2
        rows[known] += weights.sum()
    return np.divide(squares, rows, out=np.zeros_like(squares), where=rows > 0)


def left_out_on_trial(centroids: FloatArray, counts: IntArray, site: IntArray) -> Iterator[BoolArray]:
    """Give the columns to compare clusters without (D,): first none, then those that hardly separate them (3).

    The second is not given where no column is such a one, nor where a site would keep none.
    """
    yield np.zeros(centroids.shape[1], np.bool_)
    variance = _between_variance(centroids, counts, site)
    little: BoolArray = variance < _LITTLE * np.median(variance)
    if little.any() and (~np.isnan(centroids) & ~little).any(axis=1).all():
        yield little


def _groupings(
    centroids: FloatArray, counts: IntArray, site: IntArray, k: int, phi: str, methods: str
) -> Iterator[tuple[Method, Grouping]]:
    """Give the groupings of the methods; of both also what k-means makes of the groups of method A (4)."""
    if "B" in methods:
        yield "B", method_b(centroids, counts, site, k, phi)
    if "A" in methods:
        by_a = method_a(centroids, counts, site, k, phi)
        yield "A", by_a
        if "B" in methods and _all_held(by_a.group, k):
            yield "B", method_b(centroids, counts, site, k, phi, start=by_a.group)


def _all_held(group: IntArray, k: int) -> bool:
    """Return whether each of the k groups holds a centroid."""
    return len(np.unique(group[group >= 0])) == k
