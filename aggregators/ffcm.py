"""FFCM, the server's side: local fuzzy centroids are averaged by their number (v1) or clustered again (v2).

Source: Stallmann, Wilbik, "Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM)" (2022); as a
baseline in Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024), section 6.

Readings where the papers are open, and deviations from them:
1. The start is k of all cells that the sites sent, drawn without replacement in proportion to their rows; equal means
   of different sites are one cell. With `start="k-means++"` the draw is by k-means++, weighted by the rows: an independent
   one would take the same cluster from several sites. `start` may give the centroids instead; then sites are not asked.
2. A round is an exchange of fuzzy centroids: `rounds=10` asks the sites once for cells and ten times for centroids.
   All rounds take place; the papers' figures are after 1 and 10.
3. v1: per centroid of the last round, the mean of what came back, weighted by its support. A centroid that no site sent
   stays where it was.
4. v2: k-means on all that came back, from k-means++ starts, the best of `n_init`; every centroid counts once unless
   `weighted` by its support. It is seeded anew in each round. Its result is not brought into the order of the last
   round, since sites number what they send by the centroids that they were sent in the same round.
5. With fewer than k cells, or fewer than k different centroids in v2, fewer than k clusters are returned.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import clusterers
from flareclust.core.rounds import movement, remember
from flareclust.core.seeds import kmeans_plusplus
from flareclust.executors import ffcm
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class FFCMState(State):
    """What the server knows."""

    history: FloatArray | None = None  # the centroids of every round (rounds, k, d), first the start if it was drawn
    support: FloatArray | None = None  # behind each final centroid (k,)
    received_centroids: FloatArray | None = None  # those of the last round (c, d)
    received_support: FloatArray | None = None  # their support (c,)
    received_site: IntArray | None = None  # and sites (c,)


_Round = Round[FFCMState]


class FFCMAggregator(ClusteringAggregator):
    """The server of FFCM."""

    params: ffcm.FFCMParams
    executor = ffcm.FFCMExecutor
    state = FFCMState

    def begin(self) -> _Round:
        """Ask for cells, or, where the start is given, for fuzzy centroids at once."""
        if isinstance(self.params.start, str):
            return Round(state=FFCMState())
        start = np.array(self.params.start, dtype=np.float64)
        return Round({"centroids": start}, state=FFCMState(), step=ffcm.FUZZY)

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Draw the start."""
        sent, _ = gathered(replies.values())
        start = _draw_start(sent["centroids"], sent["counts"], self.params.k, str(self.params.start), rng)
        state = FFCMState(remember(None, start, self.params.k))
        return Round({"centroids": start}, state=state, step=ffcm.FUZZY)

    def fuzzy(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Average the sites' fuzzy centroids (v1), or cluster them again (v2)."""
        sent, site = gathered(replies.values())
        centers, support, before = sent["centroids"], sent["support"], round_.task["centroids"]
        if self.params.version == "v1":
            labels = sent["cluster"]
            centroids = _average(before, centers, support, labels)
        else:
            weights = support if self.params.weighted and support.any() else np.ones(len(support))
            centroids, labels = clusterers.weighted_kmeans(centers, weights, self.params.k, self.params.n_init, rng)

        diagnostics = {"received": float(len(centers)), "centroids": float(len(centroids))}
        if len(before) == len(centroids):
            diagnostics["shift"] = movement(before, centroids)
        behind = np.bincount(labels, weights=support, minlength=len(centroids)).astype(np.float64)
        state = FFCMState(remember(round_.state.history, centroids, self.params.k), behind, centers, support, site)
        drawn = isinstance(self.params.start, str)
        done = round_.index + (0 if drawn else 1) >= self.params.rounds
        return Round({"centroids": centroids}, done, diagnostics, state, ffcm.FUZZY)


def _draw_start(centers: FloatArray, cells: IntArray, k: int, start: str, rng: np.random.Generator) -> FloatArray:
    """Draw at most k of the cells' means (c, d) in proportion to their rows (c,), at "random" or by "k-means++"."""
    points, group = np.unique(centers, axis=0, return_inverse=True)
    rows = np.bincount(group.ravel(), weights=cells)
    if len(points) <= k:
        return points
    if start == "k-means++":
        return kmeans_plusplus(points, k, rng, weights=rows)[0]
    drawn: FloatArray = points[rng.choice(len(points), size=k, replace=False, p=rows / rows.sum())]
    return drawn


def _average(before: FloatArray, centers: FloatArray, support: FloatArray, cluster: IntArray) -> FloatArray:
    """Return the supported mean of the centers (c, d) of each cluster, v1; without any, the centroid `before` (k, d)."""
    total, shifts = np.bincount(cluster, weights=support, minlength=len(before)), np.zeros_like(before)
    np.add.at(shifts, cluster, support[:, None] * (centers - before[cluster]))
    moved, after = total > 0, before.copy()
    after[moved] += shifts[moved] / total[moved, None]
    return after
