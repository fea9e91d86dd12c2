"""The server's side of `scale` robust and range: numbers of cells in bins, and the location and scale that follow from them."""

from collections.abc import Sequence

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.base import Round
from flareclust.core.histograms import REACH, WIDE_REACH, Grid, finer, grid_around, median_and_range, outermost
from flareclust.core.scaling import divisors_of
from flareclust.features.scaling import FILL
from flareclust.protocol.task import BINNED, FINER_BINNED, SCALES

#: Least and largest value of each column, None where nobody says.
Ranges = Sequence[Sequence[float] | None]

#: What is kept until columns are scaled: their means, and their deviations, 0 for a constant column.
MOMENTS_MEAN, MOMENTS_DEVIATION = "moments_mean", "moments_deviation"


def begun(scale: str, ranges: Ranges | None, spread: Message, record: Message) -> Round:
    """Return the first question about bins around the means of the columns; the scaling where a schema says all ranges.

    Args:
        scale: robust or range.
        ranges: least and largest value of each column by the schema; None where it does not say.
        spread: `mean` and `deviation` of the columns (d,), and what fills gaps.
        record: what is kept of the sites.
    """
    fill = {FILL: spread[FILL]} if FILL in spread else {}
    low, high = _stated(ranges, len(spread["mean"]))
    if scale == "range" and not np.isnan(low).any():
        return Round({"mean": low, "deviation": high - low, **fill}, record=record, step=SCALES)
    grid = grid_around(spread["mean"], spread["deviation"], REACH if scale == "robust" else WIDE_REACH)
    return Round(dict(grid._asdict()), record={**record, **fill}, step=BINNED)


def scaled_by_bins(scale: str, ranges: Ranges | None, round_: Round, counts: IntArray) -> Round:
    """Return the next question about bins, or a round of the step `SCALES` whose task is the scaling.

    Columns of which no site has enough known cells, and those without an interquartile range, are scaled by mean and deviation.

    Args:
        scale: as for `begun`.
        ranges: as for `begun`.
        round_: the question.
        counts: cells of all sites in each bin (d, BINS).
    """
    grid, record = Grid(round_.task["low"], round_.task["width"]), dict(round_.record)
    if scale == "robust" and round_.step == BINNED and (closer := finer(counts, grid)) is not None:
        return Round(dict(closer._asdict()), record=record, step=FINER_BINNED)
    mean, deviation = record[MOMENTS_MEAN], record[MOMENTS_DEVIATION]
    fill = {FILL: record.pop(FILL)} if FILL in record else {}
    if scale == "robust":
        location, divisor = median_and_range(counts, grid)
    else:
        low, high = _stated(ranges, len(mean))
        first, last = outermost(counts, grid)
        location = np.where(np.isnan(low), first, low)
        divisor = np.where(np.isnan(low), last, high) - location
    usable = (counts.sum(axis=1) > 0) & (divisor > 0)
    scaling = {"mean": np.where(usable, location, mean), "deviation": np.where(usable, divisor, divisors_of(deviation))}
    return Round({**scaling, **fill}, record=record, step=SCALES)


def _stated(ranges: Ranges | None, d: int) -> tuple[FloatArray, FloatArray]:
    """Return least and largest value of each column (d,) by the schema, NaN where it does not say."""
    ranges = ranges or [None] * d
    if len(ranges) != d:
        return np.full(d, np.nan), np.full(d, np.nan)
    low, high = np.array([(np.nan, np.nan) if one is None else one for one in ranges], dtype=np.float64).T
    return low, high
