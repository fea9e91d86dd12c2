"""The scaling of a job's columns, once their location and spread are known, whether all sites have the same ones or not."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import histograms
from flareclust.core.histograms import Grid
from flareclust.core.scaling import divisors_of
from flareclust.preparation import bins
from flareclust.preparation.categories import scaled_together
from flareclust.preparation.settings import BY_BINS, ScaleParams
from flareclust.protocol.columns import NO_FACTS, SAME, ColumnFacts, Columns
from flareclust.protocol.rounds import Round
from flareclust.protocol.stages import Phase
from flareclust.protocol.state import State
from flareclust.protocol.task import StepName


@dataclass(frozen=True, eq=False)
class Measured(State):
    """What is known of the columns before they are scaled.

    Attributes:
        columns: with what fills gaps, without a scaling.
        mean: of each column (d,); empty before it is known.
        deviation: of each (d,), 0 for a constant one.
        facts: for the result.
    """

    columns: Columns = SAME
    mean: FloatArray = field(default_factory=lambda: np.zeros(0))
    deviation: FloatArray = field(default_factory=lambda: np.zeros(0))
    facts: ColumnFacts = NO_FACTS


class ScalingPhase(Phase):
    """Scales columns by means and deviations, or asks for cells in bins for quartiles or ranges; ends with the columns of the job."""

    params: ScaleParams

    @abstractmethod
    def groups(self, columns: Columns, d: int) -> list[list[int]]:
        """Return the columns of each category, of d."""

    @abstractmethod
    def ranges(self, columns: Columns) -> bins.Ranges | None:
        """Return least and largest value of each column by the schema."""

    @abstractmethod
    def check(self, columns: Columns, divisor: FloatArray) -> None:
        """Raise JobFailed where rows cannot be divided so."""

    def scaled(self, state: Measured) -> Round[Any]:
        """Return what follows the measuring of the columns: a question about bins, or the end of the phase."""
        scale = self.params.scale
        if scale not in BY_BINS:
            standard = scale == "standard"
            divisor = divisors_of(state.deviation) if standard else None
            return self.ended(state, state.mean if standard else None, divisor)
        low, high = bins.stated(self.ranges(state.columns), len(state.mean))
        if scale == "range" and not np.isnan(low).any():
            return self.ended(state, low, high - low)
        reach = histograms.REACH if scale == "robust" else histograms.WIDE_REACH
        grid = histograms.grid_around(state.mean, divisors_of(state.deviation), reach)
        return self._asked(grid, state, StepName.BINNED)

    def merge_bins(self, round_: Round[Measured], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """Return the next question about bins, or the end of the phase."""
        cells: IntArray = np.sum([reply["counts"] for reply in replies.values()], axis=0)
        grid, state, scale = Grid(round_.task["low"], round_.task["width"]), round_.state, self.params.scale
        closer = histograms.finer(cells, grid) if scale == "robust" and round_.step == StepName.BINNED else None
        if closer is not None:
            return self._asked(closer, state, StepName.FINER_BINNED)
        location, divisor = bins.located(scale, self.ranges(state.columns), cells, grid)
        usual = np.isnan(divisor)  # these columns are scaled by mean and deviation
        location = np.where(usual, state.mean, location)
        return self.ended(state, location, np.where(usual, divisors_of(state.deviation), divisor))

    def ended(self, state: Measured, location: FloatArray | None, divisor: FloatArray | None) -> Round[Any]:
        """Return the end of the phase, with the columns scaled; None for columns as they are."""
        columns = replace(state.columns, mean=location, deviation=divisor)
        columns = self.with_categories(columns, state.mean, state.deviation)
        if columns.deviation is not None:
            self.check(columns, columns.deviation)
        return Round(done=True, columns=columns, facts=state.facts)

    def with_categories(self, columns: Columns, mean: FloatArray, deviation: FloatArray) -> Columns:
        """Return the columns with those of each category scaled together."""
        return scaled_together(columns, self.groups(columns, len(mean)), mean, deviation)

    def _asked(self, grid: Grid, state: Measured, step: str) -> Round[Measured]:
        return Round(dict(grid._asdict()), state=state, step=step, columns=replace(state.columns, fill=None))
