"""Distributed k-means++, the server's side: cluster all users' seeds, average each group.

Source: Armacki, Kar, "Toward Understanding the Improved Robustness to Initialization in Distributed Clustering":
Algorithm 2, lines 5-6, and Definition 1.

Readings where the paper is open, and deviations from it:
1. Line 5: Xi is any of `core.clusterers.CLUSTERERS`. "kmeans", the default, is not among those that the paper calls
   admissible, for it can end in a local optimum; it is the best of ten runs.
2. Line 6: every seed counts the same, whatever the number of its rows.
3. Definition 1 is about the clusters that one wants; what is reported is the alpha of the groups that were found.
4. With fewer than k different seeds in all, fewer than k centroids are returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import clusterers
from flareclust.core.arrays import as_labels, as_matrix
from flareclust.evaluation.received import pooling_helps
from flareclust.executors import dkmpp
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class _DKMPPState(State):
    """What the server knows."""

    counts: IntArray | None = None  # the rows behind each centroid (k,)
    received_centroids: FloatArray | None = None  # the seeds (c, d)
    received_counts: IntArray | None = None  # their rows (c,)
    received_group: IntArray | None = None  # which of the k centroids each went into (c,)
    received_site: IntArray | None = None  # their users (c,)


class DKMPPAggregator(ClusteringAggregator):
    """The server of distributed k-means++.

    Diagnostics: `alpha`, below which the groups found are alpha-separable (left out where it is infinite), and
    `separable`, 1 where it exceeds 1; those of the clusterer.
    """

    params: dkmpp.DKMPPParams
    executor = dkmpp.DKMPPExecutor
    state = _DKMPPState

    def merge(
        self, round_: Round[_DKMPPState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[_DKMPPState]:
        """Run lines 5 and 6 on all users' seeds."""
        sent, site = gathered(replies.values())
        seeds, rows = sent["centroids"], sent["counts"]
        groups, notes = clusterers.group(seeds, self.params.k, self.params.clusterer, rng)
        centroids = clusterers.group_means(seeds, groups)

        alpha = separability(seeds, groups)
        diagnostics = {"received": float(len(seeds)), "separable": float(alpha > 1), **notes}
        if np.isfinite(alpha):
            diagnostics["alpha"] = alpha
        behind = np.bincount(groups, weights=rows, minlength=len(centroids)).astype(np.int64)
        return Round({"centroids": centroids}, True, diagnostics, _DKMPPState(behind, seeds, rows, groups, site))

    def warnings(self, round_: Round[_DKMPPState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where k-means of the seeds by their rows would be clearly better."""
        seeds, rows = round_.state.received_centroids, round_.state.received_counts
        if seeds is None or rows is None:
            return []
        return pooling_helps(seeds, rows, round_.task["centroids"], assessed, self.params.seed)


# How far apart the clusters of a set of points are, and what follows for distributed k-means++.
#
# Source: Armacki, Kar, "Toward Understanding the Improved Robustness to Initialization in Distributed Clustering":
# Definitions 1 and 3, Lemma 1, Theorem 1. Their symbols: K populations with means mu_k; R, the largest distance of a row
# to the mean of its population; r and D, the smallest and the largest distance of two means; m users.


def separability(points: FloatArray, labels: IntArray) -> float:
    """Return min |mu_k - mu_l| / max |mu_k - a_i| of a clustering: it is alpha-separable for every alpha below this.

    Definition 1 asks for an alpha > 1. Infinite where every point is the mean of its cluster, or where there is one
    cluster only.

    Raises:
        UserError: unless there is a point (n, d) or more, and `labels` (n,) are all numbers from 0 to the largest.
    """
    from scipy.spatial.distance import pdist

    points = as_matrix(points, "points")
    if len(points) == 0:
        raise UserError("points must have at least one row, got none")
    labels = as_labels(labels, len(points), len(points))
    if not np.bincount(labels).all():
        raise UserError("labels must be all numbers from 0 to the largest; some of them have no point")
    means = clusterers.group_means(points, labels)
    radius = float(np.sqrt(((points - means[labels]) ** 2).sum(axis=1).max()))
    return float("inf") if len(means) == 1 or radius == 0 else float(pdist(means).min()) / radius
