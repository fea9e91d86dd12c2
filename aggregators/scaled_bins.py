"""The server's side of `scale` robust and range: numbers of cells in bins, and the location and scale that follow from them."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.base import Round
from flareclust.core.histograms import REACH, WIDE_REACH, Grid, finer, grid_around, median_and_range, outermost
from flareclust.executors.parameters import ScaledParams
from flareclust.features.scaling import FILL
from flareclust.protocol.task import BINNED, FINER_BINNED, SCALES

#: What is kept until columns are scaled: their means and deviations.
MOMENTS_MEAN, MOMENTS_DEVIATION = "moments_mean", "moments_deviation"


def begun(params: ScaledParams, spread: Message, record: Message) -> Round:
    """Return the first question about bins around the means of the columns; the scaling where a schema says all ranges.

    Args:
        params: of the job.
        spread: `mean` and `deviation` of the columns (d,), and what fills gaps.
        record: what is kept of the sites.
    """
    fill = {FILL: spread[FILL]} if FILL in spread else {}
    low, high = _stated(params, len(spread["mean"]))
    if params.scale == "range" and not np.isnan(low).any():
        return Round({"mean": low, "deviation": high - low, **fill}, record=record, step=SCALES)
    grid = grid_around(spread["mean"], spread["deviation"], REACH if params.scale == "robust" else WIDE_REACH)
    return Round(dict(grid._asdict()), record={**record, **fill}, step=BINNED)


def scaled_by_bins(params: ScaledParams, round_: Round, counts: IntArray) -> Round:
    """Return the next question about bins, or a round of the step `SCALES` whose task is the scaling.

    Columns of which no site has enough known cells, and those without an interquartile range, are scaled by mean and deviation.

    Args:
        params: of the job.
        round_: the question.
        counts: cells of all sites in each bin (d, BINS).
    """
    grid, record = Grid(round_.task["low"], round_.task["width"]), dict(round_.record)
    if params.scale == "robust" and round_.step == BINNED and (closer := finer(counts, grid)) is not None:
        return Round(dict(closer._asdict()), record=record, step=FINER_BINNED)
    mean, deviation = record[MOMENTS_MEAN], record[MOMENTS_DEVIATION]
    fill = {FILL: record.pop(FILL)} if FILL in record else {}
    if params.scale == "robust":
        location, scale = median_and_range(counts, grid)
    else:
        low, high = _stated(params, len(mean))
        first, last = outermost(counts, grid)
        location = np.where(np.isnan(low), first, low)
        scale = np.where(np.isnan(low), last, high) - location
    usable = (counts.sum(axis=1) > 0) & (scale > 0)
    scaling = {"mean": np.where(usable, location, mean), "deviation": np.where(usable, scale, deviation)}
    return Round({**scaling, **fill}, record=record, step=SCALES)


def _stated(params: ScaledParams, d: int) -> tuple[FloatArray, FloatArray]:
    """Return least and largest value of each column (d,) by the schema, NaN where it does not say."""
    ranges = params.table_ranges or [None] * d
    if len(ranges) != d:
        return np.full(d, np.nan), np.full(d, np.nan)
    low, high = np.array([(np.nan, np.nan) if one is None else one for one in ranges], dtype=np.float64).T
    return low, high
