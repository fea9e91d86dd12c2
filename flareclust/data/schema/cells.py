"""From the cells of one column to its features, by the schema and the site's mapping; faults are counted, not raised.

The cells are private: what is said of a fault holds the column's name, a number of cells and the first row, never a value.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, NamedTuple
from unicodedata import normalize

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import LARGEST_VALUE
from flareclust.data.arrow_cells import NO_TEXT
from flareclust.data.cells import LABORATORY, YEARS, goes_with, of_substance
from flareclust.data.schema.columns import (
    LEFT_TO_JOBS,
    MOST_WEIGHT,
    ColumnSchema,
    Missing,
    TableSchema,
    days_of,
    features_of,
)
from flareclust.data.schema.mapping import ISO_DATE, ColumnMapping, TableMapping

#: A number with a point, and one with a comma.
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_COMMA = _NUMBER.replace(r"\.", ",")

#: A number with either mark, and a unit behind it.
WITH_UNIT = r"^(?P<number>[+-]?[0-9.,]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[^\s0-9.,+-].*)$"

#: Factors between units that sites mix up: powers of ten, inches, pounds, degrees Fahrenheit, days and years, laboratory values.
_UNIT_FACTORS = (
    *(10.0**power for power in (-6, -3, -2, -1, 1, 2, 3, 6)),
    *(25.4, 2.54, 1 / 25.4, 1 / 2.54, 0.45359237, 1 / 0.45359237, 5 / 9, 1.8, 365.25, 1 / 365.25),
    *(factor**power for factor in LABORATORY for power in (-1, 1)),
)

#: Of so many factors that serve as well as each other, those nearest to 1 are named.
_NAMED = 3

#: Another unit is named where at least so many cells are implausible, and it leaves at most this share of them.
_ENOUGH, _FEWER = 3, 0.25

#: Up to this share of a column's cells, those without a value of its type may be missing ones in a spelling of their own.
_FEW = 0.2


#: Days of a year, of which every fourth has one more.
_YEAR = 365.25

#: What is wrong with faulty cells, in the words of a message.
_FAULTS = {
    "number": "no number",
    "negative": "below 0",
    "early": "below 0, where times begin",
    "event": "neither 0 nor 1",
    "large": f"beyond {LARGEST_VALUE:g}, where squares cannot be added up",
    "whole": "no integer",
    "date": "no date",
    "value": "none of the schema's values",
}


class OddCell(NamedTuple):
    """A cell that does not fit: for the eyes of those who own the rows, on their own terminal, and for nobody else.

    Attributes:
        column: its name in the schema.
        row: counted from 1, without the header, over all files.
        value: as it is in the file.
        why: what is wrong, as messages say it.
    """

    column: str
    row: int
    value: str
    why: str


class _Reader:
    """Remembers what was wrong with a column, which is read batch by batch.

    Attributes:
        most: how many faulty cells of a kind to keep in `odd`; none unless their owner asks.
    """

    def __init__(self, name: str, spellings: frozenset[str]) -> None:
        self.name, self._spellings = name, spellings
        self.most, self.odd, self._cells_here = 0, list[OddCell](), list[Any]()
        self._counts: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    @property
    def faulty(self) -> bool:
        """Return whether anything was wrong."""
        return bool(self._counts)

    def faults(self) -> list[str]:
        """Return what was wrong, a clause each."""
        return [
            f"{self.name}: {'1 cell is' if count == 1 else f'{count} cells are'} {self._said(kind)}, "
            f"first in row {self._first[kind]}{self._hint(kind)}"
            for kind, count in self._counts.items()
        ]

    def look_at(self, cells: Any) -> None:
        """Keep an Arrow array of cells at hand, of which the faulty ones are put into `odd`."""
        self._cells_here = cells.to_pylist() if self.most else []

    def _count(self, kind: str, where: BoolArray, before: int) -> None:
        if number := int(where.sum()):
            for j in np.flatnonzero(where)[: max(0, self.most - self._counts[kind])] if self._cells_here else ():
                cell = self._cells_here[j]
                self.odd.append(
                    OddCell(self.name, before + int(j) + 1, "" if cell is None else str(cell), self._said(kind))
                )
            self._counts[kind] += number
            self._first.setdefault(kind, before + int(where.argmax()) + 1)

    def _said(self, kind: str) -> str:
        return _FAULTS.get(kind, kind)

    def _hint(self, kind: str) -> str:
        """Return advice in brackets, where the faulty cells show what it may be."""
        del kind
        return ""


class TextReader(_Reader):
    """Reads a column of texts, such as ids; a missing cell is a fault."""

    def read(self, cells: Any, before: int) -> list[str]:
        """Return the texts of an Arrow array of cells, of which `before` have come already; empty where one is missing."""
        texts = texts_of(cells, self._spellings)
        found = texts.to_pylist()
        self._count("missing", ~_valid(texts), before)
        self._count("no text", np.array([text == NO_TEXT for text in found], dtype=bool), before)
        return ["" if text is None else text for text in found]


class ColumnReader(_Reader):
    """Reads one column that is a feature, by what the schema and the site's mapping say of it.

    `decimal` is the mark before a number's fraction, `spellings` are those of missing cells.
    """

    def __init__(
        self,
        name: str,
        column: ColumnSchema,
        own: ColumnMapping,
        missing: Missing,
        decimal: str,
        spellings: frozenset[str],
    ) -> None:
        super().__init__(name, spellings)
        self.column, self._own, self._missing, self._decimal = column, own, missing, decimal
        self._other_decimals, self._lower_case, self._cells, self._units = 0, 0, 0, Counter[str]()
        #: The spellings of missing cells that are numbers, for cells that are no text.
        self._codes = [
            float(one.replace(decimal, ".")) for one in spellings if re.match(_NUMBER, one.replace(decimal, "."))
        ]
        self._outside: Counter[float] = Counter()
        possible = [factor for factor in _UNIT_FACTORS if goes_with(factor, column.unit or "")]
        self._factors = [factor for factor in possible if of_substance(factor, name)]
        self.width = len(features_of(name, column))

    def read(self, cells: Any, before: int) -> tuple[FloatArray, BoolArray]:
        """Return the features (n, f) of an Arrow array of cells, of which `before` have come already, and which are missing (n,).

        What is missing or faulty is 0; NaN where a job fills it.
        """
        missing, faulty, found = self._of_type(cells)
        self._cells += len(missing)
        if self.column.type in ("number", "date"):
            implausible = self._implausible(found[:, 0], ~missing & ~faulty)
            self._count("range", implausible, before)
            if self.column.transform is not None or self.column.as_ is not None:
                self._count(
                    "negative" if self.column.as_ is None else "later", (found[:, 0] < 0) & ~implausible, before
                )
        if self.column.transform == "log":
            found = np.log1p(np.maximum(found, 0.0))
        self._count("value" if self.column.values else self.column.type, faulty, before)
        if self._missing == "refuse":
            self._count("missing", missing, before)
        if self._missing in LEFT_TO_JOBS:
            found[missing] = np.nan
        return found, missing

    def _of_type(self, cells: Any) -> tuple[BoolArray, BoolArray, FloatArray]:
        """Return which cells are missing (n,), which are faulty (n,), and the features (n, f)."""
        if self.column.type == "number":
            missing, faulty, numbers = self._numbers(cells)
            numbers = np.where(missing | faulty, 0.0, numbers)
        elif self.column.type == "date":
            missing, faulty, numbers = self._looked_up(cells, lambda text: day_of(text, self._own.date))
            if self.column.reference is not None:
                years = (days_of(self.column.reference) - numbers) / _YEAR
                numbers = np.where(missing | faulty, 0.0, years)
        else:
            places = {value: float(j) for j, value in enumerate(self.column.values or ())}
            missing, faulty, numbers = self._looked_up(cells, lambda text: places.get(self._own.values.get(text, text)))
        if self.column.type != "category":
            return missing, faulty, numbers[:, None]
        found, known = np.zeros((len(numbers), self.width)), ~missing & ~faulty
        found[np.flatnonzero(known), numbers[known].astype(np.int64)] = 1.0
        if self._missing == "as-category":
            found[missing, -1] = 1.0
        return missing, faulty, found

    def _numbers(self, cells: Any) -> tuple[BoolArray, BoolArray, FloatArray]:
        import pyarrow as pa
        from pyarrow import compute as pc

        if not _is_text(cells.type):
            of = pa.types
            if not any(is_of(cells.type) for is_of in (of.is_integer, of.is_floating, of.is_decimal)):
                return ~_valid(cells), _valid(cells), np.zeros(len(cells))
            numbers = cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            missing = np.isnan(numbers) | np.isin(numbers, self._codes)
            return missing, np.isinf(numbers) & ~missing, numbers * self._own.factor + self._own.offset
        form, other = (_NUMBER, _COMMA) if self._decimal == "." else (_COMMA, _NUMBER)
        texts = bare = texts_of(cells, self._spellings)
        good, factors = pc.match_substring_regex(texts, form), np.full(len(cells), np.nan)
        if pc.all(good).as_py() is False:
            texts, bare, factors = self._without_units(texts)
            good = pc.match_substring_regex(texts, form)
        good = pc.fill_null(good, False)
        plain = pc.replace_substring_regex(pc.if_else(good, texts, None), r"^\+", "")
        if self._decimal == ",":
            plain = pc.replace_substring(plain, ",", ".")
        others = pc.and_(pc.match_substring_regex(bare, other), pc.invert(pc.match_substring_regex(bare, form)))
        self._other_decimals += int(pc.sum(pc.fill_null(others, False)).as_py() or 0)
        numbers = plain.cast(pa.float64()).to_numpy(zero_copy_only=False)
        missing = ~_valid(texts) | np.isin(numbers, self._codes)
        faulty, own = ~missing & ~np.isfinite(numbers), numbers * self._own.factor + self._own.offset
        return missing, faulty, np.where(np.isnan(factors), own, numbers * factors)

    def _without_units(self, texts: Any) -> tuple[Any, Any, FloatArray]:
        """Return texts without the units of the mapping, without any unit, and the factors (n,) of the first; NaN without unit."""
        from pyarrow import compute as pc

        factors, parts = np.full(len(texts), np.nan), pc.extract_regex(texts, WITH_UNIT)
        number, units = pc.struct_field(parts, "number"), pc.utf8_normalize(pc.struct_field(parts, "unit"), "NFKC")
        bare = pc.coalesce(number, texts)
        for unit, factor in self._own.units.items():
            here = pc.fill_null(pc.equal(units, normalize("NFKC", unit)), False)
            texts, units = pc.if_else(here, number, texts), pc.if_else(here, None, units)
            factors[here.to_numpy(zero_copy_only=False)] = factor
        self._units.update(units.drop_null().to_pylist())
        return texts, bare, factors

    def _looked_up(self, cells: Any, value: Callable[[str], float | None]) -> tuple[BoolArray, BoolArray, FloatArray]:
        """Return as `_of_type` does what a function makes of each different text; None is a fault."""
        coded = texts_of(cells, self._spellings).dictionary_encode()
        texts = coded.dictionary.to_pylist()
        found = list(map(value, texts))
        known = np.array([np.nan if one is None else one for one in found] or [np.nan])
        codes, missing = coded.indices.to_numpy(zero_copy_only=False), ~_valid(coded)
        numbers = known[np.where(missing, 0, np.nan_to_num(codes)).astype(np.int64)]
        faulty = ~missing & np.isnan(numbers)
        if self.column.values is not None and faulty.any():
            folded = {value.casefold() for value in (*self.column.values, *self._own.values)}
            odd = [text for text, one in zip(texts, found, strict=True) if one is None]
            self._lower_case += sum(text.casefold() in folded for text in odd)
        return missing, faulty, np.where(missing | faulty, 0.0, numbers)

    def _implausible(self, numbers: FloatArray, known: BoolArray) -> BoolArray:
        low, high = self.column.bounds
        outside: BoolArray = known & ((numbers < low) | (numbers > high))
        if self.column.range is not None and self.column.type == "number":
            for factor in self._factors:
                scaled = numbers * factor
                self._outside[factor] += int((known & ((scaled < low) | (scaled > high))).sum())
        return outside

    def _said(self, kind: str) -> str:
        if kind == "later":
            return f"after the reference {self.column.reference}"
        if kind != "range":
            return super()._said(kind)
        unit = f" {self.column.unit}" if self.column.unit else f" {YEARS}" if self.column.as_ == "age" else ""
        low, high = (one if isinstance(one, str) else f"{one:g}" for one in self.column.range or ("", ""))
        return f"outside {low} to {high}{unit}"

    def _hint(self, kind: str) -> str:
        few = self._counts[kind] <= _FEW * self._cells
        spelling = "; missing cells with a spelling such as k.A.? missing: in the mapping" if few else ""
        case = "upper or lower case? " if self._lower_case else ""
        word, mark = ("comma", ",") if self._decimal == "." else ("point", ".")
        decimal = f'with a decimal {word}? decimal: "{mark}" in the mapping' if self._other_decimals else ""
        hint = {
            "missing": "missing: in the schema, such as drop-rows or mean",
            "number": "; ".join(filter(None, (decimal, self._unit_behind()))) or spelling.removeprefix("; "),
            "date": f"read as {' or '.join(self._own.date)}; date: in the mapping says another form, or a list of several{spelling}",
            "value": f"{case}values: in the mapping{spelling}",
            "range": self._other_unit()
            or ("errors, or a code for missing cells? missing: in the mapping" if few else ""),
            "negative": "transform: log is for numbers of 0 and more; correct them, or leave it out of the schema",
            "early": "correct them, or leave the cell empty where the time is not known",
            "event": f"1 with the event, 0 without; or make it a category, and event: {self.name}=yes in the schema{spelling}",
            "later": "as: age is of dates up to the reference; correct them, or agree on a later one",
        }.get(kind, "")
        return f" ({hint})" if hint else ""

    def _unit_behind(self) -> str:
        """Return the line of a mapping that reads the numbers with a unit behind them; "" where it has all their units."""
        own, unit = f'from: "{self._own.from_}", ' if self._own.from_ else "", self.column.unit or "the schema's unit"
        here = self._units[normalize("NFKC", unit)]
        named, how = unit if here else "UNIT", f"; for UNIT write it as the cells do, for 1 its factor to {unit}"
        units = ", ".join(f'"{one}": {factor:.6g}' for one, factor in (*self._own.units.items(), (named, 1)))
        line = f"columns: {{{self.name}: {{{own}units: {{{units}}}}}}}"
        return (
            f"with a unit? {line} in the mapping reads {here or self._units.total():,} of them{'' if here else how}"
            if self._units
            else ""
        )

    def _other_unit(self) -> str:
        """Return which factor would leave few cells outside the range; "" where none would."""
        fewest = min(self._outside[factor] for factor in self._factors)
        if not self._outside or not self._counts["range"] >= _ENOUGH or fewest > _FEWER * self._counts["range"]:
            return ""
        best = [factor for factor in self._factors if self._outside[factor] == fewest]
        best.sort(key=lambda f: (max(f, 1 / f) not in LABORATORY, abs(np.log(f))))  # its substance first
        nearest = [f"{factor:.6g}" for factor in best[:_NAMED]]
        which = "; look which unit the table has" if len(nearest) > 1 else ""
        return f"another unit? factor: {' or '.join(nearest)} in the mapping leaves {fewest}{which}"


def day_of(text: str, forms: Sequence[str]) -> float | None:
    """Return a date in days since 1970-01-01, by the first of the forms that it has; None where it has none of them."""
    for form in forms:
        day = text[:10] if form == ISO_DATE and text[10:11] in (" ", "T") else text
        with suppress(ValueError):
            return float((datetime.strptime(day, form).date() - date(1970, 1, 1)).days)
    return None


class WeightReader(ColumnReader):
    """Reads how many rows each row counts as: integers from 1 to `MOST_WEIGHT`."""

    def __init__(self, name: str, own: TableMapping) -> None:
        column = ColumnSchema(type="number", range=(1, MOST_WEIGHT))
        super().__init__(name, column, own.of(name), "refuse", own.decimal, own.spellings(name))

    def _hint(self, kind: str) -> str:
        return "" if kind == "missing" else super()._hint(kind)

    def weights(self, cells: Any, before: int) -> IntArray:
        """Return the weights (n,) of an Arrow array of cells, of which `before` have come already; 1 where one is faulty."""
        found, missing = self.read(cells, before)
        numbers = found[:, 0]
        self._count("whole", ~missing & (numbers != np.floor(numbers)), before)
        return np.clip(numbers, 1, MOST_WEIGHT).astype(np.int64)


class _EventReader(ColumnReader):
    """Reads the column of an outcome's event, where texts need the advice that other numbers than 0 and 1 get."""

    def _hint(self, kind: str) -> str:
        return super()._hint("event" if kind == "number" else kind)


class OutcomeReader:
    """Reads the columns of the schema's outcome. A missing cell leaves the outcome of its row unknown.

    Attributes:
        readers: of its columns, in the order of `OutcomeSchema.columns`.
    """

    def __init__(self, schema: TableSchema, own: TableMapping) -> None:
        assert schema.outcome is not None, "a schema with an outcome"
        self._outcome = schema.outcome
        self.readers = [
            kind(name, schema.columns[name], own.of(name), "mean", own.decimal, own.spellings(name))
            for kind, name in zip((ColumnReader, _EventReader), schema.outcome.columns, strict=False)
        ]

    def read(self, cells: Sequence[Any], before: int) -> FloatArray:
        """Return the outcomes (n, w) of Arrow arrays of cells, of which `before` have come already; NaN where unknown."""
        parts = zip(self.readers, cells, strict=False)
        found = [reader.read(column, before)[0] for reader, column in parts]
        for reader, one in zip(self.readers, found, strict=True):
            reader._count("large", np.asarray((np.abs(one) > LARGEST_VALUE).any(axis=1)), before)
        if self._outcome.event is None:
            return found[0] if found[0].shape[1] == 1 else found[0] @ np.arange(found[0].shape[1])[:, None]
        time, event = self.readers
        time._count("early", found[0][:, 0] < 0, before)
        if event.column.type == "category":
            value = self._outcome.event.partition("=")[2]
            happened = found[1][:, (event.column.values or ()).index(value)]
        else:
            happened = found[1][:, 0]
            event._count("event", ~np.isnan(happened) & (happened != 0) & (happened != 1), before)
        return np.column_stack([found[0][:, 0], happened])


def texts_of(cells: Any, spellings: frozenset[str]) -> Any:
    """Return an Arrow array of cells as texts without spaces around them; null where one is missing."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_floating(cells.type):  # pandas keeps integers with gaps as floats
        cells = pc.if_else(pc.is_finite(cells), cells, None)
        whole = pc.and_(pc.equal(cells, pc.floor(cells)), pc.less(pc.abs(cells), 2.0**53))
        numbers = pc.if_else(whole, cells, None).cast(pa.int64())
        cells = pc.if_else(whole, numbers.cast(pa.string()), cells.cast(pa.string()))
    elif pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
        cells = pc.strftime(cells.cast(pa.timestamp("s"), safe=False), ISO_DATE)
    try:
        texts = pc.utf8_trim_whitespace(cells.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # lists, bytes that are no text
        texts = pa.array(list(map(_text_of, cells.to_pylist())), pa.string())
    gone = pc.is_in(texts, value_set=pa.array(sorted(spellings), pa.string()))
    return pc.if_else(gone, None, texts)


def _text_of(value: object) -> str | None:
    """Return a cell as a text without spaces around it, whatever the others are; `NO_TEXT` where it is none."""
    try:
        text = value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return NO_TEXT
    return text.strip() if isinstance(text, str) else None if text is None else NO_TEXT


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


def _valid(cells: Any) -> BoolArray:
    return np.asarray(cells.is_valid().to_numpy(zero_copy_only=False))
