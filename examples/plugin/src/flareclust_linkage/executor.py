"""Linkage, the site's side: local k-means; centroids, how many rows each has, and how far they lie from it.

Readings and deviations: clusters that would describe too few rows are not sent (`local_clusters`).
"""

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.core.lloyd import member_statistics
from flareclust.core.local import local_clusters
from flareclust.executors.feca import coarse
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation import settings
from flareclust.protocol.params import server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class LinkageParams(settings.ClusteringParams):
    """Parameters of linkage."""

    n_init: int = site(1, "Starts of the local k-means; the best one counts.", ge=1)
    weighted: bool = server(True, "Whether a centroid counts as often as it has rows.")


class LinkageExecutor(ClusteringExecutor):
    """A site of linkage."""

    params: LinkageParams

    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k"), spread=real("k", minimum=0)))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Cluster the rows (n, d) and describe the clusters."""
        clusters = local_clusters(
            rows.X,
            self.params.k,
            rows.rng,
            n_init=self.params.n_init,
            min_count=rows.context.min_count,
            aborted=rows.aborted,
        )
        sse = member_statistics(rows.X, clusters.labels, clusters.centroids).sse
        return {
            "centroids": clusters.centroids,
            "counts": clusters.counts,
            # Of two significant digits: with centroid and count, an exact one would disclose more about the rows of small clusters.
            "spread": coarse(np.sqrt(sse / clusters.counts)),
        }
