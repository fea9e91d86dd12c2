"""The site's side of prepared columns: a job with `scale` or `missing` first asks for their location and spread.

The rows that an algorithm sees are then filled and scaled by those of all sites, and so is all that it sends; the result is in
the units of the columns. Quartiles and ranges come from numbers of cells in bins (`flareclust.core.histograms`).
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core import histograms
from flareclust.core.missing.gaps import Completed
from flareclust.core.scaling import known_spread
from flareclust.core.scaling import rounded_spread as spread_of
from flareclust.data.tables import Table
from flareclust.executors import partwise
from flareclust.executors.base import ComparedExecutor
from flareclust.executors.odd_columns import ODD, odd_columns
from flareclust.executors.parameters import BY_BINS, ScaledParams
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.features.scaling import FILL, filled
from flareclust.privacy.context import SiteRows
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import BINNED, FINER_BINNED, KNOWN_SCALES, ODD_COLUMNS, SCALES, Task

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
_BEFORE_SCALING = (SCALES, KNOWN_SCALES, ODD_COLUMNS, BINNED, FINER_BINNED)


def check_bins(task: Task, scale: str) -> None:
    """Raise BadMessage where numbers of cells in bins are asked for later than before the rounds, or without need.

    With a grid for every round, a server could move the edge of a bin over a single cell.
    """
    if scale not in BY_BINS:
        raise BadMessage(f"was asked for cells in bins, which scale={scale} does without")
    if task.round:
        raise BadMessage("was asked for cells in bins again; a job asks for them before the rounds")


class ScaledExecutor(ComparedExecutor):
    """A site whose columns are filled and scaled where the job says so."""

    params: ScaledParams

    steps = {
        # Algorithms for different columns have other steps for this, and no `compare`.
        SCALES: Step(GROUPS, "scales", summed=True, parameter="compare"),
        KNOWN_SCALES: Step(_KNOWN, "known_scales", summed=True, parameter="compare"),
        ODD_COLUMNS: Step(ODD, "odd_columns", jobs="secure", named=True, parameter="compare"),
        BINNED: Step(IN_BINS, "bins", summed=True, parameter="compare"),
        FINER_BINNED: Step(IN_BINS, "bins", summed=True, parameter="compare"),
    }

    @property
    def gaps(self) -> bool | None:  # type: ignore[override]
        """Return whether the job takes rows with missing cells; None for the variants of an algorithm for different columns."""
        missing = getattr(self.params, "missing", None)
        return None if missing is None else missing != "refuse"

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", "mean", "deviation", FILL)

    @partwise.computed_by(partwise.scales)
    def scales(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the columns of the rows (n, d), rounded, as one group."""
        self._check_enough(rows.X, rows.context)
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
        self._check_enough(rows.X, rows.context)
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
        described = self.known_scales if self.gaps else self.scales
        return odd_columns(task, rows.table, described(task, rows), rows.context)

    def bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each column of the rows (n, d) lie in each bin."""
        check_bins(task, self.params.scale)
        self._check_enough(rows.X, rows.context)
        asked = {name: task.arrays[name] for name in GRID.fields if name in task.arrays}
        GRID.check(asked, {"d": rows.X.shape[1]})
        return {"counts": histograms.binned(rows.X, histograms.Grid(**asked), rows.context.min_count)}

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return a task without the scaling that it carries, and the rows filled and scaled by it."""
        if task.step in _BEFORE_SCALING:
            return task, table
        X, d = table.X, table.X.shape[1]
        sent = {name: value for name, value in task.arrays.items() if name in (*SCALING.fields, *_FILLING.fields)}
        if FILL in sent:
            _FILLING.check({FILL: sent[FILL]}, {"d": d})
            X = self.without_gaps(X, sent)
        elif self.gaps and np.isnan(X.min()):
            raise Refusal("was not sent the means that its missing cells are filled with")
        if "deviation" in sent:
            scaling = {name: sent[name] for name in SCALING.fields if name in sent}
            SCALING.check(scaling, {"d": d})
            X = (X - scaling["mean"]) / scaling["deviation"]
        if not sent:
            return super().viewed(task, table)
        arrays = {name: value for name, value in task.arrays.items() if name not in sent}
        return replace(task, arrays=arrays), replace(table, X=X)

    def without_gaps(self, X: FloatArray, sent: Message) -> FloatArray:
        """Return rows (n, d) whose gaps are filled as the server says, unless overridden."""
        return filled(sent, X)

    def completed(self, data: FloatArray, centroids: FloatArray, least: int) -> Completed:
        """Return the rows (n, d) for computations about centroids (k, d); as they are, unless overridden.

        Args:
            data: the rows.
            centroids: that they are compared with.
            least: smallest number of rows whose mean may be sent.
        """
        return Completed(data)

    def compared(self, data: FloatArray, centroids: FloatArray) -> FloatArray:
        """Return the rows (n, d) as they are compared with centroids (k, d): without gaps."""
        return self.completed(data, centroids, self.min_count).rows

    def placing(self, arrays: Message) -> Message:
        """Return the arrays for a late site: the result in scaled units."""
        needed = super().placing(arrays)
        if SCALES not in self.steps or "deviation" not in arrays:
            return needed
        return needed | {"centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}
