"""The site's side of scaled columns: a job with `scale` first asks for their location and spread, and then sends those of all sites.

The rows that an algorithm sees are scaled, and so is all that it sends; the result is in the units of the columns.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core.scaling import rounded_spread as spread_of
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.parameters import ScaledParams
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import SCALES, Task

#: What a task carries: the minimum keeps every quotient of finite values finite, as in `flareclust.executors.described`.
SCALING = Schema(mean="d", deviation=real("d", minimum=LEAST_DEVIATION))


class ScaledExecutor(ClusteringExecutor):
    """A site whose columns are scaled where the job says so."""

    params: ScaledParams

    steps = {SCALES: Step(GROUPS, "scales", summed=True, parameter="scale")}

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "mean", "deviation")

    def scales(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return mean and squared deviations of the columns of the rows (n, d), rounded, as one group."""
        self._check_enough(data, context)
        rows, mean, deviation = spread_of(data)
        message = {
            "cluster": np.array([0]),
            "counts": np.array([rows]),
            "centroids": mean[None],
            "m2": rows * deviation[None] ** 2,
        }
        return rounded_spread(message, context.round_counts, context.min_count)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task without the scaling that it carries, and the rows scaled by it."""
        if "deviation" not in task.arrays:
            return super().viewed(task, table)
        scaling = {name: task.arrays[name] for name in SCALING.fields if name in task.arrays}
        SCALING.check(scaling, {"d": table.X.shape[1]})
        arrays = {name: value for name, value in task.arrays.items() if name not in scaling}
        X = (table.X - scaling["mean"]) / scaling["deviation"]
        return replace(task, arrays=arrays), replace(table, X=X)

    def placing(self, arrays: Message) -> Message:
        """Return the arrays for a late site: the result in scaled units."""
        needed = super().placing(arrays)
        if SCALES not in self.steps or "deviation" not in arrays:
            return needed
        return needed | {"centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}
