"""Columns of sites that need not have the same ones: what a site says of its own, and its rows in those of the federation.

A job begins with the step `describe`, in which each site names its columns. From then on an algorithm sees the columns that the
site has, of the rows and of what the server sends. The server sends NaN for an entry that no site knows; a site never sends NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import histograms
from flareclust.core.disclosure import factor
from flareclust.core.local import Sendable, without_remainder
from flareclust.core.scaling import divisors_of, pooled_known_spread
from flareclust.data.tables import Table
from flareclust.preparation import alignment
from flareclust.preparation.bins import IN_BINS, Ranges, asked_grid
from flareclust.preparation.columns import (
    LEAST_DEVIATION,
    by_column,
    check_divisors,
    check_known,
    common,
    gather,
    spreads,
    sums_of,
)
from flareclust.preparation.scale import Measured, ScalingPhase
from flareclust.preparation.settings import BY_BINS, ColumnsParams, Shown
from flareclust.preparation.units import log_before_rounds, odd_between_sites, of_described, of_known
from flareclust.protocol.columns import FILL, ColumnFacts, Columns
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.stages import SiteExchange, Stage
from flareclust.protocol.steps import Step
from flareclust.protocol.task import GROUPS, StepName, Task, rounded_spread

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: What scales rows, as `flareclust.preparation.columns.SCALING`, of all columns of the federation; and what fills their gaps.
_SCALING, _FILLING = Schema(mean="D", deviation=real("D", minimum=LEAST_DEVIATION)), Schema(fill="D")

#: What every task carries of the columns.
CARRIED = ("columns", *_SCALING.fields, *_FILLING.fields)


class Description(ScalingPhase):
    """Asks for the names of the columns, their location and spread, and numbers of cells in bins."""

    params: ColumnsParams

    steps = MappingProxyType(
        {
            StepName.DESCRIBE: Step(alignment.DESCRIPTION, "describe", "described", as_is=True),
            StepName.MOMENTS: Step(GROUPS, "moments", "measured", jobs="secure", as_is=True),
            StepName.KNOWN_MOMENTS: Step(GROUPS, "known_moments", "measured", summed=True, as_is=True),
            StepName.BINNED: Step(IN_BINS, "bins", "merge_bins", summed=True, as_is=True),
            StepName.FINER_BINNED: Step(IN_BINS, "bins", "merge_bins", summed=True, as_is=True),
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
        columns = task.arrays["columns"]
        grid = asked_grid(task, self.params.scale, len(columns))
        X, has = alignment.own_view(rows.table, {"columns": columns})
        found = np.zeros((len(columns), histograms.BINS), dtype=np.int64)
        found[has] = histograms.binned(X, histograms.Grid(*(values[has] for values in grid)), rows.context.min_count)
        return {"counts": found}

    # ---- the server's side ----

    def begin(self) -> Round[Measured]:
        """Ask the sites for their columns."""
        return Round(step=StepName.DESCRIBE, state=Measured())

    def described(self, round_: Round[Measured], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """Form the union of the columns, and ask for their moments where these are needed and have not come."""
        p = self.params
        fills, by_bins = p.missing == "mean", p.scale in BY_BINS
        needs_sums, columns = fills or p.scale != "none" or p.shown == "imputed", gather(replies)
        numbers = {
            "columns": float(len(columns.codes)),
            "columns_shared_by_all": float(columns.masks.all(axis=0).sum()),
            "columns_of_one_site": float((columns.masks.sum(axis=0) == 1).sum()),
        }
        by_site = None if p.missing == "refuse" else np.array([int(replies[site]["rows"]) for site in columns.sites])
        facts, asks = ColumnFacts(rows_by_site=by_site), needs_sums and (fills or by_bins or self.secure)
        sums = None if asks or not needs_sums else sums_of(columns, replies)
        if p.shown == "common":
            columns, sums = common(columns, sums)
        if asks:
            step = StepName.KNOWN_MOMENTS if fills or by_bins else StepName.MOMENTS
            return Round(diagnostics=numbers, state=Measured(columns, facts=facts), step=step, columns=columns)
        if sums is None:
            return Round(done=True, diagnostics=numbers, columns=columns, facts=facts)
        facts = self._compared(columns, facts, of_described(columns, replies))
        ended = self.scaled(Measured(columns, sums.mean, sums.deviation, facts))
        if p.scale == "standard" and p.shown == "own":
            ended = replace(ended, facts=replace(facts, site_spread=spreads(ended.columns, replies)))
        return replace(ended, diagnostics=numbers)

    def measured(self, round_: Round[Measured], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """Return what follows mean and standard deviation of the columns."""
        columns, facts = round_.state.columns, round_.state.facts
        spread = pooled_known_spread(*by_column(replies, len(columns.codes)))
        check_known(columns, spread)
        if ALL not in replies:
            facts = self._compared(columns, facts, of_known(columns, replies))
        if self.params.missing == "mean":
            assert facts.rows_by_site is not None
            rows = facts.rows_by_site
            if ALL not in replies:  # a site that has refused since gave no cells
                rows = rows * np.isin(columns.sites, list(replies))
            missing = np.maximum(rows @ columns.masks - spread.counts, 0)
            facts = replace(facts, rows_by_site=rows, missing_cells=missing)
        if self.params.missing == "mean" or (self.params.scale in BY_BINS and self.params.shown == "imputed"):
            columns = replace(columns, fill=spread.mean)
        return self.scaled(Measured(columns, spread.mean, spread.deviation, facts))

    def scaled(self, state: Measured) -> Round[Any]:
        """Return what follows; where columns are not scaled, their means stand in the places of those that a site lacks."""
        if self.params.shown == "imputed" and self.params.scale == "none":
            unscaled = replace(state, columns=replace(state.columns, scales=False))
            return self.ended(unscaled, state.mean, divisors_of(state.deviation))
        return super().scaled(state)

    def groups(self, columns: Columns, d: int) -> list[list[int]]:
        """Return the columns of each category; raise JobFailed where no site has any of one, and none hides names."""
        found = []
        for group in self.params.categories or []:
            own = [j for j, name in enumerate(columns.names) if name in group]
            if not own and not any(name.startswith(alignment.HIDDEN) for name in columns.names):
                raise JobFailed(
                    f"no site has a column {' or '.join(map(repr, group))}, which categories name; correct them"
                )
            found.append(own)
        return found

    def with_categories(self, columns: Columns, mean: FloatArray, deviation: FloatArray) -> Columns:
        """Return the columns with those of each category scaled together, where columns are scaled."""
        return columns if self.params.scale == "none" else super().with_categories(columns, mean, deviation)

    def ranges(self, columns: Columns) -> Ranges:
        """Return least and largest value of each column by the schema, None where it does not say."""
        ranges = self.params.table_ranges or {}
        return [ranges.get(name) for name in columns.names]

    def check(self, columns: Columns, divisor: FloatArray) -> None:
        """Raise JobFailed where a column varies too little."""
        check_divisors(columns, divisor)

    def _compared(self, columns: Columns, facts: ColumnFacts, own: ColumnFacts) -> ColumnFacts:
        """Return what is kept of the sites' own columns, after a warning of those that are odd at one of them."""
        valued = [name for group in self.params.categories or [] for name in group]
        log_before_rounds(odd_between_sites(own.arrays(), columns.names, np.isin(columns.names, valued)))
        return replace(own, rows_by_site=facts.rows_by_site)


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
        """Return the exchange in the site's own columns; Refusal where it has none, or lacks one that all must have."""
        sent, rows = exchange.task.arrays, replace(exchange.rows, distance=self.distance)
        if "columns" not in sent:  # a federation that was not described: all sites have the same columns
            return replace(exchange, rows=rows)
        for schema in (_SCALING, _FILLING):  # what can be computed with
            if numbers := {name: sent[name] for name in schema.fields if name in sent}:
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
        fill = sent.get(FILL, sent["mean"])
        if self.scaled:
            fill = (fill - sent["mean"]) / sent["deviation"]
        filled = np.tile(fill, (len(X), 1))
        filled[:, has] = np.where(np.isnan(X), fill[has], X)  # missing cells of rows that are only labelled
        return filled, np.arange(D)


def guarded(params: ColumnsParams, found: Sendable, rows: SiteRows, *, may_be_empty: bool = False) -> Sendable:
    """Return the clusters of the rows (n, d) that may be sent in addition to the sums over all rows in `describe`.

    Refusal where there are none, unless `may_be_empty`.
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
