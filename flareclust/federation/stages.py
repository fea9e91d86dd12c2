"""The stages that every exchange goes through: rows that can be computed with, centroids that fit them, a reply of the schema."""

import math
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, Message
from flareclust._foundation.validation import size_problem
from flareclust.core.arrays import extent
from flareclust.evaluation.scores import check_candidates
from flareclust.protocol.schema import Schema
from flareclust.protocol.stages import SiteExchange, Stage
from flareclust.protocol.steps import COUNTED
from flareclust.protocol.task import StepName

_CENTROIDS = Schema(centroids="k d")


@dataclass(frozen=True)
class RowStage(Stage):
    """Checks the rows, and that nobody changes their file meanwhile.

    Attributes:
        private: whether the number and size of the rows are private, and so never cause a refusal.
        table_schema: fingerprint of the schema by which the rows must have been read; None for any.
        gaps: whether the job takes rows with missing cells; None for an algorithm that never does.
        policed: whether the site has a policy.
        drops: whether the algorithm sees the rows without missing cells only.
        open_gaps: whether missing cells stay open.
    """

    private: bool
    table_schema: str | None = None
    gaps: bool | None = None
    policed: bool = False
    drops: bool = False
    open_gaps: bool = False

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Refuse rows that are not numbers, or too large or too small to be squared, or were read by another schema."""
        if self.table_schema is not None and exchange.table.schema != self.table_schema:
            own = f"by the schema {exchange.table.schema}" if exchange.table.schema else "without a schema"
            raise Refusal(
                f"reads its rows {own}, and the job was made for another; take the same file at all sites (schema in local/flareclust.yaml)"
            )
        if exchange.table.repeats > 1 and (self.policed or self.private or exchange.rows.context.secure):
            # These protect rows, and cannot know which of them are one.
            raise Refusal(
                "has rows with weights (a column of type weight), which do not go with policies, secure sums and differential "
                "privacy; make the column type ignore"
            )
        if exchange.table.repeats > 1 and self.open_gaps:  # floors of cells would be of copies
            raise Refusal("has rows with weights (a column of type weight), which do not go with missing=partial")
        exchange.rows.check_unchanged(exchange.table)
        _check_rows(exchange.table.X, private=self.private, gaps=self.gaps)
        if self.private:
            exchange = replace(exchange, rows=replace(exchange.rows, private=True))
        return self._without_gaps(exchange) if self.drops else exchange

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Check the rows' file once more: the site's own, whatever the algorithm saw of it."""
        exchange.rows.check_unchanged(exchange.table)
        return reply

    def _without_gaps(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with the rows that have no missing cell; with all of them where they are only labelled."""
        if self.policed:  # groups of other rows than those of other jobs would disclose the rows between
            raise Refusal(
                "makes groups of all of its rows (its policy), so a job can leave none out; submit with missing=mean, or say "
                "missing: drop-rows in the schema"
            )
        table = exchange.table
        complete = ~np.isnan(table.X).any(axis=1)
        if complete.all() or exchange.task.step == StepName.PLACE:
            return exchange
        if not complete.any():
            raise Refusal(
                "has no row without a missing cell (missing=drop-rows); leave out the columns that are mostly empty, or set missing=mean"
            )
        outcomes = None if table.outcomes is None else table.outcomes[complete]
        complete_rows = replace(table, X=table.X[complete], ids=None, stamp=None, outcomes=outcomes)
        return replace(exchange, rows=replace(exchange.rows, table=complete_rows))


@dataclass(frozen=True)
class CentroidStage(Stage):
    """Checks that the centroids of a task fit the rows that the algorithm sees.

    Attributes:
        most: so many centroids a solution may have.
        beside: names of arrays that have as many centroids as `centroids`.
        required: whether a task about final clusters must have them.
    """

    most: int
    beside: tuple[str, ...] = ()
    required: bool = False

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Raise BadMessage or Refusal unless centroids fit."""
        arrays, d = exchange.task.arrays, exchange.rows.d
        if "candidates" in arrays:
            check_candidates(arrays)
            check_centroids(arrays["candidates"], d, len(arrays["candidate"]))
        if "centroids" in arrays or (self.required and exchange.task.step in (StepName.ASSESS, StepName.PLACE)):
            check_centroids(arrays.get("centroids"), d, self.most, unknown=bool(exchange.rows.distance))
        for name in self.beside:
            if name in arrays:
                check_centroids(arrays[name], d, len(arrays["centroids"]))
        return exchange


def check_centroids(centroids: object, d: int, maximum: int, *, unknown: bool = False) -> None:
    """Raise BadMessage or Refusal unless these are at most `maximum` centroids of d columns; `unknown` entries may be NaN."""
    if unknown:
        if not isinstance(centroids, np.ndarray) or centroids.dtype != np.float64:
            raise BadMessage("centroids: expected an array of float64")
        centroids = np.nan_to_num(centroids, posinf=np.inf, neginf=-np.inf)
    sizes = _CENTROIDS.check({"centroids": centroids})  # type: ignore[dict-item]
    if sizes["k"] > maximum:
        raise Refusal(f"was sent {sizes['k']} centroids where the job has at most {maximum}")
    if sizes["d"] != d:
        raise Refusal(f"has rows of {d} columns where the federation has {sizes['d']}")


class SchemaStage(Stage):
    """Lets the arrays of the step's schema leave, and no others."""

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the arrays as the schema has them; raise BadMessage where they do not fit."""
        fields = exchange.step.schema.fields
        if exchange.step.schema is COUNTED:
            reply = {name: reply[name] for name in fields}
        if extra := set(reply) - set(fields):  # a faulty algorithm could have named them by a value
            raise BadMessage(f"made {len(extra)} arrays more than those that its schema has: {sorted(fields)}")
        return exchange.step.schema.pack(reply)


def _check_rows(data: FloatArray, *, private: bool, gaps: bool | None = None) -> None:
    """Raise Refusal unless these are rows (n, d) of finite numbers, or with `gaps` also of NaN, that can be computed with."""
    if len(data) == 0:
        raise Refusal("has no rows")
    minimum, largest = extent(data)  # without a copy of the rows
    if gaps and math.isnan(minimum):
        minimum, largest = np.fmin.reduce(data, axis=None), np.fmax.reduce(data, axis=None)
        if np.isnan(minimum):
            raise Refusal("has no known cell")
    if not (math.isfinite(minimum) and math.isfinite(largest)):
        advice = ", or set missing=mean" if gaps is False and np.isnan(data.min()) else ""
        raise Refusal(f"has rows with NaN or infinite values; remove or impute them at the site{advice}")
    if not private and (problem := size_problem(max(-minimum, largest))):
        raise Refusal(problem)
