"""Pooled centroids, the site's side: k-means on the site's rows; its centroids and how many rows each has.

The plain baseline of one-shot methods; it has no paper. It also serves to choose the number of clusters of a federation,
from one upload (`flareclust.evaluation.selection`).

1. A site with fewer than `min_count` rows for each of k clusters looks for fewer.
2. Clusters that may not be described to others are not sent.
"""

from types import MappingProxyType

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust._foundation.validation import check_int
from flareclust.core.local import local_clusters
from flareclust.evaluation.scores import ALL_SCORES
from flareclust.executors.base import ClusteringExecutor
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.task import SCORE, Task


class PooledExecutor(ClusteringExecutor):
    """A site that sends the centroids of its own k-means.

    Args:
        k: number of clusters, locally as well as in the federation.
        seed: of the job.
        min_count: clusters with fewer rows never leave the site.
        n_init: starts of the local k-means.
    """

    reply = Schema(centroids="k d", counts=counts("k"))
    steps = MappingProxyType({SCORE: Schema(may_be_empty=False, **ALL_SCORES)})

    def __init__(self, k: int, seed: int = 0, min_count: int = 2, n_init: int = 1) -> None:
        super().__init__(k, seed, min_count)
        self.n_init = check_int("n_init", n_init, minimum=1)

    def local(self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> Message:
        """Cluster the rows and keep what may be sent."""
        clusters = local_clusters(data, self.k, rng, n_init=self.n_init, min_count=self.min_count, aborted=aborted)
        return {"centroids": clusters.centroids, "counts": clusters.counts}
