"""The server's side of prepared columns: location and spread of all sites' columns first, and the result in their units.

An algorithm's own `begin`, `merge` and records do not know of it: tasks get what fills and scales rows on their way out, and
lose it on their way in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.aggregators.base import ClusteringAggregator
from flareclust.aggregators.odd_columns import ODD_SITES, OF_SITES, log_before_rounds, odd_between_sites, of_sites
from flareclust.core import categories as category_columns
from flareclust.core import histograms
from flareclust.core.rounds import HISTORY
from flareclust.core.scaling import divisors_of, of_length_one, pooled_known_spread, pooled_spread
from flareclust.features.columns import LEAST_DEVIATION, decides_distances, outweighing
from flareclust.features.scaling import LENGTH_ONE, OPEN_GAPS
from flareclust.protocol.columns import FILL
from flareclust.preparation import settings
from flareclust.preparation.rows import SCALING
from flareclust.preparation.units import pooled_message
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName

#: With `missing=mean`: the missing cells of each column at all sites together (d,), and the rows.
MISSING_CELLS, ROWS_IN_ALL = "missing_cells", "rows_in_all"

#: What tasks carry, and what is kept.
_CARRIED, _KEPT = (
    (*SCALING.fields, FILL),
    (*OF_SITES, ODD_SITES, MISSING_CELLS, ROWS_IN_ALL),
)


class ScaledAggregator(ClusteringAggregator):
    """A server that has columns filled and scaled where the job says so."""

    params: settings.ScaledParams

    @property
    def _prepares(self) -> bool:
        """Return whether columns are described here; the variants of an algorithm for different columns have steps of their own."""
        if StepName.SCALES not in self.steps:
            return False
        return self.params.scale != "none" or self.params.missing != "refuse" or self.params.compare == "spread"

    def prepare(self) -> Round:
        """Return the first exchange about rows: the columns' location and spread, or that of the algorithm."""
        if not self._prepares:
            return super().prepare()
        return Round(step=StepName.KNOWN_SCALES if self.params.missing != "refuse" else StepName.SCALES)

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round; what is sent next are directions with the metric cosine."""
        after = self._advanced(round_, replies)
        if not settings.by_direction(self.params):
            return after
        sent: Message = {
            name: self.directed(after.task[name]) for name in ("centroids", "candidates") if name in after.task
        }
        return replace(after, task={**after.task, **sent})

    def directed(self, centroids: FloatArray) -> FloatArray:
        """Return centroids (k, d) as the metric has them: of length 1 with cosine.

        Means of rows of length 1 are shorter the more the rows differ; their directions are the centroids of spherical k-means
        (Dhillon and Modha 2001, section 3).
        """
        return of_length_one(centroids) if settings.by_direction(self.params) else centroids

    def _advanced(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round in scaled units; what prepares rows goes with every task."""
        if not self._prepares or round_.step == StepName.NAMES:
            return super().advance(round_, replies)
        if round_.step in (StepName.SCALES, StepName.KNOWN_SCALES):
            spread, record = (_known if round_.step == StepName.KNOWN_SCALES else _scaling)(replies)
            if ALL in replies:  # nobody but a site itself can compare it
                asked = pooled_message(replies[ALL], self._of_categories(len(spread["mean"])))
                return Round(asked, record={**record, **spread}, step=StepName.ODD_COLUMNS)
            return self._after_spread(spread, record)
        if round_.step == StepName.ODD_COLUMNS:
            record = {name: value for name, value in round_.record.items() if name not in _CARRIED}
            spread = {name: value for name, value in round_.record.items() if name in _CARRIED}
            return self._after_spread(spread, {**record, ODD_SITES: replies[ALL]["odd"]})
        if round_.step in (StepName.BINNED, StepName.FINER_BINNED):
            total = np.sum([reply["counts"] for reply in replies.values()], axis=0)
            return self._after_bins(scaled_by_bins(self.params.scale, self.params.table_ranges, round_, total))
        return _with(super().advance(_without(round_), replies), round_)

    def _after_spread(self, spread: Message, record: Message) -> Round:
        """Return what follows the columns' location and spread: an exchange about bins, or the first of the algorithm."""
        self._warn_of_columns(spread["deviation"], record)
        record = {**record, MOMENTS_MEAN: spread["mean"], MOMENTS_DEVIATION: spread["deviation"]}
        spread = {**spread, "deviation": divisors_of(spread["deviation"])}
        if self.params.scale in settings.BY_BINS:
            return self._after_bins(begun(self.params.scale, self.params.table_ranges, spread, record))
        kept = (*SCALING.fields, FILL) if self.params.scale == "standard" else (FILL,)
        carried = {name: spread[name] for name in kept if name in spread}
        return self._begun(carried, record)

    def _warn_of_columns(self, deviation: FloatArray, record: Message) -> None:
        """Log before the first round what the result's warnings will say, of columns by number: names are not known here."""
        d = len(deviation)
        names = [f"column {j + 1} of {d}" for j in range(d)]
        found = odd_between_sites(record, names, self._of_categories(d))
        widest = outweighing(names, deviation)
        if (
            self.params.scale == "none"
            and not self.params.categories
            and not settings.by_direction(self.params)
            and widest is not None
        ):
            found.append(decides_distances(widest, "scale=standard"))
        log_before_rounds(found)

    def _of_categories(self, d: int) -> BoolArray:
        """Return which of d columns are values of categories (d,): they have no units, and may be rare at one site."""
        return category_columns.in_categories(self.category_groups(d), d)

    def _after_bins(self, after: Round) -> Round:
        """Return the next exchange: about bins, or the first of the algorithm."""
        return (
            after if after.step in (StepName.BINNED, StepName.FINER_BINNED) else self._begun(after.task, after.record)
        )

    def _begun(self, carried: Message, record: Message) -> Round:
        """Return the first round of the algorithm with what prepares rows."""
        moments = {name: record.pop(name) for name in (MOMENTS_MEAN, MOMENTS_DEVIATION)}
        carried, record = self.with_categories(carried, record, moments[MOMENTS_MEAN], moments[MOMENTS_DEVIATION])
        deviation = carried.get("deviation", np.ones(1))
        if (deviation < LEAST_DEVIATION).any():
            raise JobFailed(
                f"the standard deviation of a column is below {LEAST_DEVIATION:g}; give such columns in a smaller unit, or leave them out"
            )
        begun = self.begin()
        task = {**begun.task, **carried}
        if "centroids" in task and "deviation" in task:
            task["centroids"] = _in_scaled_units(task)
        return replace(begun, task=task, record={**begun.record, **record})

    def with_categories(
        self, carried: Message, record: Message, mean: FloatArray, deviation: FloatArray
    ) -> tuple[Message, Message]:
        """Return what tasks carry and what is kept, with the columns of each category scaled together.

        Their variances add up to `category_variance` times `number_variance`, however many values the category has.

        Args:
            carried: what tasks carry, such as the columns' `mean` and `deviation` (d,) where they are scaled.
            record: what is kept.
            mean: of the columns over all rows (d,).
            deviation: of the columns over all rows (d,), 0 for a constant column.
        """
        if "deviation" not in carried or not self.params.categories:
            return carried, record
        together = category_columns.in_categories(self.category_groups(len(mean)), len(mean))
        divisor = carried["deviation"].copy()
        of_number = category_columns.number_variance(deviation[~together], divisor[~together])
        for group in self.params.categories:
            divisor[group] = category_columns.category_divisor(mean[group], deviation[group], of_number)
        return {**carried, "mean": np.where(together, mean, carried["mean"]), "deviation": divisor}, record

    def category_groups(self, d: int) -> list[list[int]]:
        """Return the columns of each category; raise JobFailed where rows have fewer columns, d."""
        groups = self.params.categories or []
        if any(column >= d for group in groups for column in group):
            raise JobFailed(f"categories name columns that rows of {d} columns do not have; they are counted from 0")
        return groups

    def so_far(self, round_: Round) -> Round | None:
        """Return the best solution so far, with what prepares rows."""
        if not self._prepares:
            return super().so_far(round_)
        found = super().so_far(_without(round_))
        return None if found is None else _with(found, round_)

    def secured(self) -> Self:
        """Return this aggregator as it works with totals only; raise UserError where gaps stay open."""
        if self.params.missing == settings.PARTIAL:
            raise UserError(f"missing={settings.PARTIAL} does not go with secure_sums; take missing=mean")
        return super().secured()

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, the centroids in the data's units, and how rows were prepared."""
        arrays = super().result(round_)
        if self.params.missing == settings.PARTIAL:
            arrays = arrays | {OPEN_GAPS: np.array(True)}
        if settings.by_direction(self.params):
            arrays = arrays | {LENGTH_ONE: np.array(True)}
        if not self._prepares or "deviation" not in arrays:
            return arrays
        back = {
            name: arrays[name] * arrays["deviation"] + arrays["mean"]
            for name in ("centroids", HISTORY)
            if name in arrays
        }
        return arrays | back


def _in_scaled_units(task: Message) -> FloatArray:
    """Return the centroids (k, d) that the caller starts with, which are in the units of the columns."""
    start, d = task["centroids"], len(task["mean"])
    if start.shape[1] != d:
        raise JobFailed(f"start has centroids of {start.shape[1]} columns where the rows have {d}")
    scaled: FloatArray = (start - task["mean"]) / task["deviation"]
    return scaled


def _without(round_: Round) -> Round:
    return replace(round_, task={name: value for name, value in round_.task.items() if name not in _CARRIED})


def _with(after: Round, before: Round) -> Round:
    """Return a round with what the one before carried, and what was kept of the sites."""
    carried = {name: before.task[name] for name in _CARRIED if name in before.task}
    kept = {name: before.record[name] for name in _KEPT if name in before.record}
    return replace(after, task={**after.task, **carried}, record={**kept, **after.record})


def _scaling(replies: Mapping[str, Message]) -> tuple[Message, Message]:
    """Return mean and deviation of all rows, and what is kept of the sites; of a total there is nothing to keep."""
    groups = {site: reply for site, reply in replies.items() if len(reply["counts"])}
    if not groups:
        raise JobFailed("no site has enough rows to disclose the means of its columns; leave out scale")
    rows = np.array([float(reply["counts"][0]) for reply in groups.values()])
    means, m2 = (np.concatenate([reply[name] for reply in groups.values()]) for name in ("centroids", "m2"))
    spread = pooled_spread(rows, means, m2)
    scaling = {"mean": spread.mean, "deviation": spread.deviation}
    if len(replies) < 2:
        return scaling, {}
    cells = np.broadcast_to(rows[:, None], means.shape).astype(np.int64)
    return scaling, of_sites(list(groups), cells, means, np.sqrt(m2 / rows[:, None]))


def _known(replies: Mapping[str, Message]) -> tuple[Message, Message]:
    """Return the same over the known cells, what gaps are filled with, and how many there are."""
    groups = {site: reply for site, reply in replies.items() if len(reply["counts"])}
    if not groups:
        raise JobFailed("no site has enough known cells to disclose the means of its columns; leave out missing=mean")
    cells, means, m2 = (
        np.concatenate([reply[name] for reply in groups.values()]) for name in ("counts", "centroids", "m2")
    )
    spread = pooled_known_spread(cells, means, m2)
    if (spread.counts == 0).any():
        raise JobFailed(
            f"column {int((spread.counts == 0).argmax()) + 1}: no site has enough known cells to disclose their mean; leave the column out"
        )
    carried = {"mean": spread.mean, "deviation": spread.deviation, FILL: spread.mean}
    rows = np.array([int(reply["rows"]) for reply in groups.values()])
    record = {
        MISSING_CELLS: np.maximum(rows[:, None] - cells, 0).sum(axis=0),
        ROWS_IN_ALL: np.array(rows.sum()),
    }
    if len(replies) < 2:
        return carried, record
    few = cells == 0
    own = np.sqrt(m2 / np.maximum(cells, 1))
    return carried, record | of_sites(list(groups), cells, np.where(few, np.nan, means), np.where(few, np.nan, own))


# The server's side of `scale` robust and range: numbers of cells in bins, and the location and scale that follow from them.

#: Least and largest value of each column, None where nobody says.
_Ranges = Sequence[Sequence[float] | None]

#: What is kept until columns are scaled: their means, and their deviations, 0 for a constant column.
MOMENTS_MEAN, MOMENTS_DEVIATION = "moments_mean", "moments_deviation"


def begun(scale: str, ranges: _Ranges | None, spread: Message, record: Message) -> Round:
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
        return Round({"mean": low, "deviation": high - low, **fill}, record=record, step=StepName.SCALES)
    grid = histograms.grid_around(
        spread["mean"], spread["deviation"], histograms.REACH if scale == "robust" else histograms.WIDE_REACH
    )
    return Round(dict(grid._asdict()), record={**record, **fill}, step=StepName.BINNED)


def scaled_by_bins(scale: str, ranges: _Ranges | None, round_: Round, counts: IntArray) -> Round:
    """Return the next question about bins, or a round of the step `SCALES` whose task is the scaling.

    Columns of which no site has enough known cells, and those without an interquartile range, are scaled by mean and deviation.

    Args:
        scale: as for `begun`.
        ranges: as for `begun`.
        round_: the question.
        counts: cells of all sites in each bin (d, BINS).
    """
    grid, record = histograms.Grid(round_.task["low"], round_.task["width"]), dict(round_.record)
    if scale == "robust" and round_.step == StepName.BINNED and (closer := histograms.finer(counts, grid)) is not None:
        return Round(dict(closer._asdict()), record=record, step=StepName.FINER_BINNED)
    mean, deviation = record[MOMENTS_MEAN], record[MOMENTS_DEVIATION]
    fill = {FILL: record.pop(FILL)} if FILL in record else {}
    if scale == "robust":
        location, divisor = histograms.median_and_range(counts, grid)
    else:
        low, high = _stated(ranges, len(mean))
        first, last = histograms.outermost(counts, grid)
        location = np.where(np.isnan(low), first, low)
        divisor = np.where(np.isnan(low), last, high) - location
    usable = (counts.sum(axis=1) > 0) & (divisor > 0)
    scaling = {"mean": np.where(usable, location, mean), "deviation": np.where(usable, divisor, divisors_of(deviation))}
    return Round({**scaling, **fill}, record=record, step=StepName.SCALES)


def _stated(ranges: _Ranges | None, d: int) -> tuple[FloatArray, FloatArray]:
    """Return least and largest value of each column (d,) by the schema, NaN where it does not say."""
    ranges = ranges or [None] * d
    if len(ranges) != d:
        return np.full(d, np.nan), np.full(d, np.nan)
    low, high = np.array([(np.nan, np.nan) if one is None else one for one in ranges], dtype=np.float64).T
    return low, high
