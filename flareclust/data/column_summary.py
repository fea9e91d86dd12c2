"""What an operator wants to see of the columns of a table, however large: extremes, means, how many values differ."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import pieces, variances

#: Different values of a column are counted up to about so many.
MOST_DIFFERENT = 10_000


@dataclass(frozen=True)
class Column:
    """One column of a site's rows.

    Attributes:
        name: what it is called.
        different: how many different values it has.
        minimum, mean, largest: of its values.
        deviation: their standard deviation, 0 where all are equal.
        more: whether there are more different values than were counted.
        numbers_rows: whether all its values are integers that differ, as the number of a patient; with `more`, those
            that were counted.
    """

    name: str
    different: int
    minimum: float
    mean: float
    largest: float
    deviation: float
    more: bool
    numbers_rows: bool


class _Different:
    """Counts the different values of one column, piece by piece."""

    def __init__(self) -> None:
        self._seen: FloatArray = np.empty(0)
        self._rows = 0
        self.whole, self.all_differ, self.more = True, True, False

    def look(self, x: FloatArray) -> None:
        self.whole = self.whole and bool((x == np.floor(x)).all())
        self._rows += len(x)
        if self.more:
            return
        if len(self._seen) > MOST_DIFFERENT:
            self.more = not bool(np.isin(x, self._seen).all())
            return
        self._seen = np.union1d(self._seen, x)
        self.all_differ = self.all_differ and len(self._seen) == self._rows

    @property
    def count(self) -> int:
        return len(self._seen)


def columns_of(X: FloatArray, names: Sequence[str]) -> list[Column]:
    """Return a summary of each column of rows (n, d), which may be a map of a file; of the known cells where some are NaN."""
    if np.isnan(X.min()):
        return [_of_known(x[~np.isnan(x)], name) for x, name in zip(X.T, names, strict=True)]
    different = [_Different() for _ in names]
    for part in pieces(*X.shape):
        for counter, x in zip(different, X[part].T, strict=True):
            counter.look(x)
    minimum, mean, largest = X.min(axis=0), X.mean(axis=0), X.max(axis=0)
    deviation = np.where(largest > minimum, np.sqrt(variances(X)), 0.0)
    return [
        Column(
            name, c.count, float(minimum[j]), float(mean[j]), float(largest[j]), float(deviation[j]), c.more,
            c.whole and c.all_differ,
        )
        for j, (name, c) in enumerate(zip(names, different, strict=True))
    ]  # fmt: skip


def _of_known(cells: FloatArray, name: str) -> Column:
    if len(cells):
        return columns_of(cells[:, None], [name])[0]
    return Column(name, 0, 0.0, 0.0, 0.0, 0.0, more=False, numbers_rows=False)
