"""The cells of a table: real numbers, all of them finite; and dates, as numbers of days.

The rows are private, so no message here shows a value: it names the place, the column and the row number, counted from 1.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from math import floor
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray
from flareclust._foundation.validation import is_number
from flareclust.core.chunks import all_finite
from flareclust.data import file_formats as formats
from flareclust.data.file_formats import Names

#: The first of the days that dates are counted in, and the unit of a date's feature.
_START, DAYS = date(1970, 1, 1), "days since 1970-01-01"

#: Units of one kind, and the factors between them beside powers of ten; those of laboratory values have a slash.
_KINDS: Sequence[tuple[frozenset[str], tuple[float, ...]]] = (
    (frozenset(("kg", "g", "mg", "lb", "lbs", "pounds")), (1 / 0.45359237,)),
    (frozenset(("mm", "cm", "m", "in", "inch", "inches")), (25.4, 2.54)),
    (frozenset(("years", "days")), (365.25,)),
    (frozenset(("c", "f", "°c", "°f", "celsius", "fahrenheit")), (1.8,)),
)

#: Factors between units of laboratory values, and patterns in names of columns with them: glucose, cholesterol, creatinine.
_SUBSTANCES: Mapping[float, tuple[str, ...]] = {
    18.0: ("glu", "glc", "zucker"),
    38.67: ("chol", "ldl", "hdl"),
    88.4: ("(?<!pan)(?<!in)(?<!de)[ck]rea",),  # no pancreas, increase or decrease
}
LABORATORY = tuple(_SUBSTANCES)

#: What stands for a missing cell in tables of numbers: 7, 8 or 9 several times, with a sign, a point or neither, and -1 and -9.
_CODES = np.array(
    [
        *(
            sign * float(digit * times) / part
            for sign in (1, -1)
            for digit in "789"
            for times in range(2, 8)
            for part in (1, 10)
        ),
        *(-1.0, -9.0),
    ]
)

#: Beside fewer other cells nothing is said of such a code.
_BESIDE = 10

#: Columns of such a name have ages in years, and nobody was older than this.
_AGE_NAMES, OLDEST = re.compile(r"(?i)(^|[^a-z])(age|alter)(?![a-z])(?!.*(month|day|week|monat|tag|woche))"), 120

#: How the features of columns with transform: log, and their units, are written: log1p(crp), in log1p(mg/l).
_LOG = re.compile(r"log1p\((.*)\)", re.DOTALL)

#: How the features of dates as ages are written: age(born, 2024-12-31), in the unit years.
_AGE = re.compile(r"age\((.*), (\d{4}-\d\d-\d\d)\)", re.DOTALL)
YEARS = "years"

#: How the unit of an ordered column is written: its values, from the least to the largest.
_ORDERED, _THEN = "ordered: ", " < "

#: A column is strongly skewed where its skewness is more; its logarithm is better with at most this part of it. Of so many cells.
_SKEWED, _LESS, _SEVERAL = 3.0, 0.5, 20

#: Without this share of the cells, the largest ones, its skewness is still more: a few outliers make no column skewed.
_LARGEST, _STILL_SKEWED = 0.02, 1.5


def check_rows(X: ArrayLike, *, where: str, allow_empty: bool = False, gaps: bool = False) -> FloatArray:
    """Return X as (n, d) float64, C-contiguous and finite, or NaN with `gaps`; the same array where it already is that.

    UserError, with `where` in front, where it is not 2-D, has no columns or rows, or other values than these and booleans.
    """
    rows = as_numbers(X, None, where)
    if len(rows) == 0 and not allow_empty:
        raise UserError(f"{where}: there are no rows (shape {rows.shape}); expected at least one")
    check = FiniteCheck(None, where, gaps=gaps)
    check.look(rows)
    check.refuse()
    return rows


def as_numbers(X: ArrayLike, columns: Names | None, where: str, *, after: int = 0) -> FloatArray:
    """Return a table, or a part that comes `after` so many rows, as (n, d) float64; raise UserError if it is none."""
    rows = _as_array(X, where)
    if rows.ndim != 2:
        advice = "; reshape(-1, 1) makes one column of a list of numbers" if rows.ndim == 1 else ""
        raise UserError(f"{where}: expected a 2-D array (n, d), got {rows.ndim}-D of shape {rows.shape}{advice}")
    if rows.shape[1] == 0:
        raise UserError(f"{where}: there are no columns (shape {rows.shape}); expected at least one")
    if rows.dtype.kind not in "biuf":
        raise UserError(f"{where}: {_why_not_real(rows, columns, after)}")
    return np.ascontiguousarray(rows, dtype=np.float64)


def _as_array(X: ArrayLike, where: str) -> Array:
    if isinstance(X, np.ma.MaskedArray):  # a masked cell is a missing one; asarray would bring back what lies under it
        return np.asarray(np.ma.filled(X.astype(np.float64), np.nan))
    try:
        return np.asarray(X)
    except ValueError:
        raise UserError(f"{where}: the rows differ in length; expected n rows of d numbers each") from None


def _why_not_real(rows: Array, columns: Names | None, after: int) -> str:
    if rows.dtype.kind != "O":
        return f"expected real numbers, got {rows.dtype}; encode them as numbers or leave them out"
    for j in range(rows.shape[1]):
        for i, cell in enumerate(rows[:, j]):
            if not isinstance(cell, Real):
                column = formats.called(columns, j)
                return f"{column} is not numeric, first in row {after + i + 1}; leave it out, or {formats.TEXT_ADVICE}"
    return "expected real numbers, got objects; convert them with X.astype(float)"


class FiniteCheck:
    """Looks for cells of a table that are no numbers, part by part, and reports all of them at once; with `gaps` not for missing ones."""

    def __init__(self, columns: Names | None, where: str, *, gaps: bool = False) -> None:
        self._columns, self._where, self._gaps = columns, where, gaps
        self._rows = self._count = 0
        self._first = (0, 0)
        self._some: BoolArray | None = None  # which columns have any number

    def look(self, X: FloatArray) -> None:
        """Look at the next rows (c, d)."""
        bad = None if all_finite(X) else np.isinf(X) if self._gaps else ~np.isfinite(X)
        some: BoolArray = np.full(X.shape[1], len(X) > 0) if bad is None else np.asarray(~bad.all(axis=0))
        if bad is not None and (count := int(bad.sum())):
            if not self._count:
                i, j = divmod(int(bad.argmax()), X.shape[1])
                self._first = (self._rows + i, j)
            self._count += count
        self._rows += len(X)
        self._some = some if self._some is None else np.logical_or(self._some, some)

    def refuse(self) -> None:
        """Raise UserError where there was such a cell."""
        if not self._count or self._some is None:
            return
        i, j = self._first
        cells = "cell is" if self._count == 1 else "cells are"
        without = np.flatnonzero(~self._some)[:12].tolist() if self._rows > 1 else []
        empty = [formats.called(self._columns, j) for j in without]
        advice = f"{', '.join(empty)} without any value: {formats.EMPTY_ADVICE}" if empty else formats.GAPS_ADVICE
        raise UserError(
            f"{self._where}: {self._count} {cells} missing, NaN or infinite, first in row {i + 1}, "
            f"{formats.called(self._columns, j)}; {advice}"
        )


def takes_numbers(values: Sequence[str]) -> bool:
    """Return whether numbers in a column of words can only be features: its values do not look like numbers, or like their places."""
    return not any(is_number(value) and value != str(place) for place, value in enumerate(values))


def goes_with(factor: float, unit: str) -> bool:
    """Return whether a factor may lead from another unit to that of a column; "" or a unit that is not known goes with all."""
    unit, larger = unit.strip().casefold(), max(factor, 1 / factor)
    of_kind = next((known for units, known in _KINDS if unit in units), LABORATORY if "/" in unit else None)
    power = np.log10(larger)
    return of_kind is None or bool(np.isclose([power, *of_kind], [round(power), *[larger] * len(of_kind)]).any())


def of_substance(factor: float, name: str) -> bool:
    """Return whether a factor between units may be that of a column: one of a laboratory value is of columns named like it."""
    parts = _SUBSTANCES.get(max(factor, 1 / factor))
    return parts is None or any(re.search(part, name.casefold()) for part in parts)


def code_cells(values: FloatArray) -> BoolArray:
    """Return which cells (n,) of a column, NaN where one is missing, look like a code for missing ones: such numbers, and apart.

    They lie farther from all others than these from one another, or are the only ones below 0.
    """
    codes = np.zeros(len(values), dtype=np.bool_)
    if not len(values) or not np.isin((np.fmin.reduce(values), np.fmax.reduce(values)), _CODES).any():
        return codes  # such cells are the least or the largest
    codes = np.isin(values, _CODES)
    others = values[~codes & ~np.isnan(values)]
    if len(others) < max(_BESIDE, int(codes.sum())):
        return np.zeros(len(values), dtype=np.bool_)
    low, high = float(others.min()), float(others.max())
    below = (values < 0) & ((low > 0) | ((low == 0) & (values < -1)))
    return np.asarray(codes & (below | (values < 2 * low - high) | (values > 2 * high - low)))


def beyond_ages(name: str, values: FloatArray) -> BoolArray:
    """Return which cells (n,) of a column are above `OLDEST`, where it is called like ages in years (age, Alter, age_years) and most are not."""
    old = np.asarray(values > OLDEST)
    return old & bool(_AGE_NAMES.search(name) and 2 * old.sum() < len(old))


def odd_cells(name: str, values: FloatArray) -> tuple[BoolArray, str]:
    """Return which cells (n,) of a column need a look, and where they lie: `beyond_ages`, and where none is, `code_cells`."""
    old = beyond_ages(name, values)
    return (old, f"above {OLDEST} years") if old.any() else (code_cells(values), "far from all others")


def logged(name: str) -> str:
    """Return how the feature of a column with transform: log, or its unit, is written."""
    return f"log1p({name})"


def without_log(name: str) -> str | None:
    """Return the column of a feature written as `logged` does, or its unit; None for another."""
    found = _LOG.fullmatch(name)
    return None if found is None else found[1]


def ordered(values: Sequence[str]) -> str:
    """Return how the unit of a column of ordered values, from the least to the largest, is written: ordered: I < II < III."""
    return _ORDERED + _THEN.join(value.replace(_THEN, _THEN.strip()) for value in values)


def levels_in(unit: str) -> tuple[str, ...]:
    """Return the values of a unit written as `ordered` does; none for another."""
    return tuple(unit.removeprefix(_ORDERED).split(_THEN)) if unit.startswith(_ORDERED) else ()


def nearest_level(levels: Sequence[str], value: float) -> int:
    """Return the place of the ordered value that is nearest to a number, such as a mean of places."""
    return min(max(floor(value + 0.5), 0), len(levels) - 1)


def aged(name: str, reference: str) -> str:
    """Return how the feature of a column of dates as ages at a reference date is written."""
    return f"age({name}, {reference})"


def without_age(name: str) -> tuple[str, str] | None:
    """Return the column and the reference date of a feature written as `aged` does; None for another."""
    found = _AGE.fullmatch(name)
    return None if found is None else (found[1], found[2])


def unlogged(name: str, values: FloatArray) -> tuple[str, FloatArray]:
    """Return the column of a feature written as `logged` does, and its numbers as tables have them, to 6 decimals; others as they are."""
    if (column := without_log(name)) is None:
        return name, values
    numbers: FloatArray = np.expm1(values)
    return column, numbers.round(6)


def log_helps(numbers: FloatArray) -> bool:
    """Return whether a column (n,) of numbers of 0 and more is strongly skewed, and its log1p is much less; NaN is a missing cell."""
    known = numbers[~np.isnan(numbers)]
    if len(known) < _SEVERAL or known.min() < 0 or np.ptp(known) == 0:
        return False
    others = np.sort(known)[: -int(np.ceil(_LARGEST * len(known)))]
    plain, log, still = map(_skewness, (known, np.log1p(known), others))
    return plain > _SKEWED and still > _STILL_SKEWED and abs(log) <= _LESS * plain


def _skewness(x: FloatArray) -> float:
    """Return the skewness of numbers (n,); 0 where they are all the same."""
    return 0.0 if np.ptp(x) == 0 else float(np.mean(((x - x.mean()) / x.std()) ** 3))


def iso_date(days: float) -> str:
    """Return the ISO date of days since 1970-01-01, to the nearest day; the number of days where there is no such date."""
    try:
        return (_START + timedelta(days=round(days))).isoformat()
    except (OverflowError, ValueError):
        return f"{days:.4g}"
