"""A site that clusters its own rows by k-means and sends the centroids: the base of `mavg` and `pooled`."""

import numpy as np

from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray
from flareclust.core.local import Sendable, local_clusters
from flareclust.executors.parameters import LocalKMeansParams, SmallClustersParams
from flareclust.executors.scaled import ScaledExecutor
from flareclust.privacy.context import SiteContext
from flareclust.protocol.params import MOST_STARTS, site


class OwnClustersParams(LocalKMeansParams, SmallClustersParams):
    """Parameters of sites that send the clusters of their own k-means."""

    n_init: int = site(1, "Starts of the local k-means; the best one counts.", ge=1, le=MOST_STARTS)


class OwnClustersExecutor(ScaledExecutor):
    """A site that sends the clusters of its own k-means."""

    params: OwnClustersParams

    def own_clusters(
        self,
        data: FloatArray,
        rng: np.random.Generator,
        aborted: AbortCheck,
        context: SiteContext,
        known: BoolArray | None = None,
    ) -> Sendable:
        """Return the clusters of the rows (n, d) that may be sent; `known` is that of `local_clusters`."""
        return local_clusters(
            data,
            self.k,
            rng,
            n_init=self.params.n_init,
            min_count=context.min_count,
            aborted=aborted,
            local_kmeans=self.params.local_kmeans,
            small_clusters=self.params.small_clusters,
            known=known,
        )
