"""Location and spread of the columns of sites that have the same ones, before rows are filled and scaled by those of all sites."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import JobFailed, Refusal
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core import categories as category_columns
from flareclust.core.histograms import binned
from flareclust.core.scaling import known_spread, pooled_known_spread, pooled_spread
from flareclust.preparation.bins import IN_BINS, Ranges, asked_grid
from flareclust.preparation.categories import weighted
from flareclust.preparation.columns import LEAST_DEVIATION, decides_distances, outweighing
from flareclust.preparation.rows import check_usable
from flareclust.preparation.scale import Measured, ScalingPhase
from flareclust.preparation.settings import ModesParams, ScaledParams, by_direction
from flareclust.preparation.units import ODD, log_before_rounds, odd_between_sites, odd_columns, pooled_message
from flareclust.protocol.columns import SAME, ColumnFacts, Columns
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import GROUPS, StepName, Task, rounded_spread

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: The columns of all rows as one group; each column has a number of known cells of its own.
_KNOWN = Schema(
    may_be_empty=True,
    rows=counts(""),
    cluster=index("k", less_than="K"),
    counts=counts("k d"),
    centroids=real("k d"),
    m2=real("k d", minimum=0),
)


class ColumnSpreads(ScalingPhase):
    """Asks for location and spread of the columns, and where quartiles or ranges are needed for numbers of cells in bins."""

    params: ScaledParams

    steps = MappingProxyType(
        {
            StepName.SCALES: Step(GROUPS, "scales", "measured", summed=True, as_is=True),
            StepName.KNOWN_SCALES: Step(_KNOWN, "known_scales", "measured", summed=True, as_is=True),
            StepName.ODD_COLUMNS: Step(ODD, "odd_columns", "odd_counted", jobs="secure", as_is=True),
            StepName.BINNED: Step(IN_BINS, "bins", "merge_bins", summed=True, as_is=True),
            StepName.FINER_BINNED: Step(IN_BINS, "bins", "merge_bins", summed=True, as_is=True),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps of algorithms for the same columns that can scale them."""
        return cls.steps if issubclass(executor.params_class(), ScaledParams) else {}

    def scales(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the columns of the rows (n, d), rounded, as one group."""
        self._check(rows)
        n, mean, deviation = rows.column_spread()
        return _as_one_group(rows, np.array([n]), mean, n * deviation**2)

    def known_scales(self, task: Task, rows: SiteRows) -> Message:
        """Return the same over the known cells of the rows (n, d), and the number of rows; nothing of columns with too few."""
        self._check(rows)
        cells, mean, deviation = known_spread(rows.raw, rows.context.min_count, rows.context.repeats)
        return {"rows": np.array(len(rows)), **_as_one_group(rows, cells[None], mean, cells * deviation**2)}

    def odd_columns(self, task: Task, rows: SiteRows) -> Message:
        """Return what is odd about the columns beside those of the other sites together."""
        described = self.scales if self.params.missing == "refuse" else self.known_scales
        return odd_columns(task, rows.table, described(task, rows), rows.context)

    def bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each column of the rows (n, d) lie in each bin."""
        check_usable(self.params, rows.table.X)
        grid = asked_grid(task, self.params.scale, rows.table.shape[1])
        rows.check_sums()
        return {"counts": binned(rows.raw, grid, rows.context.min_count)}

    def _check(self, rows: SiteRows) -> None:
        """Raise Refusal where the algorithm could not use the rows, or sums over them would disclose them.

        Also where categories of which modes are taken are not columns of 0 and 1.
        """
        check_usable(self.params, rows.table.X)
        if isinstance(self.params, ModesParams):
            groups, d = self.params.categories or [], rows.table.shape[1]
            if _beyond(groups, d):
                raise Refusal(f"has rows of {d} columns where the categories of the job have more")
            if not rows.context.grouped and not category_columns.are_one_hot(np.nan_to_num(rows.raw), groups):
                raise Refusal(
                    "has rows with something else than one 1 in the columns of a category, which must be of 0 and 1"
                )
        rows.check_sums()

    # ---- the server's side ----

    def begin(self) -> Round[Measured] | None:
        """Ask where columns are filled, scaled or compared."""
        p = self.params
        weighs = isinstance(p, ModesParams) and bool(p.categories)
        if p.scale == "none" and p.missing == "refuse" and p.compare != "spread" and not weighs:
            return None
        return Round(step=StepName.SCALES if p.missing == "refuse" else StepName.KNOWN_SCALES, state=Measured())

    def measured(self, round_: Round[Measured], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """Return what follows location and spread of all sites' columns."""
        state = (_of_known if round_.step == StepName.KNOWN_SCALES else _of_all)(replies)
        if ALL not in replies:
            return self._compared(state)
        # Nobody but a site itself can compare it.
        total, d = replies[ALL], len(state.mean)
        return Round(pooled_message(total, self._valued(d)), state=state, step=StepName.ODD_COLUMNS)

    def odd_counted(self, round_: Round[Measured], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """Return what follows the numbers of sites with odd columns."""
        state = round_.state
        return self._compared(replace(state, facts=replace(state.facts, odd_sites=replies[ALL]["odd"])))

    def _compared(self, state: Measured) -> Round[Any]:
        """Log before the first round what the result's warnings will say, of columns by number: names are not known here."""
        d = len(state.deviation)
        names = [f"column {j + 1} of {d}" for j in range(d)]
        found = odd_between_sites(state.facts.arrays(), names, self._valued(d))
        mixed = isinstance(self.params, ModesParams) and bool(self.params.categories)
        widest = outweighing(names, np.where(self._valued(d), 0.0, state.deviation), mixed)
        unscaled = (
            self.params.scale == "none" and (mixed or not self.params.categories) and not by_direction(self.params)
        )
        if unscaled and widest is not None:
            found.append(decides_distances(widest, "scale=standard", mixed))
        log_before_rounds(found)
        return self.scaled(state)

    def groups(self, columns: Columns, d: int) -> list[list[int]]:
        """Return the columns of each category; raise JobFailed where rows have fewer columns, d."""
        groups = self.params.categories or []
        if _beyond(groups, d):
            raise JobFailed(f"categories name columns that rows of {d} columns do not have; they are counted from 0")
        return groups

    def ranges(self, columns: Columns) -> Ranges | None:
        """Return least and largest value of each column by the schema."""
        return self.params.table_ranges

    def with_categories(self, columns: Columns, mean: FloatArray, deviation: FloatArray) -> Columns:
        """Return the columns with those of each category scaled together, or weighted where modes are taken."""
        p = self.params
        if isinstance(p, ModesParams) and p.categories:
            return weighted(columns, self.groups(columns, len(mean)), p.gamma, mean, deviation)
        if isinstance(p, ModesParams) or columns.deviation is None:
            return columns
        return super().with_categories(columns, mean, deviation)

    def check(self, columns: Columns, divisor: FloatArray) -> None:
        """Raise JobFailed where a column varies too little."""
        if (divisor < LEAST_DEVIATION).any():
            raise JobFailed(
                f"the standard deviation of a column is below {LEAST_DEVIATION:g}; give such columns in a smaller unit, or leave them out"
            )

    def _valued(self, d: int) -> BoolArray:
        """Return which of d columns are values of categories (d,): they have no units, and may be rare at one site."""
        return category_columns.in_categories(self.groups(SAME, d), d)


def _as_one_group(rows: SiteRows, counts: IntArray, mean: FloatArray, m2: FloatArray) -> Message:
    """Return what a site sends of all its rows: numbers of rows or of known cells, mean (d,) and squared deviations (d,)."""
    message = {"cluster": np.array([0]), "counts": counts, "centroids": mean[None], "m2": m2[None]}
    return rounded_spread(message, rows.context.round_counts, rows.context.min_count)


def _beyond(groups: list[list[int]], d: int) -> bool:
    """Return whether categories have columns that rows of d columns do not have."""
    return any(column >= d for group in groups for column in group)


def _stacked(
    replies: Mapping[str, Message], of: str, setting: str
) -> tuple[list[str], IntArray, FloatArray, FloatArray]:
    """Return the names of the sites that sent a group, and the groups' counts, means and squared deviations, a row for each."""
    sites = [site for site, reply in replies.items() if len(reply["counts"])]
    if not sites:
        raise JobFailed(f"no site has enough {of} to disclose the means of its columns; leave out {setting}")
    counts, means, m2 = (np.concatenate([replies[s][name] for s in sites]) for name in ("counts", "centroids", "m2"))
    return sites, counts, means, m2


def _of_all(replies: Mapping[str, Message]) -> Measured:
    """Return mean and deviation of all rows, and what is kept of the sites; of a total there is nothing to keep."""
    sites, _, means, m2 = _stacked(replies, "rows", "scale")
    rows, facts = np.array([float(replies[site]["counts"][0]) for site in sites]), ColumnFacts()
    spread = pooled_spread(rows, means, m2)
    if len(replies) > 1:
        cells = np.broadcast_to(rows[:, None], means.shape).astype(np.int64)
        facts = ColumnFacts(np.array(sites), cells, means, np.sqrt(m2 / rows[:, None]))
    return Measured(SAME, spread.mean, spread.deviation, facts)


def _of_known(replies: Mapping[str, Message]) -> Measured:
    """Return the same over the known cells, what gaps are filled with, and how many there are."""
    sites, cells, means, m2 = _stacked(replies, "known cells", "missing=mean")
    spread = pooled_known_spread(cells, means, m2)
    if (spread.counts == 0).any():
        raise JobFailed(
            f"column {int((spread.counts == 0).argmax()) + 1}: no site has enough known cells to disclose their mean; leave the column out"
        )
    rows, facts = np.array([int(replies[site]["rows"]) for site in sites]), ColumnFacts()
    if len(replies) > 1:
        few, own = cells == 0, np.sqrt(m2 / np.maximum(cells, 1))
        facts = ColumnFacts(np.array(sites), cells, np.where(few, np.nan, means), np.where(few, np.nan, own))
    missing = np.maximum(rows[:, None] - cells, 0).sum(axis=0)
    facts = replace(facts, missing_cells=missing, rows_in_all=int(rows.sum()))
    return Measured(Columns(fill=spread.mean), spread.mean, spread.deviation, facts)
