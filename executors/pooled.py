"""Pooled centroids, the site's side: k-means on the site's rows; its centroids and how many rows each has.

The plain baseline of one-shot methods; it has no paper. It also serves to choose the number of clusters of a federation,
from one upload (`flareclust.evaluation.selection`).

1. A site with fewer than `min_count` rows for each of k clusters looks for fewer.
2. Clusters that may not be described to others are not sent. With `small_clusters="dissolve"` those that are only too small
   join others before, so that their rows are included.
"""

from typing import Annotated, Any

from pydantic import field_validator, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Message
from flareclust.core.local import Sendable
from flareclust.evaluation import criteria
from flareclust.evaluation.scores import SCORES_OF, score
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import (
    MISSING_CELLS,
    CappedParams,
    LocalKMeansParams,
    MetricParams,
    Missing,
    SmallClustersParams,
)
from flareclust.protocol.params import MOST_STARTS, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class OwnClustersParams(LocalKMeansParams, SmallClustersParams):
    """Parameters of sites that send the clusters of their own k-means."""

    n_init: int = site(1, "Starts of the local k-means; the best one counts.", ge=1, le=MOST_STARTS)


class PooledParams(OwnClustersParams, CappedParams, MetricParams):
    """Parameters of pooled centroids; with `k_min`, k is the largest number of clusters tried."""

    missing: Missing = MISSING_CELLS

    restarts: int = server(20, "Starts of the server's k-means; the best one counts.", ge=1, le=MOST_STARTS)
    weighted: bool = server(True, "Whether a centroid counts as often as it has rows.")
    k_min: int | None = server(None, "The smallest number of clusters tried; None for k only.", ge=2)
    criterion: Annotated[str, OneOf(criteria.RULES)] = server(criteria.USUAL, "The criterion that selects k.")

    @field_validator("criterion", mode="before")
    @classmethod
    def _criterion(cls, value: Any) -> Any:
        return criteria.current_rule(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _in_order(self) -> "PooledParams":
        if self.k_min is not None and self.k_min > self.k:
            raise UserError(f"k_min={self.k_min} is more than k={self.k}; give the smaller number of clusters first")
        return self


class PooledExecutor(ClusteringExecutor):
    """A site that sends the centroids of its own k-means."""

    params: PooledParams
    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k"))),
        **{step: Step(Schema(may_be_empty=False, **sums), "score") for step, sums in SCORES_OF.items()},
    }

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Cluster the rows and keep what may be sent."""
        clusters = own_clusters(self.params, rows.settled(self.params.k))
        return {"centroids": clusters.centroids, "counts": clusters.counts}

    def score(self, task: Task, rows: SiteRows) -> Message:
        """Return how well each of several solutions fits the rows."""
        return score(task, rows, self.steps[task.step].schema.fields)


def own_clusters(params: OwnClustersParams, rows: SiteRows) -> Sendable:
    """Return the clusters of the site's own k-means that may be sent, of rows (n, d)."""
    return rows.clusters(
        params.k, n_init=params.n_init, local_kmeans=params.local_kmeans, small_clusters=params.small_clusters
    )
