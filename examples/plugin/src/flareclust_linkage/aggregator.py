"""Linkage, the server's side: average linkage of all sites' centroids, cut into k; the mean of each group."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from flareclust._foundation.typing import FloatArray, Message
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State
from flareclust_linkage.executor import LinkageExecutor, LinkageParams


@dataclass(frozen=True, eq=False)
class LinkageState(State):
    """What the server knows: the largest `spread` of each group (k,)."""

    spread: FloatArray | None = None


class LinkageAggregator(ClusteringAggregator):
    """The server of linkage."""

    params: LinkageParams
    executor = LinkageExecutor
    state = LinkageState

    def merge(
        self, round_: Round[LinkageState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[LinkageState]:
        """Merge all sites' centroids (c, d) into k."""
        sent, _ = gathered(replies.values())
        centroids, rows = sent["centroids"], sent["counts"].astype(np.float64)
        weights = rows if self.params.weighted else np.ones(len(rows))
        group = np.zeros(len(centroids), np.int64)
        if len(centroids) > 1:
            group = fcluster(linkage(centroids, "average"), self.params.k, criterion="maxclust") - 1
        groups = [group == g for g in range(group.max() + 1)]
        means = np.stack([np.average(centroids[own], axis=0, weights=weights[own]) for own in groups])
        spread = np.array([sent["spread"][own].max() for own in groups])
        return Round({"centroids": means}, done=True, state=LinkageState(spread))
