"""Rows in parts that lie elsewhere, as on the workers of a cluster: what is computed over all of them.

Functions go to the parts; what they return is small, or is kept beside its part. Results of parts are added up in the order
of the parts, so that a result does not depend on who computes them, or when.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray, never_abort
from flareclust.core.chunks import variances


class View(NamedTuple):
    """How rows are scaled: what is taken away from the columns (d,), and then divides them (d,)."""

    mean: FloatArray
    deviation: FloatArray


class _Extent(NamedTuple):
    """Number of rows, and least, largest and mean value of each column (d,)."""

    rows: int
    least: FloatArray
    largest: FloatArray
    mean: FloatArray


class Parts(ABC):
    """Rows (n, d) in parts, none of them empty, in their order.

    Attributes:
        extents: of each part.
        view: how functions see the rows; None for as they are.
        aborted: asked while results are waited for.
    """

    def __init__(self, extents: Sequence[_Extent]) -> None:
        self.extents, self.view = tuple(extents), None
        self.aborted: AbortCheck = never_abort

    view: View | None

    @abstractmethod
    def keep(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Compute function(rows, *own of the part, *shared) of each part, and leave the results where the parts are.

        `own` has lists with a value for each part: a small one, or one that `keep` returned. Functions are those of a module,
        and change none of their arguments: a result that is lost is computed again.
        """

    @abstractmethod
    def in_turn(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> Iterator[Any]:
        """Give the results of `keep` themselves, part by part; Aborted where `aborted` says so."""

    def each(self, function: Callable[..., Any], *own: Sequence[Any], shared: tuple[Any, ...] = ()) -> list[Any]:
        """Return all results that `in_turn` gives."""
        return list(self.in_turn(function, *own, shared=shared))

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise Refusal where the rows have changed since they were read."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(extent.rows for extent in self.extents)

    def seen(self, view: View | None) -> "Parts":
        """Return the same rows as a view shows them."""
        other = copy(self)
        other.view = view
        return other

    def until(self, aborted: AbortCheck) -> "Parts":
        """Return the same rows, for computations that `aborted` stops."""
        other = copy(self)
        other.aborted = aborted
        return other

    @property
    def extent(self) -> _Extent:
        """Return the extent of all rows, as the view shows them."""
        n = len(self)
        mean = sum((extent.rows / n * extent.mean for extent in self.extents), start=np.zeros(self.d))
        least = np.min([extent.least for extent in self.extents], axis=0)
        largest = np.max([extent.largest for extent in self.extents], axis=0)
        if self.view is None:
            return _Extent(n, least, largest, mean)
        # A view keeps the order of values, so the least one stays the least.
        least, largest, mean = ((value - self.view.mean) / self.view.deviation for value in (least, largest, mean))
        return _Extent(n, least, largest, mean)

    @property
    def d(self) -> int:
        """Return the number of columns."""
        return len(self.extents[0].mean)

    def variance(self) -> FloatArray:
        """Return the variances of the columns (d,)."""
        extent = self.extent
        found = self.each(_moments, shared=(extent.mean,))
        deviation = sum((rows * offset for rows, offset, _ in found), start=np.zeros(self.d)) / extent.rows
        squares = sum((rows * square for rows, _, square in found), start=np.zeros(self.d)) / extent.rows
        return np.asarray(np.maximum(squares - deviation**2, 0.0))

    def row(self, number: int) -> FloatArray:
        """Return one row (d,)."""
        ends = np.cumsum([extent.rows for extent in self.extents])
        at = int(np.searchsorted(ends, number, side="right"))
        local = number - (int(ends[at - 1]) if at else 0)
        places = [local if part == at else -1 for part in range(len(ends))]
        return next(row for row in self.each(_row, places) if row is not None)


def extent_of(X: FloatArray) -> _Extent:
    """Return the extent of a part's rows (n, d)."""
    return _Extent(len(X), X.min(axis=0), X.max(axis=0), X.mean(axis=0))


def computed(X: FloatArray, view: View | None, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function computes of the rows (n, d) of a part as the view shows them; this is what runs beside the part.

    Arrays that came from elsewhere may be read-only, for which kernels would be compiled again.
    """
    rows = X if view is None else (X - view.mean) / view.deviation
    return function(*(_writeable(value) for value in (rows, *arguments)))


def _writeable(value: Any) -> Any:
    return np.require(value, requirements=["C", "A", "W"]) if isinstance(value, np.ndarray) else value


def _moments(X: FloatArray, origin: FloatArray) -> tuple[int, FloatArray, FloatArray]:
    """Return number, mean offset (d,) from a point, and mean squared offset (d,) of rows; the point is amid all of them."""
    offset = X.mean(axis=0) - origin
    return len(X), offset, variances(X) + offset**2


def _row(X: FloatArray, place: int) -> FloatArray | None:
    return None if place < 0 else X[place].copy()
