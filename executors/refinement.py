"""What sites report about solutions that are to be refined: rows, means and squared deviations by cluster.

The server moves centroids to the means, as Lloyd's algorithm does, and sees from the deviations which cluster to split
and which to join (`flareclust.aggregators.refinement`). Several solutions are reported side by side.

Readings:
1. A site's group of fewer than `min_count` rows, of one row repeated, or whose mean is a row, is not reported.
2. Mean and deviations of two rows are these rows: where a group has fewer than three rows its deviations are sent as 0.
3. With secure sums a group counts that all sites together have: first the sites' numbers of rows are added up, and then
   they report the clusters that have `min_count` rows in all (three at least), however few of them are at one site. Rows
   of the other clusters go to the nearest of these, so that all rows are included and no difference is about the rest.
4. With `trim_rows` a site leaves out the rows that are farthest from all centroids of the task, so that solutions side by
   side are reported over the same rows. They get labels, and are assessed, as all others.
"""

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, Message
from flareclust.core import trimming
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.group_kernels import squares_of_each
from flareclust.core.local import lloyd_update
from flareclust.evaluation.scores import unstack
from flareclust.executors import partwise
from flareclust.executors.scaled import ScaledExecutor
from flareclust.preparation.settings import CappedParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.params import both
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task

#: The step: for each centroid of `candidates` (t, d), as one of the solutions has it, the rows of its cluster here. All
#: rows are one cluster where no candidates are sent.
SPREAD = "spread"


class RefinedParams(CappedParams):
    """Parameters of sites whose solutions are refined."""

    # The server must know it, too: with secure sums it is the least number of rows of a total.
    min_count: int = both(2, "Clusters with fewer rows are not sent; those of identical rows never are.", ge=1)
    trim_rows: float = both(
        0.0,
        "Share of its rows, those farthest from the centroids, that a site leaves out of each step: for spoilt rows; the share of outliers of k-means--.",
        ge=0,
        lt=0.5,
    )


class RefinedExecutor(ScaledExecutor):
    """A site that reports what is needed to refine solutions."""

    params: RefinedParams

    steps = {SPREAD: Step(GROUPS, "spread", summed=True, counted=True)}

    @partwise.computed_by(partwise.spread)
    def spread(self, task: Task, rows: SiteRows) -> Message:
        """Describe the groups of the rows (n, d) that are nearest to each of the centroids."""
        if "candidates" in task.arrays:
            solutions, data = unstack(task.arrays), self.trimmed(rows.X, task.arrays["candidates"], rows.context)
        else:
            data = rows.X
            solutions = [np.nan_to_num(data[:1])]  # all rows are in one group, whatever its centroid
        starts = np.cumsum([0, *map(len, solutions)])
        parts = []
        for solution, first in zip(solutions, starts, strict=False):
            reported = None if rows.context.reported is None else rows.context.reported[first : first + len(solution)]
            own, known = self.completed(data, solution, rows.context.min_count)
            part = spread(own, solution, rows.context.least_rows, reported, ones=rows.context.ones, known=known)
            parts.append({**part, "cluster": part["cluster"] + first})
        message = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def scored(self, task: Task, rows: SiteRows) -> FloatArray:
        """Return the rows (n, d) that are not trimmed."""
        return self.trimmed(rows.X, task.arrays["candidates"], rows.context)

    def trimmed(self, data: FloatArray, centroids: FloatArray, context: SiteContext) -> FloatArray:
        """Return the rows (n, d) without the share that lies farthest from the centroids (k, d).

        So many stay that the site may still report them.
        """
        spare = max(0, len(data) - context.min_count)
        return trimming.nearest_rows(data, centroids, min(self.params.trim_rows, spare / max(1, len(data))))

    def trimmed_alone(self, rows: SiteRows, n_init: int) -> FloatArray:
        """Return the rows (n, d) that trimmed k-means of the site's own keeps."""
        return trimming.trimmed_rows(
            rows.X, self.params.k, self.params.trim_rows, rows.rng, n_init=n_init, aborted=rows.aborted
        )


def spread(
    data: FloatArray,
    centroids: FloatArray,
    min_count: int,
    reported: BoolArray | None = None,
    *,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
) -> Message:
    """Return the means of the rows (n, d) nearest to each of centroids (k, d), and the squared deviations from them.

    With fewer than `min_count` rows the arrays are empty; `min_count`, `reported` (k,), `ones` and `known` are
    those of `lloyd_update`.
    """
    if len(data) < min_count:
        data = data[:0]
        return {"cluster": np.arange(0), "counts": np.arange(0), "centroids": data, "m2": data}
    clusters = lloyd_update(data, centroids, min_count, reported, ones=ones, known=known)
    m2 = squares_of_each(data, clusters.labels, clusters.centroids)
    if min_count:
        m2[clusters.counts < LEAST_ROWS] = 0.0
    return {"cluster": clusters.source, "counts": clusters.counts, "centroids": clusters.centroids, "m2": m2}
