"""Whether the centroids that sites have sent hold a better answer than the result, or none; nothing more is asked of sites."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core.clusterers import weighted_kmeans
from flareclust.core.lloyd import assign
from flareclust.protocol.replies import stacked

#: Factor between inertias above which the result is clearly worse than what was sent.
_WORSE = 1.05

#: Where sites have rows of few clusters each, their centers lie together at k places: they add less than this share of the
#: inertia, and one site's number of places leaves more than the second share of their variance. Fewer centers than this many for
#: each cluster cannot tell.
_APART, _ALIKE, _TELLING = 0.1, 0.13, 2

_STARTS = 10

#: Of more points so many are drawn: what is said does not depend on more, and time would.
_MOST_POINTS = 2_000


def pooling_helps(
    points: FloatArray, weights: Array, centroids: FloatArray, assessed: Mapping[str, Message], seed: int
) -> list[str]:
    """Return a sentence where k-means of the received centroids would have clearly less inertia than the result.

    The inertia of rows is that within the clusters that sites sent, and that of these about the result; only the latter changes.

    Args:
        points: the centroids received (c, d).
        weights: rows of each (c,), or ones.
        centroids: of the result (k, d).
        assessed: the sites' replies in the assessment.
        seed: of the job.
    """
    inertia = _assessed(assessed)[1]
    if not np.isfinite(inertia):
        return []
    drawn, n = _drawn(len(points), seed), len(points)
    points, weights = points[drawn], weights[drawn]
    less = _about(points, weights, centroids) - _scatter(points, weights, len(centroids), seed)
    if less <= 0 or inertia < _WORSE * (inertia - less):
        return []
    reason = f"k-means of the {n} centroids that the sites sent is clearly better than this result"
    return [f"{reason}: take pooled, which needs the same messages, or portfolio"]


def too_few_local(
    points: FloatArray, site: IntArray, centroids: FloatArray, assessed: Mapping[str, Message], seed: int
) -> list[str]:
    """Return a sentence where sites sent fewer centers than there are clusters and seem to have rows of more of them.

    Args:
        points: the centers received (c, d).
        site: the number of the site of each (c,).
        centroids: of the result (k, d).
        assessed: the sites' replies in the assessment.
        seed: of the job.
    """
    n, k, local = len(points), len(centroids), int(np.median(np.bincount(site)))
    rows, inertia = _assessed(assessed)
    if local >= k or not rows:
        return []
    points = points[_drawn(n, seed)]
    ones = np.ones(len(points))
    places = _scatter(points, ones, local, seed) > _ALIKE * _scatter(points, ones, 1, seed)
    apart = max(_APART, 2 * n / rows)  # means of few rows lie apart by chance: n / rows is expected
    if n >= _TELLING * k and places and _about(points, ones, centroids) <= apart * inertia:
        return []
    reason = f"most sites described their rows by {local} centers for k={k}, which is enough only where each has rows of few clusters"
    return [
        f"{reason}, and nothing shows that: set k_local to the most clusters that a site may have, {k} if unknown, or take portfolio"
    ]


def _assessed(replies: Mapping[str, Message]) -> tuple[int, float]:
    """Return how many rows were assessed, and the mean of their squared distances; NaN without rows."""
    rows = int(stacked(replies.values(), "counts").sum()) if replies else 0
    return rows, float(stacked(replies.values(), "sse").sum()) / rows if rows else np.nan


def _drawn(n: int, seed: int) -> IntArray:
    """Return which of n points are looked at."""
    if n <= _MOST_POINTS:
        return np.arange(n)
    return stream(seed, 0, "received points").choice(n, _MOST_POINTS, replace=False)


def _about(points: FloatArray, weights: Array, centroids: FloatArray) -> float:
    return float(np.average(assign(points, centroids)[1], weights=weights))


def _scatter(points: FloatArray, weights: Array, k: int, seed: int) -> float:
    """Return the mean squared distance of points (c, d) from the nearest of their own k centroids."""
    rng = stream(seed, 0, "received centroids")
    return _about(points, weights, weighted_kmeans(points, weights, k, _STARTS, rng)[0])
