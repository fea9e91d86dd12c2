"""One update of Lloyd's algorithm from what the sites send: the weighted mean of each cluster's rows."""

from collections.abc import Collection

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.group_kernels import add_means
from flareclust.core.robust import PLAIN, Rule, capped, site_centers
from flareclust.protocol.replies import gathered, piecewise


def lloyd_merge(centroids: FloatArray, replies: Collection[Message], rule: Rule = PLAIN) -> FloatArray:
    """Return the centroids (k, d) after one update: the means of all rows that the replies describe.

    With a rule that judges sites, the center of what they say of each cluster instead.

    A cluster that no reply describes keeps its centroid. Pure, and the same bits for the same replies.

    Args:
        centroids: what the sites were sent (k, d).
        replies: of each site `centroids` (c, d), `counts` (c,) and `cluster` (c,), which centroid each belongs to.
        rule: how far sites are believed.
    """
    sent, site = gathered(replies, ("counts", "cluster"))
    counts, cluster = capped(sent["counts"], site, rule.cap), sent["cluster"]
    if rule.active:
        return site_centers(centroids, gathered(replies)[0]["centroids"], counts, site, cluster, rule)
    rows = counts.astype(np.float64)
    total = np.bincount(cluster, weights=rows, minlength=len(centroids))
    # Sums about a point of the cluster itself lose nothing where the data lie far from zero. It is one of the points
    # received, so that the same replies give the same centroids and nothing moves once no row changes its cluster.
    origin, sums, present = centroids.copy(), np.zeros_like(centroids), np.zeros(len(centroids), dtype=np.bool_)
    end = 0
    for points in piecewise(replies, "centroids"):
        start, end = end, end + len(points)
        add_means(points, rows[start:end], cluster[start:end], origin, present, sums)
    moved = centroids.copy()
    moved[present] = origin[present] + sums[present] / total[present, None]
    return moved


def rows_behind(k: int, replies: Collection[Message]) -> IntArray:
    """Return how many rows the replies describe for each of the k centroids (k,)."""
    behind = np.zeros(k, dtype=np.int64)
    sent, _ = gathered(replies, ("cluster", "counts"))
    np.add.at(behind, sent["cluster"], sent["counts"])
    return behind
