"""Location and spread of the columns of sites that have the same ones, before rows are filled and scaled by those of all sites."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.core import categories as category_columns
from flareclust.core.scaling import known_spread
from flareclust.preparation.bins import IN_BINS, asked_grid, cells_in_bins
from flareclust.preparation.rows import check_usable
from flareclust.preparation.settings import ModesParams, ScaledParams
from flareclust.preparation.units import ODD, odd_columns
from flareclust.protocol.groups import GROUPS, rounded_spread
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index, real
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor

#: The columns of all rows as one group; each column has a number of known cells of its own.
_KNOWN = Schema(
    may_be_empty=True,
    rows=counts(""),
    cluster=index("k", less_than="K"),
    counts=counts("k d"),
    centroids=real("k d"),
    m2=real("k d", minimum=0),
)


class ColumnSpreads(Phase):
    """Asks for location and spread of the columns, and where quartiles or ranges are needed for numbers of cells in bins."""

    params: ScaledParams

    steps = MappingProxyType(
        {
            StepName.SCALES: Step(GROUPS, "scales", summed=True, as_is=True),
            StepName.KNOWN_SCALES: Step(_KNOWN, "known_scales", summed=True, as_is=True),
            StepName.ODD_COLUMNS: Step(ODD, "odd_columns", jobs="secure", as_is=True),
            StepName.BINNED: Step(IN_BINS, "bins", summed=True, as_is=True),
            StepName.FINER_BINNED: Step(IN_BINS, "bins", summed=True, as_is=True),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps of algorithms for the same columns that can scale them."""
        return cls.steps if issubclass(executor.params_class(), ScaledParams) else {}

    def scales(self, task: Task, rows: SiteRows) -> Message:
        """Return mean and squared deviations of the columns of the rows (n, d), rounded, as one group."""
        self._check(rows)
        rows.check_sums()
        n, mean, deviation = rows.column_spread()
        message = {
            "cluster": np.array([0]),
            "counts": np.array([n]),
            "centroids": mean[None],
            "m2": n * deviation[None] ** 2,
        }
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def known_scales(self, task: Task, rows: SiteRows) -> Message:
        """Return the same over the known cells of the rows (n, d), and the number of rows; nothing of columns with too few."""
        self._check(rows)
        rows.check_sums()
        cells, mean, deviation = known_spread(rows.table.X, rows.context.min_count, rows.context.repeats)
        message = {
            "rows": np.array(len(rows)),
            "cluster": np.array([0]),
            "counts": cells[None],
            "centroids": mean[None],
            "m2": cells * deviation[None] ** 2,
        }
        return rounded_spread(message, rows.context.round_counts, rows.context.min_count)

    def odd_columns(self, task: Task, rows: SiteRows) -> Message:
        """Return what is odd about the columns beside those of the other sites together."""
        described = self.scales if self.params.missing == "refuse" else self.known_scales
        return odd_columns(task, rows.table, described(task, rows), rows.context)

    def bins(self, task: Task, rows: SiteRows) -> Message:
        """Return how many known cells of each column of the rows (n, d) lie in each bin."""
        check_usable(self.params, rows.table.X)
        grid = asked_grid(task, self.params.scale, rows.table.X.shape[1])
        rows.check_sums()
        return {"counts": cells_in_bins(rows, grid)}

    def _check(self, rows: SiteRows) -> None:
        """Raise Refusal where the algorithm could not use the rows, or categories of which modes are taken are not columns of 0 and 1."""
        check_usable(self.params, rows.table.X)
        if not isinstance(self.params, ModesParams):
            return
        groups, d = self.params.categories or [], rows.table.X.shape[1]
        if any(column >= d for group in groups for column in group):
            raise Refusal(f"has rows of {d} columns where the categories of the job have more")
        if not rows.context.grouped and not category_columns.are_one_hot(np.nan_to_num(rows.table.X), groups):
            raise Refusal(
                "has rows with something else than one 1 in the columns of a category, which must be of 0 and 1"
            )
