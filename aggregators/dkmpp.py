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

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.scaled import ScaledAggregator
from flareclust.core.clusterers import group, group_means
from flareclust.core.separability import separability
from flareclust.executors.dkmpp import DKMPPExecutor, DKMPPParams
from flareclust.protocol.replies import gathered


class DKMPPAggregator(ScaledAggregator):
    """The server of distributed k-means++.

    Kept on the server: `counts` (k,), the rows behind each centroid; `received_centroids` (c, d), `received_counts`
    (c,), `received_group` (c,), which of the k centroids each went into, and `received_site` (c,).

    Diagnostics: `alpha`, below which the groups found are alpha-separable (left out where it is infinite), and
    `separable`, 1 where it exceeds 1; those of the clusterer.
    """

    params: DKMPPParams

    steps = DKMPPExecutor.steps

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Run lines 5 and 6 on all users' seeds."""
        sent, site = gathered(replies.values())
        seeds, rows = sent["centroids"], sent["counts"]
        groups, notes = group(seeds, self.k, self.params.clusterer, rng)
        centroids = group_means(seeds, groups)

        alpha = separability(seeds, groups)
        diagnostics = {"received": float(len(seeds)), "separable": float(alpha > 1), **notes}
        if np.isfinite(alpha):
            diagnostics["alpha"] = alpha
        record = {
            "counts": np.bincount(groups, weights=rows, minlength=len(centroids)).astype(np.int64),
            "received_centroids": seeds,
            "received_counts": rows,
            "received_group": groups,
            "received_site": site,
        }
        return Round({"centroids": centroids}, done=True, diagnostics=diagnostics, record=record)
