"""Match averaging, the site's side: the centroids of the site's own k-means.

Source: the baseline M-Avg of Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (TMLR 2024), section 6, which
describes it in a sentence.

Readings and deviations:
1. The local clustering is k-means with the federation's k, by default from one start by greedy k-means++, as in
   scikit-learn with `n_init=1`. The paper does not say; with this its figures come out.
2. A site with fewer rows than k refuses: its fewer and coarser clusters are not what the other sites' are matched with.
   One with fewer than `min_count` rows per cluster looks for fewer clusters.
3. Not in the paper: clusters below `min_count` rows, of one row repeated, or whose mean is a row, are not sent. With
   `small_clusters="dissolve"` the first join others instead. With `local_kmeans="summary"` k-means runs on a summary of the
   rows (`flareclust.core.local`).
"""

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.executors.pooled import OwnClustersParams, own_clusters
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import RobustParams
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class MAvgParams(OwnClustersParams, RobustParams):
    """Parameters of match averaging."""


class MAvgExecutor(ClusteringExecutor):
    """A site of match averaging."""

    params: MAvgParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d"))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Cluster the rows and keep what may be sent."""
        if len(rows) < self.params.k:
            raise Refusal(f"has fewer rows than k={self.params.k}")
        return {"centroids": own_clusters(self.params, rows).centroids}
