"""Columns of 0 and 1 for the values of categories, whose most frequent ones an algorithm takes (k-modes, k-prototypes)."""

from dataclasses import dataclass

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust.core import categories as category_columns
from flareclust.protocol.stages import SiteExchange, Stage


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
        columns, d = [column for group in self.groups for column in group], rows.table.X.shape[1]
        ones = np.ones(d)
        if "deviation" in arrays:
            if arrays["mean"][columns].any():
                raise BadMessage("mean: expected 0 for the columns of categories, whose values are 0 and 1")
            ones = 1.0 / arrays["deviation"]
        # Whatever a job says of its columns: a repeated row is sent only where all rows are of 0 and 1.
        one_hot = set(columns) == set(range(d)) and (
            rows.context.grouped or category_columns.are_one_hot(rows.X, self.groups)
        )
        return exchange.under(ones=ones) if one_hot else exchange
