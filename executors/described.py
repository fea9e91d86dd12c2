"""The site's side of algorithms for sites that need not have the same columns.

A job of such an algorithm begins with the step `describe`, in which each site names its columns. From then on the base
class here gives an algorithm the site's own columns only, of the rows and of the arrays that the server sends. The server
sends NaN for an entry that no site knows; a site never sends NaN.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import histograms
from flareclust.core.disclosure import factor
from flareclust.core.local import Sendable, without_remainder
from flareclust.core.missing import distances
from flareclust.core.missing.assessment import masked_sums
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.phases import Phase
from flareclust.executors.scaled import GRID, IN_BINS, check_bins
from flareclust.features import alignment
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.preparation.settings import BY_BINS, ColumnsParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: How a site's rows are shown to an algorithm: the columns that it has, those that all sites have (it must have them
#: all), or all columns with the federation's mean in the places of those that it lacks.
View = Literal["own", "common", "imputed"]

#: The scaling of rows. The minimum keeps every quotient of finite values finite: an overflow error would show a server
#: that chooses the scale how large the largest value is.
_SCALING = Schema(mean="D", deviation=real("D", minimum=LEAST_DEVIATION))

#: What missing cells are filled with.
_FILLING = Schema(fill="D")

#: What every task carries of the columns.
_CARRIED = ("columns", *_SCALING.fields, *_FILLING.fields)


class Description(Phase):
    """What sites say of their columns before the rounds: names, location and spread, cells in bins."""

    site: "DescribedExecutor"

    steps = MappingProxyType(
        {
            StepName.DESCRIBE: Step(alignment.DESCRIPTION, "describe", named=True),
            StepName.MOMENTS: Step(GROUPS, "moments", jobs="secure", named=True),
            StepName.KNOWN_MOMENTS: Step(GROUPS, "known_moments", summed=True, named=True, parameter="missing"),
            StepName.BINNED: Step(IN_BINS, "column_bins", summed=True, named=True, parameter="scale"),
            StepName.FINER_BINNED: Step(IN_BINS, "column_bins", summed=True, named=True, parameter="scale"),
        }
    )

    def describe(self, task: Task, rows: SiteRows) -> Message:
        """Return the names of the columns, and their sums where the algorithm needs means and variances."""
        if self.site.params.missing == "drop-rows":
            self.site.check_enough_rows(rows.table.X, rows.context)
        sums = self.site.sends_sums and not rows.context.secure and self.site.params.missing != "mean"
        message = alignment.describe(rows.table, sums=sums, min_count=rows.context.min_count)
        # So that mean squares stay what they are.
        scale = factor(message["rows"], rows.context.round_counts, rows.context.min_count)
        return {**message, "m2": message["m2"] * scale}

    def moments(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of each column."""
        if not self.site.sends_sums:  # whose clusters are not held back for it
            raise Refusal("was asked for exact sums of its columns, which this job's settings do without")
        message = alignment.moments(rows.table, task.arrays["columns"], rows.context.min_count)
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def known_moments(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the known cells of each column, rounded where numbers of cells in bins follow."""
        if not (self.site.sends_sums or self.site.params.scale in BY_BINS):
            raise Refusal("was asked for sums of its columns, which this job's settings do without")
        repeats = None if self.site.sends_sums else rows.context.repeats
        message = alignment.moments_of_known(rows.table, task.arrays["columns"], rows.context.min_count, repeats)
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def column_bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each of all columns lie in each bin; none of a column that the site lacks."""
        check_bins(task, self.site.params.scale)
        D = len(task.arrays["columns"])
        asked = {name: task.arrays[name] for name in GRID.fields if name in task.arrays}
        GRID.check(asked, {"d": D})
        X, has = alignment.own_view(rows.table, {"columns": task.arrays["columns"]})
        found = np.zeros((D, histograms.BINS), dtype=np.int64)
        found[has] = histograms.binned(
            X, histograms.Grid(*(values[has] for values in asked.values())), rows.context.min_count
        )
        return {"counts": found}


class DescribedExecutor(ClusteringExecutor):
    """A site whose columns may differ from other sites'."""

    params: ColumnsParams

    phases: ClassVar[tuple[type[Phase], ...]] = (Description,)

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", *_CARRIED)

    @property
    def gaps(self) -> bool:  # type: ignore[override]
        """Return whether the job takes rows with missing cells."""
        return self.params.missing != "refuse"

    #: As in `View`.
    view: ClassVar[View] = "own"

    @property
    def phi(self) -> str:
        """Return the distance by which rows find their centroid, of algorithms that have several."""
        return "euclidean"

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row, by the scaled distance on the known entries of the centroids; -1 for none."""
        return distances.nearest_by_known(rows.X, task.arrays["centroids"], self.phi)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return the algorithm's view of what the server sent, and of the rows."""
        if "columns" not in task.arrays:  # a federation that was not described: all sites have the same columns
            return task, table
        _check_scaling(task.arrays)
        X, has = self.shown(table, task.arrays)
        arrays = {name: value for name, value in task.arrays.items() if name not in _CARRIED}
        if "centroids" in arrays:
            if arrays["centroids"].shape[1:] != task.arrays["columns"].shape:
                raise BadMessage("centroids: expected those of the federation's columns, which came with them")
            arrays["centroids"] = np.ascontiguousarray(arrays["centroids"][:, has])
        return replace(task, arrays=arrays), Table(X)

    def shown(self, table: Table, arrays: Message) -> tuple[FloatArray, IntArray]:
        """Return the rows as the algorithm sees them (n, d), and the places of their columns among the federation's (d,).

        Args:
            table: the site's own rows.
            arrays: of a task in a described federation, as `flareclust.features.columns.Columns.sent` returns them.

        Raises:
            Refusal: the site has none of the columns, or lacks one that all must have.
        """
        X, has = alignment.own_view(table, self._scaling(arrays))
        D = len(arrays["columns"])
        if self.view == "common" and len(has) < D:
            raise Refusal(f"has {len(has)} of the {D} columns that the others have in common")
        return (self._imputed(arrays, X, has), np.arange(D)) if self.view == "imputed" else (X, has)

    def guarded(
        self, found: Sendable, data: FloatArray, context: SiteContext, *, may_be_empty: bool = False
    ) -> Sendable:
        """Return the clusters of the rows (n, d) that may be sent in addition to the sums over all rows in `describe`.

        Raises:
            Refusal: there are none, unless `may_be_empty`.
        """
        if not self.sends_sums or context.grouped:  # a policy's rows are groups already
            return found
        remaining = without_remainder(data, found, context.min_count)
        if not len(remaining.counts) and not may_be_empty:
            raise Refusal(
                "has sent the sums of its columns; together with those its clusters would disclose the rows that are "
                "kept back; set a smaller k_local, or scale=robust, which asks for rounded means"
            )
        return remaining

    @property
    def sends_sums(self) -> bool:
        """Return whether the sums of the columns are sent as they are."""
        asked = self.params.scale == "standard" or self.view == "imputed" or self.params.missing == "mean"
        return asked and self.params.scale not in BY_BINS

    def assessed(self, data: FloatArray, centroids: FloatArray) -> Message:
        """Return the sums of the assessment over the entries that are known."""
        return masked_sums(data, centroids, self.phi)

    def check_centroids(self, centroids: object, data: FloatArray, maximum: int) -> None:
        """Check as for whole centroids, where unknown entries are NaN."""
        if not isinstance(centroids, np.ndarray) or centroids.dtype != np.float64:
            raise BadMessage("centroids: expected an array of float64")
        super().check_centroids(np.nan_to_num(centroids, posinf=np.inf, neginf=-np.inf), data, maximum)

    def placing(self, arrays: Message) -> Message:
        """Return the arrays for a late site: the result in the units of the sites' computation."""
        needed = super().placing(arrays)
        if self.params.scale == "none" or "mean" not in arrays:
            return needed
        return needed | {"centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}

    def _scaling(self, arrays: Message) -> Message:
        if self.params.scale != "none":
            return arrays
        return {name: value for name, value in arrays.items() if name not in ("mean", "deviation")}

    def _imputed(self, arrays: Message, X: FloatArray, has: IntArray) -> FloatArray:
        fill = arrays.get(alignment.FILL, arrays["mean"])
        if self.params.scale != "none":
            fill = (fill - arrays["mean"]) / arrays["deviation"]
        filled = np.tile(fill, (len(X), 1))
        filled[:, has] = np.where(np.isnan(X), fill[has], X)  # missing cells of rows that are only labelled
        return filled


def _check_scaling(arrays: Message) -> None:
    """Raise BadMessage unless what fills and scales columns, where it was sent, can be computed with."""
    for schema in (_SCALING, _FILLING):
        sent = {name: arrays[name] for name in schema.fields if name in arrays}
        if sent:
            schema.check(sent, {"D": len(arrays["columns"])})
