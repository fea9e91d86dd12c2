"""Quartiles and ranges of the columns (`scale` robust or range), from numbers of cells in bins that the server chooses."""

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import IntArray
from flareclust.core import histograms
from flareclust.features.columns import LEAST_DEVIATION
from flareclust.preparation.settings import BY_BINS
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.task import Task

#: What asks for numbers of cells in bins: where the bins of each column begin, and their width.
GRID = Schema(low="d", width=real("d", minimum=LEAST_DEVIATION))

#: What a site answers: cells of each column in each bin.
IN_BINS = Schema(counts=counts("d b"))


def asked_grid(task: Task, scale: str, d: int) -> histograms.Grid:
    """Return the bins that a task asks about, of d columns.

    Raises:
        BadMessage: they are not those of d columns, or are asked for later than before the rounds, or without need. With a
            grid for every round, a server could move the edge of a bin over a single cell.
    """
    if scale not in BY_BINS:
        raise BadMessage(f"was asked for cells in bins, which scale={scale} does without")
    if task.round:
        raise BadMessage("was asked for cells in bins again; a job asks for them before the rounds")
    asked = {name: task.arrays[name] for name in GRID.fields if name in task.arrays}
    GRID.check(asked, {"d": d})
    return histograms.Grid(**asked)


def cells_in_bins(rows: SiteRows, grid: histograms.Grid) -> IntArray:
    """Return how many known cells of each column of the table (n, d) lie in each bin (d, b)."""
    return histograms.binned(rows.table.X, grid, rows.context.min_count)
