"""Quartiles and ranges of the columns (`scale` robust or range), from numbers of cells in bins that the server chooses."""

from collections.abc import Sequence

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core import histograms
from flareclust.core.histograms import Grid
from flareclust.preparation.columns import LEAST_DEVIATION
from flareclust.preparation.settings import BY_BINS
from flareclust.protocol.schema import Schema, counts, real
from flareclust.protocol.task import Task

#: What asks for numbers of cells in bins: where the bins of each column begin, and their width.
_GRID = Schema(low="d", width=real("d", minimum=LEAST_DEVIATION))

#: What a site answers: cells of each column in each bin.
IN_BINS = Schema(counts=counts("d b"))

#: Least and largest value of each column by the schema of the tables, None where it does not say.
Ranges = Sequence[Sequence[float] | None]


def asked_grid(task: Task, scale: str, d: int) -> Grid:
    """Return the bins that a task asks about, of d columns.

    Raises:
        BadMessage: they are not those of d columns, or are asked for later than before the rounds, or without need. With a
            grid for every round, a server could move the edge of a bin over a single cell.
    """
    if scale not in BY_BINS:
        raise BadMessage(f"was asked for cells in bins, which scale={scale} does without")
    if task.round:
        raise BadMessage("was asked for cells in bins again; a job asks for them before the rounds")
    asked = {name: task.arrays[name] for name in _GRID.fields if name in task.arrays}
    _GRID.check(asked, {"d": d})
    return Grid(**asked)


# The server's side.


def located(scale: str, ranges: Ranges | None, cells: IntArray, grid: Grid) -> tuple[FloatArray, FloatArray]:
    """Return location and divisor of the columns, both (d,); NaN where the cells (d, b) of all sites do not say them.

    That is of columns of which no site has enough known cells, and of those without an interquartile range.
    """
    if scale == "robust":
        location, divisor = histograms.median_and_range(cells, grid)
    else:
        low, high = stated(ranges, len(cells))
        first, last = histograms.outermost(cells, grid)
        location = np.where(np.isnan(low), first, low)
        divisor = np.where(np.isnan(low), last, high) - location
    usable = (cells.sum(axis=1) > 0) & (divisor > 0)
    return np.where(usable, location, np.nan), np.where(usable, divisor, np.nan)


def stated(ranges: Ranges | None, d: int) -> tuple[FloatArray, FloatArray]:
    """Return least and largest value of each column (d,) by the schema, NaN where it does not say."""
    if not ranges or len(ranges) != d:
        ranges = [None] * d
    low, high = np.array([(np.nan, np.nan) if one is None else one for one in ranges], dtype=np.float64).T
    return low, high
