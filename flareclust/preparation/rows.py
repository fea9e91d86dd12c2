"""Stages that prepare the rows of a site whose columns are those of all: filled, scaled, brought to length 1, trimmed.

What fills and scales rows is of all sites together (`flareclust.preparation.spread`), and comes with every task after that. The
algorithm sees neither it nor the rows before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.scaling import of_length_one, without_direction
from flareclust.preparation.categories import Modes
from flareclust.preparation.columns import SCALING
from flareclust.preparation.different import CARRIED, OwnColumns
from flareclust.preparation.scaling import filled
from flareclust.preparation.settings import (
    EUCLIDEAN,
    ColumnsParams,
    GapsParams,
    MetricParams,
    ModesParams,
    ScaledParams,
    TrimParams,
    by_direction,
    leaves_gaps,
)
from flareclust.protocol.columns import FILL
from flareclust.protocol.params import Params
from flareclust.protocol.schema import Schema
from flareclust.protocol.stages import SiteExchange, Stage

#: What fills gaps.
_FILLING = Schema(fill="d")


def stages_for(params: Params) -> list[Stage]:
    """Return the stages that a job's settings ask for, in their order."""
    if isinstance(params, ColumnsParams):
        return [OwnColumns(params.shown, params.scale != "none", params.distance)]
    if not isinstance(params, ScaledParams):
        return []
    stages: list[Stage] = [] if params.missing == "refuse" else [Gaps(leaves_gaps(params))]
    if isinstance(params, ModesParams):
        stages.append(Modes(params.categories or []))
    stages.append(Scale())
    if by_direction(params):
        stages.append(Directions())
    if isinstance(params, TrimParams) and params.trim_rows:
        stages.append(Trim(params.trim_rows))
    return stages


def check_usable(params: ScaledParams, X: FloatArray) -> None:
    """Raise Refusal where rows (n, d) are none that the algorithm could use once they are prepared."""
    if leaves_gaps(params):
        _check_known(X)
    if by_direction(params):
        _check_directions(X)


def _check_known(X: FloatArray) -> None:
    if np.isnan(X).all(axis=1).any():
        raise Refusal("has rows without a known cell; leave them out at the site")


def _check_directions(X: FloatArray) -> None:
    if without_direction(X).any():
        raise Refusal(
            f"has rows of zeros only, which have no direction; leave them out at the site, or take metric={EUCLIDEAN}"
        )


@dataclass(frozen=True)
class Gaps(Stage):
    """Fills missing cells with the means of their columns, or leaves them open (`missing`).

    Open gaps are completed in each step for the centroids that it is about (`flareclust.core.missing.gaps`), so that messages are
    those of complete rows. At a site with a policy groups show no gaps, but for columns that no group shows.
    """

    open: bool

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with rows without gaps, or with what these are filled with at first."""
        rows, arrays = exchange.rows, exchange.task.arrays
        if self.open and not exchange.labelling:
            _check_known(rows.X)
        if FILL not in arrays:
            if np.isnan(rows.X.min()):
                raise Refusal("was not sent the means that its missing cells are filled with")
            return exchange
        sent = {FILL: arrays[FILL]}
        _FILLING.check(sent, {"d": rows.X.shape[1]})
        rows = replace(rows, gaps=sent[FILL]) if self.open else rows.of(filled(sent, rows.X))
        return replace(exchange.without(FILL), rows=replace(rows, fill=sent[FILL]))


class Scale(Stage):
    """Scales the columns as a task says (`scale`)."""

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with scaled rows."""
        sent = {name: exchange.task.arrays[name] for name in SCALING.fields if name in exchange.task.arrays}
        if not sent:
            return exchange
        rows = exchange.rows
        if "deviation" in sent:
            SCALING.check(sent, {"d": exchange.table.X.shape[1]})
            rows = rows.scaled(sent["mean"], sent["deviation"])
        return replace(exchange.without(*sent), rows=rows)


class Directions(Stage):
    """Brings rows to length 1, so that the nearest centroid is that of the largest cosine (`metric=cosine`).

    What sites send are means of rows of length 1, so that they add up; the server brings them to length 1. Source: Dhillon and
    Modha (2001), Concept decompositions for large sparse text data using clustering, section 3.
    """

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with rows of length 1; refuse rows of zeros, unless they only get labels."""
        if not exchange.labelling:
            _check_directions(exchange.rows.X)
        rows = replace(exchange.rows.of(of_length_one(exchange.rows.X)), directions=True)
        return replace(exchange, rows=rows)


@dataclass(frozen=True)
class Trim(Stage):
    """Has each step leave out the share of the rows that lies farthest from its centroids (`trim_rows`)."""

    share: float

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with rows that steps trim."""
        return replace(exchange, rows=replace(exchange.rows, trim=self.share))


def arrays_for_late_rows(params: Params, arrays: Message) -> Message:
    """Return the arrays of a finished result by which late rows are prepared, and its centroids (k, d) in the units of these."""
    if not isinstance(params, ScaledParams | ColumnsParams):
        return {}
    names = CARRIED if isinstance(params, ColumnsParams) else (*SCALING.fields, FILL)
    carried = {name: arrays[name] for name in names if name in arrays}
    unscaled = isinstance(params, ColumnsParams) and params.scale == "none"  # filled with means, and no more
    if unscaled or "deviation" not in carried:
        return carried
    return {**carried, "centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}


#: The stages in which rows are prepared, in their order, with the settings that can ask for each.
STAGES: Mapping[type[Stage], type[Params]] = MappingProxyType(
    {
        OwnColumns: ColumnsParams,
        Gaps: GapsParams,
        Modes: ModesParams,
        Scale: ScaledParams,
        Directions: MetricParams,
        Trim: TrimParams,
    }
)
