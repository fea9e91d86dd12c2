"""The site's side of `missing=partial`: rows keep their gaps, and each step completes them for the centroids that it is about.

See `flareclust.core.missing.gaps`. Messages are those of complete rows: means of the completed rows of each cluster, and numbers of
rows. At a site with a policy groups show no gaps, so that there is nothing to complete but columns that no group shows.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import model_validator

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core.missing.gaps import Completed, complete, complete_alone
from flareclust.data.tables import Table
from flareclust.executors.parameters import MISSING, PARTIAL, ScaledParams
from flareclust.executors.scaled import SCALING, ScaledExecutor
from flareclust.features.scaling import FILL
from flareclust.privacy.context import SiteRows
from flareclust.protocol.params import both
from flareclust.protocol.task import Task

#: Starts of the clustering with which a site completes rows before it clusters them.
_STARTS = 10


#: What missing cells mean where they can be left open. The fields of an algorithm's first base hold, so each declares it anew.
Missing = Annotated[str, OneOf((*MISSING, PARTIAL))]
MISSING_CELLS: str = both(
    "refuse",
    "What missing cells mean: a site that has some takes no part (refuse), they are filled with the mean of their column over all sites (mean), or they count nowhere, neither in distances nor in means (partial).",
)


class GapsParams(ScaledParams):
    """Parameters of algorithms that can leave missing cells open."""

    missing: Missing = MISSING_CELLS

    @model_validator(mode="after")
    def _open_gaps(self) -> "GapsParams":
        if self.missing == PARTIAL and getattr(self, "trim_rows", None):
            raise UserError("missing=partial and trim_rows exclude each other; leave out one of them")
        return self


class GapsExecutor(ScaledExecutor):
    """A site whose rows keep their gaps where the job says so."""

    params: GapsParams

    @property
    def open_gaps(self) -> bool:
        """Return whether missing cells stay open."""
        return self.params.missing == PARTIAL

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return the task, with what gaps are filled with in scaled units, and the rows."""
        if self.open_gaps and table.repeats > 1:  # floors of cells would be of copies
            raise Refusal("has rows with weights (a column of type weight), which do not go with missing=partial")
        after, rows = super().viewed(task, table)
        if not self.open_gaps or FILL not in task.arrays:
            return after, rows
        fill = task.arrays[FILL]
        if "deviation" in task.arrays:
            mean, deviation = (task.arrays[name] for name in SCALING.fields)
            fill = (fill - mean) / deviation
        return replace(after, arrays={**after.arrays, FILL: fill}), rows

    def without_gaps(self, X: FloatArray, sent: Message) -> FloatArray:
        """Return the rows as they are where gaps stay open."""
        return X if self.open_gaps else super().without_gaps(X, sent)

    def completed(self, data: FloatArray, centroids: FloatArray, least: int) -> Completed:
        """Return the rows (n, d) completed for the centroids (k, d)."""
        return complete(data, centroids, least) if self.open_gaps else super().completed(data, centroids, least)

    def completed_alone(self, task: Task, rows: SiteRows) -> SiteRows:
        """Return the rows (n, d) completed by the site's own clusters; as they are without gaps."""
        if not self.open_gaps:
            return rows
        fill, least = task.arrays[FILL], rows.context.min_count
        return rows.of(
            *complete_alone(rows.X, fill, self.params.k, rows.rng, n_init=_STARTS, least=least, aborted=rows.aborted)
        )

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row; -1 for rows without a known cell, which a site with a policy can have."""
        if not self.open_gaps:
            return super().labels(task, rows)
        labels = super().labels(task, rows.of(complete(rows.X, task.arrays["centroids"]).rows))
        return np.where(np.isnan(rows.X).all(axis=1), -1, labels)

    def grouped(self, task: Task, rows: SiteRows) -> tuple[IntArray, BoolArray | None]:
        """Return the cluster of each row and its known cells as the rounds count them.

        By all known cells a row could be in another cluster, and sums of both would differ by this row.
        """
        if not self.open_gaps:
            return super().grouped(task, rows)
        own = rows.of(*complete(rows.X, task.arrays["centroids"], rows.context.min_count))
        return super().labels(task, own), own.known

    def _check_task(self, task: Task, data: FloatArray) -> None:
        super()._check_task(task, data)
        if self.open_gaps and np.isnan(data).all(axis=1).any():
            raise Refusal("has rows without a known cell; leave them out at the site")
