"""Clustering of tables with different columns in rounds, the site's side: local clusters, then refined global ones.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": Algorithm 1, lines 2-3 and
13-20.

Readings where the paper is open, and deviations from it:
1. Lines 2-3, K_i and the method: those of core/site_clusters.py, which also says what is sent.
2. Line 14: a global centroid is compatible with a site if at least max(2, `min_count`) of the site's rows are nearest
   to it, by the rescaled distance of equation 3 with S the global centroids. Entries that one centroid alone knows do
   not count, as by the letter they count against it (core/missing/distances.py). Where all of the site's entries are
   known, that is the plain distance.
3. Line 15: `local_iter` iterations, ten by default. Entries of a compatible centroid that nobody knows yet start at the
   mean of the rows nearest to it, in the columns of the site.
4. Line 16: the cost of a pair is the same rescaled distance. Pairs without a common known entry are never matched. Of
   equally cheap matchings, which are common in a single column, the one with the least squared distances counts.
5. Line 19 keeps a list of K with invalid entries; here the clusters that a site has are sent with their numbers.
6. Not in the paper: numbers of rows are sent, which equation 4 needs. Clusters below `min_count` rows, of one row
   repeated, and means that are rows are not sent. With `scale=standard`, which sends sums over all rows, the rows that are
   kept back are none or several; the smallest clusters join them until that is so.
7. A site that has nothing it may send at the start refuses. In a later round it sits out, with an empty reply.
8. A row belongs to the nearest final centroid on the entries known of both.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import site_clusters as own_clusters
from flareclust.core.disclosure import describable
from flareclust.core.local import means_of_groups, sendable
from flareclust.core.missing.distances import centroid_distances, nearest
from flareclust.executors.local_clusters import LocalClustersParams, check_sites, local_clusters
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.different import guarded
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The step of the federated phase.
UPDATE = "update"

# Weight of squared distances in a matching: enough to break ties of sums of distances, too little to change others.
_TIE = 1e-6


class MaskedParams(LocalClustersParams):
    """Parameters of Algorithm 1."""

    local_iter: int = site(
        10, "Iterations of the local clustering in each round of the federated phase.", ge=1, le=MOST_ITERATIONS
    )
    method: Literal["auto", "A", "B"] = server(
        "auto", "How local clusters are grouped; auto runs both and takes the grouping with the smaller objective."
    )
    alpha: float = server(
        0.8, "How far each round goes from the old centroids (0) to those reported (1); the paper has 0.8.", gt=0, le=1
    )
    rounds: int = server(3, "Exchanges of the federated phase, at the most; 0 for none.", ge=0, le=MOST_ROUNDS)
    tol: float = server(
        1e-4, "A round that moves the centroids by less, in units of their spread, is the last; 0 for all rounds.", ge=0
    )


class MaskedExecutor(ClusteringExecutor):
    """A participant of Algorithm 1: sends its local clusters once, then in each round the global clusters that it has."""

    params: MaskedParams
    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k", minimum=1))),
        UPDATE: Step(
            Schema(
                may_be_empty=True, centroids="c d", counts=counts("c", minimum=1), cluster=index("c", less_than="K")
            ),
            "update",
        ),
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Cluster the site's rows (n, d)."""
        clusters = local_clusters(self.params, task.site, rows)
        return {"centroids": clusters.centroids, "counts": clusters.counts}

    def update(self, task: Task, rows: SiteRows) -> Message:
        """Refine the global centroids (k, d) that have rows here, cut to the site's columns: lines 14-20."""
        rows.check_enough()
        centroids = task.arrays["centroids"]
        start = _compatible(rows.X, centroids, max(2, rows.context.min_count), self.params.phi)
        if not len(start):
            return {"centroids": start, "counts": np.empty(0, np.int64), "cluster": np.empty(0, np.int64)}
        clusterer = own_clusters.of_site(self.params.clusterer, task.site, "kmeans")
        refined = own_clusters.refine(
            rows.X, start, clusterer=clusterer, local_iter=self.params.local_iter, aborted=rows.aborted
        )
        refined = means_of_groups(rows.X, refined.labels, refined.centroids)[0]
        cluster = _aligned(refined.centroids, centroids, self.params.phi)
        mask = describable(rows.X, refined.labels, refined.centroids, rows.context.min_count) & (cluster >= 0)
        clusters = guarded(self.params, sendable(refined, mask), rows, may_be_empty=True)
        return {"centroids": clusters.centroids, "counts": clusters.counts, "cluster": cluster[clusters.source]}

    def check_sites(self, sites: Sequence[str]) -> None:
        """Warn where settings name a site that is not there."""
        check_sites(self.params, sites)


def _compatible(data: FloatArray, centroids: FloatArray, minimum: int, phi: str) -> FloatArray:
    """Return the centroids (k, d) to which at least `minimum` of the rows (n, d) are nearest: line 14.

    Their unknown entries are filled with the mean of these rows.
    """
    labels = nearest(data, centroids, phi)
    rows = np.bincount(labels[labels >= 0], minlength=len(centroids))
    ids = np.flatnonzero(rows >= minimum)
    start = centroids[ids]
    for centroid, r in zip(start, ids, strict=True):
        unknown = np.isnan(centroid)
        centroid[unknown] = data[labels == r][:, unknown].mean(axis=0)
    return start


def _aligned(found: FloatArray, centroids: FloatArray, phi: str) -> IntArray:
    """Return the global centroid (k, d) that each local one (c, d) is matched with, (c,), -1 for none: lines 16-19."""
    from scipy.optimize import linear_sum_assignment  # the server, which reads the settings here, does without

    distances = centroid_distances(found, centroids, phi)
    cost = distances + _TIE * distances**2
    comparable = ~np.isnan(cost)
    # A pair that cannot be compared costs more than any way to match without it.
    worst = (1.0 + cost[comparable].max(initial=0.0)) * (1 + len(found))
    local_ids, global_ids = linear_sum_assignment(np.where(comparable, cost, worst))
    match = np.full(len(found), -1, dtype=np.int64)
    match[local_ids] = np.where(comparable[local_ids, global_ids], global_ids, -1)
    return match
