"""Distributed Lloyd, the site's side: seeds once, then per round the mean and the number of the rows of each cluster.

Source: Lloyd (1982), Least squares quantization in PCM; in rounds over sites as the baseline "distributed k-means" of
Dennis, Li, Smith (2021), section 4.2.

Readings and deviations:
1. The centroids that a site returns are the means of its rows nearest to each centroid that it was sent, with their
   numbers. Weighted by these they add up to the update on the pooled rows.
2. A site's group of fewer than `min_count` rows, of one row repeated, or whose mean is a row, is not sent, and its rows
   do not take part in this round. Lloyd's algorithm has no such rule. A site with no other groups sends an empty reply,
   and stays.
3. The inertia that comes with an update is of the rows that take part. With the others, the sums of several rounds
   would be equations for a row that is alone near a centroid.
4. The start: unless the server has one of its own, each site draws k seeds by greedy k-means++ and sends the means of
   their cells (the rows nearest to each), or with `seeds="rows"` the seeds themselves, which are rows. A site with
   fewer than `min_count` rows per seed draws fewer.
5. With secure sums no seeds are sent. The start is made from totals (`flareclust.core.splitting`), for which sites also
   sum up squared deviations by cluster and column, masked as all else.
"""

from typing import Any

import numpy as np
from pydantic import ValidationInfo, field_validator

from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core.clusterers import CLUSTERERS
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.lloyd import member_statistics, sums_by_label
from flareclust.core.local import lloyd_update, seed_cells
from flareclust.core.rounding import factor
from flareclust.core.rounds import check_start
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.parameters import CappedParams, SeedsParams
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.params import server
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import CLUSTER, Task

#: The step of one update: which centroids (`cluster`) have rows here, with their means and numbers, and the inertia of
#: these rows about the centroids that were sent.
UPDATE = "update"

#: The step of a start from totals, with secure sums only: as an update, and the squared deviations of each cluster. All
#: rows are one cluster where no centroids are sent.
SPREAD = "spread"


class LloydParams(CappedParams, SeedsParams):
    """Parameters of distributed Lloyd."""

    rounds: int = server(100, "Updates at the most; the exchange of the seeds is not counted.", ge=1)
    tol: float = server(
        1e-4, "Largest movement in a round after which to stop, without unit; 0 goes on until nothing moves.", ge=0
    )
    start: str | list[list[float]] = server(
        "kmeans",
        "How the sites' seeds are clustered (kmeans, spectral or convex), or k centroids as k lists of d numbers.",
    )

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: Any, known: ValidationInfo) -> Any:
        return check_start(value, known.data["k"], CLUSTERERS) if "k" in known.data else value


class LloydExecutor(ClusteringExecutor):
    """A site of distributed Lloyd."""

    params: LloydParams

    steps = {
        CLUSTER: Step(Schema(centroids="k d"), jobs="plain"),
        SPREAD: Step(GROUPS, "spread", jobs="secure"),
        UPDATE: Step(
            Schema(
                may_be_empty=True,
                centroids="k d",
                counts=counts("k", minimum=1),
                cluster=index("k", less_than="K"),
                inertia=real("", minimum=0),
            ),
            "update",
            summed=True,
        ),
    }

    def local(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Draw seeds."""
        cells = seed_cells(data, self.k, rng, seeds=self.params.seeds, min_count=context.min_count, aborted=aborted)
        return {"centroids": cells.centroids}

    def update(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Compute the site's part of one update."""
        return update(data, task.arrays["centroids"], context.min_count, context.round_counts)

    def spread(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Compute means and squared deviations by cluster, for a start from totals."""
        message = spread(data, task.arrays.get("centroids", data[:1]), max(context.min_count, LEAST_ROWS))
        return rounded_spread(message, context.round_counts, context.min_count)


def update(data: FloatArray, centroids: FloatArray, min_count: int, multiple: int = 1) -> Message:
    """Return a site's part of one update of centroids (k, d): `centroids`, `counts`, `cluster`, `inertia`.

    Raises Refusal where the site has fewer than `min_count` rows (n, d). Where counts are rounded to multiples, the
    inertia is scaled to the rounded counts, because the exact one would give the counts away.
    """
    clusters = lloyd_update(data, centroids, min_count)
    labels = np.append(clusters.source, -1)[clusters.labels]
    sse = member_statistics(data, labels, centroids).sse
    sse[clusters.source] *= factor(clusters.counts, multiple, min_count)
    return {
        "centroids": clusters.centroids,
        "counts": clusters.counts,
        "cluster": clusters.source,
        "inertia": sse.sum(),
    }


def spread(data: FloatArray, centroids: FloatArray, min_count: int) -> Message:
    """Return the means of the rows (n, d) nearest to each of centroids (k, d), and the squared deviations from them.

    With fewer than `min_count` rows the arrays are empty.
    """
    if len(data) < min_count:
        data = data[:0]
        return {"cluster": np.arange(0), "counts": np.arange(0), "centroids": data, "m2": data}
    clusters = lloyd_update(data, centroids, min_count)
    mask = clusters.labels >= 0
    labels, c = clusters.labels[mask], len(clusters.counts)
    m2 = np.empty_like(clusters.centroids)
    for j in range(data.shape[1]):
        m2[:, j] = sums_by_label(labels, (data[mask, j] - clusters.centroids[labels, j]) ** 2, c)
    return {"cluster": clusters.source, "counts": clusters.counts, "centroids": clusters.centroids, "m2": m2}
