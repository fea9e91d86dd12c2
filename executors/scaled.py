"""The site's side of prepared columns: a job with `scale` or `missing` first asks for their location and spread.

The rows that an algorithm sees are then filled and scaled by those of all sites, and so is all that it sends; the result is in
the units of the columns. Gaps may stay open (`flareclust.executors.gaps`), and rows may be brought to length 1
(`flareclust.executors.cosine`). Quartiles and ranges come from numbers of cells in bins (`flareclust.core.histograms`).
"""

from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core import histograms
from flareclust.core.local import Seeds, Sendable, seed_cells
from flareclust.core.missing.gaps import Completed, complete
from flareclust.core.scaling import known_spread, of_length_one, without_direction
from flareclust.core.scaling import rounded_spread as spread_of
from flareclust.data.tables import Table
from flareclust.executors import cosine, partwise
from flareclust.executors import gaps as gap_rules
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.odd_columns import ODD, odd_columns
from flareclust.executors.phases import ColumnNames, Phase
from flareclust.executors.profiles import ClusterProfiles
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.features.scaling import FILL, filled
from flareclust.preparation.settings import BY_BINS, PARTIAL, ScaledParams
from flareclust.privacy.context import SiteRows
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: What a task carries: the minimum keeps every quotient of finite values finite, as in `flareclust.executors.described`.
SCALING = Schema(mean="d", deviation=real("d", minimum=LEAST_DEVIATION))

#: What it carries with `missing=mean`: what gaps are filled with.
_FILLING = Schema(fill="d")

#: What asks for numbers of cells in bins: where the bins of each column begin, and their width.
GRID = Schema(low="d", width=real("d", minimum=LEAST_DEVIATION))

#: The columns of all rows as one group; each column has a number of known cells of its own.
_KNOWN = Schema(
    may_be_empty=True,
    rows=counts(""),
    cluster=index("k", less_than="K"),
    counts=counts("k d"),
    centroids=real("k d"),
    m2=real("k d", minimum=0),
)

#: Cells of each column in each bin.
IN_BINS = Schema(counts=counts("d b"))

#: The steps about the columns as they are, before they are filled and scaled.
_BEFORE_SCALING = (StepName.SCALES, StepName.KNOWN_SCALES, StepName.ODD_COLUMNS, StepName.BINNED, StepName.FINER_BINNED)


def check_bins(task: Task, scale: str) -> None:
    """Raise BadMessage where numbers of cells in bins are asked for later than before the rounds, or without need.

    With a grid for every round, a server could move the edge of a bin over a single cell.
    """
    if scale not in BY_BINS:
        raise BadMessage(f"was asked for cells in bins, which scale={scale} does without")
    if task.round:
        raise BadMessage("was asked for cells in bins again; a job asks for them before the rounds")


class ColumnSpreads(Phase):
    """Location and spread of the columns, before they are filled and scaled."""

    site: "ScaledExecutor"

    steps = MappingProxyType(
        {
            # Algorithms for different columns have other steps for this, and no `compare`.
            StepName.SCALES: Step(GROUPS, "scales", summed=True, parameter="compare"),
            StepName.KNOWN_SCALES: Step(_KNOWN, "known_scales", summed=True, parameter="compare"),
            StepName.ODD_COLUMNS: Step(ODD, "odd_columns", jobs="secure", named=True, parameter="compare"),
            StepName.BINNED: Step(IN_BINS, "bins", summed=True, parameter="compare"),
            StepName.FINER_BINNED: Step(IN_BINS, "bins", summed=True, parameter="compare"),
        }
    )

    @partwise.computed_by(partwise.scales)
    def scales(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the columns of the rows (n, d), rounded, as one group."""
        self.site.check_enough_rows(rows.X, rows.context)
        n, mean, deviation = spread_of(rows.X, rows.context.repeats)
        message = {
            "cluster": np.array([0]),
            "counts": np.array([n]),
            "centroids": mean[None],
            "m2": n * deviation[None] ** 2,
        }
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def known_scales(self, task: Task, rows: SiteRows) -> Message:
        """Return the same over the known cells of the rows (n, d), and the number of rows; nothing of columns with too few."""
        self.site.check_enough_rows(rows.X, rows.context)
        cells, mean, deviation = known_spread(rows.X, rows.context.min_count, rows.context.repeats)
        message = {
            "rows": np.array(len(rows.X)),
            "cluster": np.array([0]),
            "counts": cells[None],
            "centroids": mean[None],
            "m2": cells * deviation[None] ** 2,
        }
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    @partwise.computed_by(partwise.odd_columns)
    def odd_columns(self, task: Task, rows: SiteRows) -> Message:
        """Return what is odd about the columns beside those of the other sites together."""
        described = self.known_scales if self.site.gaps else self.scales
        return odd_columns(task, rows.table, described(task, rows), rows.context)

    def bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each column of the rows (n, d) lie in each bin."""
        check_bins(task, self.site.params.scale)
        self.site.check_enough_rows(rows.X, rows.context)
        asked = {name: task.arrays[name] for name in GRID.fields if name in task.arrays}
        GRID.check(asked, {"d": rows.X.shape[1]})
        return {"counts": histograms.binned(rows.X, histograms.Grid(**asked), rows.context.min_count)}


class ScaledExecutor(ClusteringExecutor):
    """A site whose columns are filled and scaled where the job says so."""

    params: ScaledParams

    phases: ClassVar[tuple[type[Phase], ...]] = (ClusterProfiles, ColumnNames, ColumnSpreads)

    @property
    def gaps(self) -> bool | None:  # type: ignore[override]
        """Return whether the job takes rows with missing cells; None for the variants of an algorithm for different columns."""
        missing = getattr(self.params, "missing", None)
        return None if missing is None else missing != "refuse"

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "mean", "deviation", FILL)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task without the scaling that it carries, and the rows filled, scaled and brought to length 1 as the job says.

        Where gaps stay open, what they are filled with is in scaled units.
        """
        if self.open_gaps and table.repeats > 1:  # floors of cells would be of copies
            raise Refusal("has rows with weights (a column of type weight), which do not go with missing=partial")
        if task.step in _BEFORE_SCALING:
            return task, table
        X, d = table.X, table.X.shape[1]
        sent = {name: value for name, value in task.arrays.items() if name in (*SCALING.fields, *_FILLING.fields)}
        arrays = {name: value for name, value in task.arrays.items() if name not in sent}
        if FILL in sent:
            _FILLING.check({FILL: sent[FILL]}, {"d": d})
            X = X if self.open_gaps else filled(sent, X)
        elif self.gaps and np.isnan(X.min()):
            raise Refusal("was not sent the means that its missing cells are filled with")
        if "deviation" in sent:
            scaling = {name: sent[name] for name in SCALING.fields if name in sent}
            SCALING.check(scaling, {"d": d})
            X = (X - scaling["mean"]) / scaling["deviation"]
        if FILL in sent and self.open_gaps:
            scaled = "deviation" in sent
            arrays[FILL] = (sent[FILL] - sent["mean"]) / sent["deviation"] if scaled else sent[FILL]
        if cosine.by_direction(self.params):
            X = of_length_one(X)
        return (replace(task, arrays=arrays) if sent else task), (table if X is table.X else replace(table, X=X))

    @property
    def open_gaps(self) -> bool:
        """Return whether missing cells stay open."""
        return isinstance(self.params, gap_rules.GapsParams) and self.params.missing == PARTIAL

    def completed(self, data: FloatArray, centroids: FloatArray, least: int) -> Completed:
        """Return the rows (n, d) for computations about centroids (k, d): without gaps.

        Args:
            data: the rows.
            centroids: that they are compared with.
            least: smallest number of rows whose mean may be sent.
        """
        return complete(data, centroids, least) if self.open_gaps else Completed(data)

    def completed_alone(self, task: Task, rows: SiteRows) -> SiteRows:
        """Return the rows (n, d) completed by the site's own clusters; as they are without gaps."""
        return gap_rules.complete_site(task, rows, self.params.k) if self.open_gaps else rows

    def draw_seeds(self, rows: SiteRows, seeds: Seeds, n_candidates: int | None = None) -> Sendable:
        """Return the cells of k seeds that may be sent (`flareclust.core.local.seed_cells`)."""
        return seed_cells(
            rows.X,
            self.params.k,
            rows.rng,
            seeds=seeds,
            min_count=rows.context.min_count,
            ones=rows.context.ones,
            aborted=rows.aborted,
            n_candidates=n_candidates,
            known=rows.known,
        )

    def compared(self, data: FloatArray, centroids: FloatArray) -> FloatArray:
        """Return the rows (n, d) as they are compared with centroids (k, d): without gaps."""
        return self.completed(data, centroids, self.min_count).rows

    @partwise.computed_by(partwise.labels)
    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the final cluster (n,) of each row.

        It is -1 for rows without a known cell or a direction, which a site with a policy can have.
        """
        if self.open_gaps:
            labels = super().labels(task, rows.of(complete(rows.X, task.arrays["centroids"]).rows))
            return np.where(np.isnan(rows.X).all(axis=1), -1, labels)
        labels = super().labels(task, rows)
        return np.where(without_direction(rows.X), -1, labels) if cosine.by_direction(self.params) else labels

    def grouped(self, task: Task, rows: SiteRows) -> tuple[IntArray, BoolArray | None]:
        """Return the cluster of each row and its known cells as the rounds count them.

        By all known cells a row could be in another cluster, and sums of both would differ by this row.
        """
        if not self.open_gaps:
            return super().grouped(task, rows)
        own = rows.of(*complete(rows.X, task.arrays["centroids"], rows.context.min_count))
        return super().labels(task, own), own.known

    def check_task(self, task: Task, data: FloatArray) -> None:
        """Check the rows (n, d) as well."""
        super().check_task(task, data)
        if self.open_gaps:
            gap_rules.check_known(data)
        if cosine.by_direction(self.params):
            cosine.check_directions(data)

    def placing(self, arrays: Message) -> Message:
        """Return the arrays for a late site: the result in scaled units."""
        needed = super().placing(arrays)
        if StepName.SCALES not in self.steps or "deviation" not in arrays:
            return needed
        return needed | {"centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}
