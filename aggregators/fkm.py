"""FKM, the server's side: weighted k-means on all sites' means, anew in every round.

Source: Garst, Reinders, "Federated K-Means Clustering" (2024): Algorithm 1, lines 6-11, and equation 1.

Readings where the paper is open, and deviations from it:
1. Line 10: k-means is seeded anew in every round, by greedy k-means++ on the means weighted by their rows, and the best
   of `n_init` runs to convergence counts, ten as in the published code. It does not go on from the last centroids.
2. A round is an exchange after the start: `rounds=10` asks the sites once for seeds and then ten times for an update.
   The result is what the server makes of the last replies (line 10); no update is asked for that would not be used.
3. The paper stops after a number of rounds. Here a round that moves the centroids by less than `tol` is the last as
   well: the largest distance between matched centroids, in units of their spread.
4. `start` may cluster the seeds without their counts, as distributed k-means++ does (Armacki and Kar, Algorithm 2); in
   round 0 only.
5. With fewer than k different means in all, fewer than k centroids are returned.
6. A round in which no site has anything it may send leaves the centroids as they are, and is the last.
7. Not in the paper: with `robust`, means that are unlike those of the other sites are left out before the k-means, and its
   centroids are trimmed means or geometric medians over the sites; `cap` limits what a site's rows count
   (`flareclust.core.robust`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core import clusterers, robust
from flareclust.core.lloyd import assign
from flareclust.core.rounds import movement, remember
from flareclust.executors import fkm
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class _FKMState(State):
    """What the server knows."""

    history: FloatArray | None = None  # the centroids of the start and after every round (rounds + 1, k, d)
    counts: IntArray | None = None  # the rows behind each final centroid (k,)
    received_centroids: FloatArray | None = None  # the means of the last round in which any came (c, d)
    received_counts: IntArray | None = None  # their rows (c,)
    received_site: IntArray | None = None  # and sites (c,)
    kept: BoolArray | None = None  # with `robust`, which of them were believed (c,)
    left_out: Array | None = None  # the names of the sites that were not


_Round = Round[_FKMState]


class FKMAggregator(ClusteringAggregator):
    """The server of FKM."""

    params: fkm.FKMParams
    executor = fkm.FKMExecutor
    state = _FKMState

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Cluster the sites' means (lines 8-10)."""
        sent, site = gathered(replies.values())
        means, sizes = sent["centroids"], sent["counts"]  # lines 8-9
        if not len(means):
            return _all_sat_out(self.params, round_)
        starting = round_.index == 0
        filtered = robust.filter_outliers(means, sizes, site, self.params.k, self.params.rule)
        if starting and self.params.start != fkm.WEIGHTED:
            centroids, cluster = clusterers.cluster_means(filtered.points, self.params.k, self.params.start, rng)
        else:
            centroids, cluster = clusterers.weighted_kmeans(
                filtered.points, filtered.weights, self.params.k, self.params.n_init, rng
            )
        centroids = filtered.centers(centroids, cluster)
        numbers, believed = filtered.summary(replies)

        shift = float("inf") if starting else movement(round_.task["centroids"], centroids)
        squared = assign(filtered.points, centroids)[1]  # of equation 1: distances to the nearest centroid
        diagnostics = {
            "received": float(len(means)),
            "centroids": float(len(centroids)),
            "objective": float((filtered.weights * squared).sum()),
            **numbers,
        }
        if np.isfinite(shift):
            diagnostics["shift"] = shift
        behind = np.bincount(cluster, weights=filtered.weights, minlength=len(centroids)).astype(np.int64)
        history = remember(round_.state.history, centroids, self.params.k)
        state = _FKMState(history, behind, means, sizes, site, believed.kept, believed.left_out)
        done = round_.index >= self.params.rounds or shift < self.params.tol
        return Round({"centroids": centroids}, done, diagnostics, state)


class FKMCommonAggregator(ClusteringAggregator):
    """The server of FKM on the columns that all sites have; a job without such a column fails."""

    params: fkm.FKMCommonParams
    executor = fkm.FKMCommonExecutor
    state = _FKMState
    merge = FKMAggregator.merge


class FKMImputedAggregator(ClusteringAggregator):
    """The server of FKM on all columns, with means in the place of those that a site lacks."""

    params: fkm.FKMImputedParams
    executor = fkm.FKMImputedExecutor
    state = _FKMState
    merge = FKMAggregator.merge


def _all_sat_out(params: fkm.FKMRounds, round_: _Round) -> _Round:
    """Return the end of a federation whose sites have nothing that they may send: its last centroids."""
    if round_.index == 0:
        raise JobFailed(
            "no site has a cluster of at least min_count rows that it may send; set a lower min_count, or ask for "
            "fewer clusters (k)"
        )
    centroids = round_.task["centroids"]
    diagnostics = {"received": 0.0, "centroids": float(len(centroids))}
    state = replace(round_.state, history=remember(round_.state.history, centroids, params.k))
    return Round({"centroids": centroids}, True, diagnostics, state)
