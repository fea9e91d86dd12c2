"""k-FED, the server's side: farthest-first traversal of the devices' centers, then one Lloyd round on them.

Source: Dennis, Li, Smith, "Heterogeneity for the Win: One-Shot Federated Clustering" (2021): Algorithm 2.

Readings where the paper is open, and deviations from it:
1. Step 2, "any z": the first device by name, unless `start` names another.
2. Step 7: one round, unless `lloyd_rounds` says more; centers count equally, unless `weighted` by their rows.
3. Of a start device with more than k centers (ours never sends as many) the first k count. Of equally far centers the one received first is
   taken. With fewer than k different centers in all, fewer than k clusters are returned.
4. Every device receives the assignments of all devices' centers, as numbers without the centers themselves, and uses its
   own; in the paper each device receives its own only. One message fits all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust._foundation.validation import did_you_mean
from flareclust.core.lloyd import labels_of
from flareclust.core.seeds import farthest_first
from flareclust.evaluation.received import too_few_local
from flareclust.executors import kfed
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class KFedState(State):
    """What the server knows."""

    anchors: FloatArray | None = None  # the points assigned to last (k, d)
    counts: IntArray | None = None  # the rows behind each cluster (k,)
    received_centroids: FloatArray | None = None  # the centers (c, d)
    received_site: IntArray | None = None  # the number of the device of each (c,)


class KFedAggregator(ClusteringAggregator):
    """The server of k-FED.

    Sent with the result: `tau` (c,), the cluster of each received center, and `tau_site` (c,), whose it is.
    """

    params: kfed.KFedParams
    executor = kfed.KFedExecutor
    state = KFedState

    def check_sites(self, sites: Sequence[str]) -> None:
        """Raise UserError where `start` is none of the sites."""
        if self.params.start is not None and self.params.start not in sites:
            raise UserError(f"start={self.params.start!r}{did_you_mean(self.params.start, sites)} is none of the sites")

    def merge(
        self, round_: Round[KFedState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[KFedState]:
        """Run Algorithm 2 on all devices' centers."""
        if self.params.start is not None and self.params.start not in replies:
            raise JobFailed(f"start={self.params.start!r} sent no centers; sites that did: {', '.join(replies)}")
        owners = list(replies)
        first = 0 if self.params.start is None else owners.index(self.params.start)
        sent, site = gathered(replies.values())
        centers, rows = sent["centroids"], sent["counts"]

        chosen = farthest_first(
            centers, min(self.params.k, len(centers)), np.flatnonzero(site == first)[: self.params.k]
        )
        weights = rows.astype(np.float64) if self.params.weighted else np.ones(len(rows))
        anchors, means, tau = lloyd_on_centers(centers, centers[chosen], weights, self.params.lloyd_rounds)

        numbers = np.array([kfed.site_number(name) for name in owners], dtype=np.int64)[site]
        behind = np.bincount(tau, weights=rows, minlength=len(means)).astype(np.int64)
        diagnostics, task = {"received": float(len(centers))}, {"centroids": means, "tau": tau, "tau_site": numbers}
        return Round(task, True, diagnostics, KFedState(anchors, behind, centers, site))

    def warnings(self, round_: Round[KFedState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where devices may hold rows of more clusters than they sent centers."""
        centers, site = round_.state.received_centroids, round_.state.received_site
        if centers is None or site is None or self.params.k_local == self.params.k:  # more than k is refused
            return []
        return too_few_local(centers, site, round_.task["centroids"], assessed, self.params.seed)


def lloyd_on_centers(
    centers: FloatArray, start: FloatArray, weights: FloatArray, rounds: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Run Lloyd rounds on the devices' centers (c, d) from `start` (k, d): Algorithm 2, step 7.

    Returns:
        The points that the last round assigned to (k, d), the means of tau_r (k, d), and tau (c,).
    """
    means = start
    for _ in range(rounds):
        anchors = means
        tau = labels_of(centers, anchors)
        totals = np.bincount(tau, weights=weights, minlength=len(anchors))
        # A tau_r is empty where the start device sent one point twice, or after the first round: its point stays.
        filled, means = totals > 0, anchors.copy()
        for r in np.flatnonzero(filled):
            members = tau == r
            means[r] = (weights[members, None] * centers[members]).sum(axis=0) / totals[r]
    return anchors, means, tau
