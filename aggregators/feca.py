"""FeCA, the server's side: group the received centroids by radius, largest first, and average each group.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 5 (ServerAggregation).

Readings where the paper is open:
1. Line 4: of equal radii the centroid received first (sites in the order of their names) is picked.
2. Line 9: of groups of equal size the one formed first counts.
3. With fewer than k groups, fewer than k centroids are returned; the result never makes any up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.radius_tree import group_around
from flareclust.evaluation.received import pooling_helps
from flareclust.executors import feca
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.preparation.settings import by_direction
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: More centroids are looked for in a tree, with the same result; for fewer it takes longer to compile than it saves.
_MANY = 256


@dataclass(frozen=True, eq=False)
class FeCAState(State):
    """What the server knows: radius and size of each group (k,), and centroids (c, d), radii and sites (c,) as received."""

    radii: FloatArray | None = None
    votes: IntArray | None = None
    received_centroids: FloatArray | None = None
    received_radii: FloatArray | None = None
    received_site: IntArray | None = None


class FeCAAggregator(ClusteringAggregator):
    """The server of FeCA. Result beside `centroids`: `radii` and `votes`, the radius and size of each group (k,)."""

    params: feca.FeCAParams
    executor = feca.FeCAExecutor
    state = FeCAState

    def merge(
        self, round_: Round[FeCAState], replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round[FeCAState]:
        """Run Algorithm 5 on all sites' centroids and radii."""
        sent, site = gathered(replies.values())
        centroids, radii = sent["centroids"], sent["radii"]

        groups, picked = group_by_radius(centroids, radii)
        sizes = np.bincount(groups)
        top = np.argsort(-sizes, kind="stable")[: self.params.k]
        merged = np.stack([centroids[groups == g].mean(axis=0) for g in top])

        task, state = {"centroids": merged}, FeCAState(radii[picked[top]], sizes[top], centroids, radii, site)
        diagnostics = {"received": float(len(radii)), "groups": float(len(picked)), "used": float(sizes[top].sum())}
        return Round(task, done=True, diagnostics=diagnostics, state=state)

    def warnings(self, round_: Round[FeCAState], assessed: Mapping[str, Message]) -> list[str]:
        """Say where plain k-means of what was received would be clearly better."""
        sent, p = round_.state.received_centroids, self.params
        if sent is None or by_direction(p):
            return []
        return pooling_helps(sent, np.ones(len(sent)), round_.task["centroids"], assessed, p.seed)


def group_by_radius(centroids: FloatArray, radii: FloatArray) -> tuple[IntArray, IntArray]:
    """Group centroids (c, d) that lie within the radius (c,) of the one picked (Algorithm 5, lines 2-8).

    Returns:
        The group of each centroid (c,), numbered in the order of forming, and the centroid picked for each group.
    """
    order = np.argsort(-radii, kind="stable")
    if len(centroids) > _MANY:
        return group_around(np.ascontiguousarray(centroids), radii, order)
    return group_in_turn(centroids, radii, order)


def group_in_turn(centroids: FloatArray, radii: FloatArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Do the same, line by line: all centroids are compared with each one picked, in the order (c,) of picking."""
    groups = np.full(len(centroids), -1, dtype=np.int64)
    picked: list[int] = []
    for i in order:
        if groups[i] < 0:
            near = np.sqrt(((centroids - centroids[i]) ** 2).sum(axis=1)) <= radii[i]
            groups[near & (groups < 0)] = len(picked)
            groups[i] = len(picked)
            picked.append(int(i))
    return groups, np.array(picked, dtype=np.int64)
