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
5. With secure sums no seeds are sent. The start is made from totals (`flareclust.aggregators.lloyd`), for which sites also
   sum up squared deviations by cluster and column, masked as all else.
"""

from typing import Any

import numpy as np
from pydantic import ValidationInfo, field_validator

from flareclust._foundation.typing import BoolArray, FloatArray, Message
from flareclust.core import clusterers
from flareclust.core.devices.ragged import Entries, Ragged
from flareclust.core.devices.steps import clusters_of_each, fits, updates_of_each
from flareclust.core.disclosure import factor
from flareclust.core.lloyd import member_statistics
from flareclust.core.local import lloyd_update
from flareclust.core.rounds import check_start
from flareclust.executors import partwise
from flareclust.executors.cosine import MetricParams
from flareclust.executors.gaps import MISSING_CELLS, Missing
from flareclust.executors.refinement import RefinedExecutor, RefinedParams
from flareclust.preparation.settings import SeedsParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.protocol.params import MOST_ROUNDS, server
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The step of one update: which centroids (`cluster`) have rows here, with their means and numbers, and the inertia of
#: these rows about the centroids that were sent.
UPDATE = "update"


class UpdatesParams(RefinedParams, SeedsParams):
    """Parameters of algorithms whose clusters move in updates, from the sites' seeds or a given start."""

    rounds: int = server(100, "Updates at the most; the exchange of the seeds is not counted.", ge=1, le=MOST_ROUNDS)
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
        return check_start(value, known.data["k"], clusterers.CLUSTERERS) if "k" in known.data else value


class LloydParams(UpdatesParams, MetricParams):
    """Parameters of distributed Lloyd."""

    missing: Missing = MISSING_CELLS

    split_merge: int | None = server(
        None,
        "Attempts at most to leave a local optimum after the last update, by splitting one cluster and joining two; None for 3 with secure_sums and no start, else for 0.",
        ge=0,
        le=MOST_ROUNDS,
    )


class UpdatesExecutor(RefinedExecutor):
    """A site that sends seeds, and then its part of each update."""

    params: UpdatesParams

    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d"), jobs="plain"),
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
            counted=True,
        ),
    }

    @partwise.computed_by(partwise.seeds)
    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds; rows with gaps are completed before."""
        rows = self.completed_alone(task, rows)
        kept = rows.of(self.trimmed_alone(rows, 10), rows.known)
        return {"centroids": self.draw_seeds(kept, self.params.seeds).centroids}

    def local_batch(self, task: Task, devices: Ragged, context: SiteContext) -> Entries | None:
        """Do as `local` for many sites; None for settings that are not for many."""
        if self.params.seeds != "means" or self.params.trim_rows or not fits(self.params.k, devices.d):
            return None
        cells = clusters_of_each(devices, "cells", self.params.seed, task.round, self.params.k, context.min_count)
        return cells._replace(fields={"centroids": cells.fields["centroids"]})

    @partwise.computed_by(partwise.update)
    def update(self, task: Task, rows: SiteRows) -> Message:
        """Compute the site's part of one update."""
        centroids = task.arrays["centroids"]
        data, known = self.completed(rows.X, centroids, rows.context.min_count)
        return update(self.trimmed(data, centroids, rows.context), centroids, rows.context, known)

    def update_batch(self, task: Task, devices: Ragged, context: SiteContext) -> Entries | None:
        """Do as `update` for many sites; None for settings that are not for many."""
        centroids = task.arrays["centroids"]
        if self.params.trim_rows or not fits(*centroids.shape):
            return None
        return updates_of_each(devices, centroids, context.min_count)


class LloydExecutor(UpdatesExecutor):
    """A site of distributed Lloyd."""

    params: LloydParams

    totals_only = True


def update(data: FloatArray, centroids: FloatArray, context: SiteContext, known: BoolArray | None = None) -> Message:
    """Return a site's part of one update of centroids (k, d): `centroids`, `counts`, `cluster`, `inertia`.

    `known` (n, d) says which cells of the rows were not filled in; None for all.

    Raises Refusal where the site has fewer rows (n, d) than a report must cover. Where counts are rounded to multiples, the
    inertia is scaled to the rounded counts, because the exact one would give the counts away.
    """
    clusters = lloyd_update(data, centroids, context.least_rows, context.reported, ones=context.ones, known=known)
    labels = np.append(clusters.source, -1)[clusters.labels]
    sse = member_statistics(data, labels, centroids).sse
    sse[clusters.source] *= factor(clusters.counts, context.round_counts, context.min_count)
    return {
        "centroids": clusters.centroids,
        "counts": clusters.counts,
        "cluster": clusters.source,
        "inertia": sse.sum(),
    }
