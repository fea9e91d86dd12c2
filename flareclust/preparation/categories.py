"""Columns of 0 and 1 for the values of categories: scaled together, or compared by Huang's distance (k-modes, k-prototypes)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import FloatArray
from flareclust.core import categories as category_columns
from flareclust.preparation.columns import SCALING
from flareclust.protocol.columns import Columns
from flareclust.protocol.stages import SiteExchange, Stage

#: Rounding of a share that was scaled and scaled back.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Modes(Stage):
    """Says what 1 is in the units of the distance, where all columns are of categories: then a repeated row is a cell of a table
    of counts, and may be sent.

    Attributes:
        groups: the columns of each category.
    """

    groups: list[list[int]]

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with what 1 is; before rows are scaled."""
        rows, arrays = exchange.rows, exchange.task.arrays
        columns, d = [column for group in self.groups for column in group], rows.table.shape[1]
        ones = np.ones(d)
        if sent := {name: arrays[name] for name in SCALING.fields if name in arrays}:
            SCALING.check(sent, {"d": d})
            if arrays["mean"][columns].any():
                raise BadMessage("mean: expected 0 for the columns of categories, whose values are 0 and 1")
            ones = 1.0 / arrays["deviation"]
        # Whatever a job says of its columns: a repeated row is sent only where all rows are of 0 and 1.
        one_hot = set(columns) == set(range(d)) and (
            rows.context.grouped or category_columns.are_one_hot(rows.X, self.groups)
        )
        return exchange.under(ones=ones) if one_hot else exchange


# The server's side.


def scaled_together(
    columns: Columns, groups: Sequence[Sequence[int]], mean: FloatArray, deviation: FloatArray
) -> Columns:
    """Return columns with those of each category scaled together; as they are where they are not scaled.

    Their variances add up to `category_variance` times `number_variance`, however many values the category has.

    Args:
        columns: with a scaling of each by itself.
        groups: the columns of each category.
        mean: of the columns over all rows (D,).
        deviation: of the columns over all rows (D,), 0 for a constant column.
    """
    if columns.mean is None or columns.deviation is None or not groups:
        return columns
    together, divisor = category_columns.in_categories(groups, len(mean)), columns.deviation.copy()
    of_number = category_columns.number_variance(deviation[~together], divisor[~together])
    for group in map(list, groups):
        if group:
            divisor[group] = category_columns.category_divisor(mean[group], deviation[group], of_number)
    return replace(columns, mean=np.where(together, mean, columns.mean), deviation=divisor)


def weighted(
    columns: Columns, groups: Sequence[Sequence[int]], gamma: float | None, average: FloatArray, deviation: FloatArray
) -> Columns:
    """Return columns with those of categories divided by their weight in Huang's distance, gamma.

    Args:
        columns: with or without a scaling.
        groups: the columns of each category.
        gamma: what a category that differs adds to the squared distance; None for `usual_gamma`.
        average: of the columns over all rows (D,).
        deviation: of the columns over all rows (D,), 0 for a constant column.
    """
    categories = category_columns.in_categories(groups, len(deviation))
    mean = np.zeros_like(deviation) if columns.mean is None else columns.mean
    divisor = np.ones_like(deviation) if columns.deviation is None else columns.deviation.copy()
    shares = [average[list(group)] for group in groups]
    gamma = gamma or category_columns.usual_gamma((deviation / divisor)[~categories], shares)
    divisor[categories] = category_columns.divisor(gamma)
    return replace(columns, mean=np.where(categories, 0.0, mean), deviation=divisor, gamma=gamma)


def exact_modes(centers: FloatArray, groups: Sequence[Sequence[int]]) -> FloatArray:
    """Return centers (..., D) whose modes are exactly 0 and 1, as they were before they were scaled and scaled back."""
    exact = centers.copy()
    for group in map(list, groups):
        whole = np.rint(exact[..., group])
        exact[..., group] = np.where(np.abs(exact[..., group] - whole) < _ROUNDING, whole, exact[..., group])
    return exact
