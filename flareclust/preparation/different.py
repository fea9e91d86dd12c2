"""Columns of sites that need not have the same ones: what a site says of its own, and its rows in those of the federation.

A job begins with the step `describe`, in which each site names its columns. From then on an algorithm sees the columns that the
site has, of the rows and of what the server sends. The server sends NaN for an entry that no site knows; a site never sends NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import histograms
from flareclust.core.disclosure import factor
from flareclust.core.local import Sendable, without_remainder
from flareclust.data.tables import Table
from flareclust.features import alignment
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.preparation.bins import IN_BINS, asked_grid
from flareclust.preparation.settings import BY_BINS, ColumnsParams, Shown
from flareclust.protocol.groups import GROUPS, rounded_spread
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.stages import Phase, SiteExchange, Stage
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor

#: What scales rows, as `flareclust.preparation.rows.SCALING`, of all columns of the federation; and what fills their gaps.
_SCALING, _FILLING = Schema(mean="D", deviation=real("D", minimum=LEAST_DEVIATION)), Schema(fill="D")

#: What every task carries of the columns.
CARRIED = ("columns", *_SCALING.fields, *_FILLING.fields)


class Description(Phase):
    """Asks for the names of the columns, their location and spread, and numbers of cells in bins."""

    params: ColumnsParams

    steps = MappingProxyType(
        {
            StepName.DESCRIBE: Step(alignment.DESCRIPTION, "describe", as_is=True),
            StepName.MOMENTS: Step(GROUPS, "moments", jobs="secure", as_is=True),
            StepName.KNOWN_MOMENTS: Step(GROUPS, "known_moments", summed=True, as_is=True),
            StepName.BINNED: Step(IN_BINS, "bins", summed=True, as_is=True),
            StepName.FINER_BINNED: Step(IN_BINS, "bins", summed=True, as_is=True),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps of algorithms for different columns."""
        return cls.steps if issubclass(executor.params_class(), ColumnsParams) else {}

    def describe(self, task: Task, rows: SiteRows) -> Message:
        """Return the names of the columns, and their sums where the algorithm needs means and variances."""
        if self.params.missing == "drop-rows":
            rows.check_sums()
        sums = self.params.sends_sums and not rows.context.secure and self.params.missing != "mean"
        message = alignment.describe(rows.table, sums=sums, min_count=rows.context.min_count)
        # So that mean squares stay what they are.
        scale = factor(message["rows"], rows.context.round_counts, rows.context.min_count)
        return {**message, "m2": message["m2"] * scale}

    def moments(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of each column."""
        if not self.params.sends_sums:  # whose clusters are not held back for it
            raise Refusal("was asked for exact sums of its columns, which this job's settings do without")
        message = alignment.moments(rows.table, task.arrays["columns"], rows.context.min_count)
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def known_moments(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the known cells of each column, rounded where numbers of cells in bins follow."""
        if not (self.params.sends_sums or self.params.scale in BY_BINS):
            raise Refusal("was asked for sums of its columns, which this job's settings do without")
        repeats = None if self.params.sends_sums else rows.context.repeats
        message = alignment.moments_of_known(rows.table, task.arrays["columns"], rows.context.min_count, repeats)
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each of all columns lie in each bin; none of a column that the site lacks."""
        D = len(task.arrays["columns"])
        grid = asked_grid(task, self.params.scale, D)
        X, has = alignment.own_view(rows.table, {"columns": task.arrays["columns"]})
        found = np.zeros((D, histograms.BINS), dtype=np.int64)
        own = histograms.Grid(*(values[has] for values in grid))
        found[has] = histograms.binned(X, own, rows.context.min_count)
        return {"counts": found}


@dataclass(frozen=True)
class OwnColumns(Stage):
    """Shows rows, and centroids that were sent, in the columns of the site, filled and scaled as the task says.

    Attributes:
        shown: which columns the algorithm sees.
        scaled: whether columns are scaled.
        distance: by which rows find their centroid.
    """

    shown: Shown
    scaled: bool
    distance: str

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange in the site's own columns.

        Raises:
            Refusal: the site has none of the columns, or lacks one that all must have.
        """
        sent, rows = exchange.task.arrays, replace(exchange.rows, distance=self.distance)
        if "columns" not in sent:  # a federation that was not described: all sites have the same columns
            return replace(exchange, rows=rows)
        for schema in (_SCALING, _FILLING):  # what can be computed with
            numbers = {name: sent[name] for name in schema.fields if name in sent}
            if numbers:
                schema.check(numbers, {"D": len(sent["columns"])})
        X, has = self._own_rows(rows.table, sent)
        exchange = replace(exchange.without(*CARRIED), rows=rows.of(X))
        if "centroids" not in sent:
            return exchange
        if sent["centroids"].shape[1:] != sent["columns"].shape:
            raise BadMessage("centroids: expected those of the federation's columns, which came with them")
        own = {**exchange.task.arrays, "centroids": np.ascontiguousarray(sent["centroids"][:, has])}
        return replace(exchange, task=replace(exchange.task, arrays=own))

    def _own_rows(self, table: Table, sent: Message) -> tuple[FloatArray, IntArray]:
        """Return the rows as the algorithm sees them (n, d), and the places of their columns among the federation's (d,)."""
        D = len(sent["columns"])
        prepared = sent if self.scaled else {name: sent[name] for name in sent if name not in _SCALING.fields}
        X, has = alignment.own_view(table, prepared)
        if self.shown == "common" and len(has) < D:
            raise Refusal(f"has {len(has)} of the {D} columns that the others have in common")
        if self.shown != "imputed":
            return X, has
        fill = sent.get(alignment.FILL, sent["mean"])
        if self.scaled:
            fill = (fill - sent["mean"]) / sent["deviation"]
        filled = np.tile(fill, (len(X), 1))
        filled[:, has] = np.where(np.isnan(X), fill[has], X)  # missing cells of rows that are only labelled
        return filled, np.arange(D)


def guarded(params: ColumnsParams, found: Sendable, rows: SiteRows, *, may_be_empty: bool = False) -> Sendable:
    """Return the clusters of the rows (n, d) that may be sent in addition to the sums over all rows in `describe`.

    Raises:
        Refusal: there are none, unless `may_be_empty`.
    """
    if not params.sends_sums or rows.context.grouped:  # a policy's rows are groups already
        return found
    remaining = without_remainder(rows.X, found, rows.context.min_count)
    if not len(remaining.counts) and not may_be_empty:
        raise Refusal(
            "has sent the sums of its columns; together with those its clusters would disclose the rows that are "
            "kept back; set a smaller k_local, or scale=robust, which asks for rounded means"
        )
    return remaining
