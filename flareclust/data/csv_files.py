"""csv: numbers separated by comma, semicolon, tab or |, with or without a header."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust.data.file_formats import (
    CHOOSE_ADVICE,
    TEXT_ADVICE,
    Names,
    Piece,
    Size,
    Source,
    called,
    id_place,
    listed,
    no_id,
)
from flareclust.data.text_faults import COMMA_ADVICE, has_decimal_comma, not_text

#: How many bytes of text Arrow is given at once, and how many times as long as the first rows.
_BLOCK, _LONGER = 1 << 20, 4

#: With more columns than this, rows are read one by one: Arrow keeps 10 kB for each column.
_WIDE = 1000

#: Most columns of a table, as the server takes no more from a site; and most characters of its lines.
_MOST_COLUMNS, _LONGEST_LINE = 1_000_000, 1 << 26

_TOO_LONG = "is too long: more than a mebibyte, and more than four times as long as the first rows"


@dataclass(frozen=True)
class CsvLayout:
    """A csv file: its delimiter, how many cells a line has, how many lines come before the rows, names if it has any.

    `block` is how many bytes are read at once; no row may be longer.
    """

    file: Path
    delimiter: str
    width: int
    skip: int
    names: Names | None
    block: int
    encoding: str = "utf-8"

    def open(self, errors: str = "strict") -> TextIO:
        """Return the open text, without a byte order mark."""
        return _opened(self.file, self.encoding, errors)


def _opened(file: Path, encoding: str, errors: str = "strict") -> TextIO:
    return file.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors=errors, newline="")


@contextmanager
def open_csv(file: Path, wanted: Names | None, id_name: str | None, place: str) -> Iterator[Source]:
    """Open a csv file; it has a header where columns are asked for by name, or its first row is no row of numbers."""
    try:
        layout, first, second = csv_head(file, place)
    except UnicodeError:
        raise not_text(file, "utf-8", place) from None
    names: Names | None = None
    if wanted is None and id_name is None and all(map(_is_number, first)):
        layout = replace(layout, skip=0)
    else:
        names = tuple(cell.strip() for cell in first)
        _refuse_data_as_header(names, second, wanted, id_name, place)
        layout = replace(layout, names=names)
    own = None if names is None else id_place(names, id_name, place)
    others = [j for j in range(len(first)) if j != own]

    def read(positions: Sequence[int] | None, size: Size) -> Iterator[Piece]:
        chosen = others if positions is None else [others[j] for j in positions]
        if names is not None and "" in (kept := [names[j] for j in chosen]):
            raise UserError(
                f"{place}: column {chosen[kept.index('')] + 1} has no name. An index that pandas wrote? Leave it out "
                "with to_csv(index=False), or choose the columns by name"
            )
        if layout.width > _WIDE:
            yield from _wide_pieces(layout, chosen, own, size.piece, place)
        else:  # Arrow gives a block of text at a time
            yield from _csv_pieces(layout, chosen, own, place)

    yield Source(None if names is None else tuple(names[j] for j in others), read)


def csv_head(file: Path, place: str, encoding: str = "utf-8") -> tuple[CsvLayout, list[str], list[str]]:
    """Return the layout of a csv file whose first line is a header, without names, and the cells of the first two rows.

    Raises:
        UserError: it does not begin as a table.
        UnicodeError: it is no text in this encoding.
    """
    try:
        with _opened(file, encoding) as stream:
            line = next((line for line in _lines(stream, place) if line.strip()), "")
            if "\0" in line:
                raise UnicodeError("a text in two bytes")
            stream.seek(0)
            delimiter = max(",;\t|", key=line.count)
            if line.count(delimiter) >= _MOST_COLUMNS:
                raise UserError(f"{place} has more than {_MOST_COLUMNS:,} columns; choose fewer")
            text = _Counted(_lines(stream, place))
            lines = csv.reader(text, delimiter=delimiter, strict=True)
            first = next((row for row in lines if any(map(str.strip, row))), [])
            skip, longest = lines.line_num, text.taken()
            second = next((row for row in lines if any(map(str.strip, row))), [])
    except csv.Error:
        raise UserError(
            f"{place} does not begin as a table of text (an open quotation mark, an overlong cell?)"
        ) from None
    if not first:
        raise UserError(f"{place} has no rows; a table needs at least one")
    block = max(_BLOCK, _LONGER * max(longest, text.taken()))
    return CsvLayout(file, delimiter, len(first), skip, None, block, encoding), first, second


def _lines(stream: TextIO, place: str) -> Iterator[str]:
    """Give the lines of a text; UserError for one that is longer than any row."""
    while line := stream.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE and not line.endswith("\n"):
            raise UserError(f"{place} has a line of more than {_LONGEST_LINE:,} characters; is it a table of text?")
        yield line


class _Counted:
    """The lines of a text, with the bytes that they take."""

    def __init__(self, stream: Iterable[str]) -> None:
        self._lines, self._bytes = iter(stream), 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._bytes += len(line.encode(errors="replace"))
            yield line

    def taken(self) -> int:
        """Return how many bytes were taken since the last call."""
        taken, self._bytes = self._bytes, 0
        return taken


def _refuse_data_as_header(
    names: Names, second: list[str], wanted: Names | None, id_name: str | None, place: str
) -> None:
    """Refuse a header that may be a row of data, lest its cells end up in messages as names of columns.

    It is surely a header where a word stands above a number.
    """
    if not second:
        raise UserError(f"{place} has no rows below its header; a table needs at least one")
    if any(
        not _is_number(above) and cell.strip() and (_is_number(cell) or has_decimal_comma(cell))
        for above, cell in zip(names, second, strict=False)
    ):
        return
    if id_name is not None and id_name not in names:
        raise no_id(place)
    if wanted is None and id_name is None:
        word = next(j for j, cell in enumerate(names) if not _is_number(cell))
        raise UserError(
            f"{place}: column {word + 1} is not numeric, first in row 1; {TEXT_ADVICE}, or, where the first row "
            f"is a header, {CHOOSE_ADVICE}"
        )
    if missing := [name for name in wanted or () if name not in names]:
        raise UserError(f"{place} has no column {listed(missing)}, and its first row looks like data; add a header row")


#: Spellings of a missing number that Arrow reads as such and Python's float does not.
MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL", "null")
)


def _is_number(cell: str) -> bool:
    """Say whether a cell can stand in a numeric column, where it may also be missing."""
    if (text := cell.strip()) in MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_pieces(layout: CsvLayout, chosen: list[int], own: int | None, place: str) -> Iterator[Piece]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    from flareclust.data.arrow_files import id_values, stack

    every = [str(j) for j in range(layout.width)]
    kept = [every[j] for j in chosen]
    types = dict.fromkeys(kept, pa.float64())
    if own is not None:
        types[every[own]] = pa.string()
    reading = arrow_csv.ReadOptions(column_names=every, skip_rows=layout.skip, block_size=layout.block)
    parsing = arrow_csv.ParseOptions(delimiter=layout.delimiter)
    converting = arrow_csv.ConvertOptions(include_columns=list(types), column_types=types)
    try:
        with arrow_csv.open_csv(layout.file, reading, parsing, converting) as batches:
            for batch in batches:
                ids = None if own is None else id_values(batch.column(len(kept)))
                yield Piece(stack(batch.columns[: len(kept)]), ids)
    except pa.ArrowInvalid:
        fault = csv_fault(layout, chosen, errors="replace")
    else:
        return
    names = None if layout.names is None else tuple(layout.names[j] for j in chosen)
    raise _csv_error(fault, place) if isinstance(fault, str) else _no_number(names, *fault, place)


def _wide_pieces(layout: CsvLayout, chosen: list[int], own: int | None, piece: int, place: str) -> Iterator[Piece]:
    """Give the rows of a table with many columns; only the cells of one row are Python objects at a time."""
    whole = chosen == list(range(layout.width))
    step = max(1, piece // (8 * len(chosen)))
    rows = np.empty((step, len(chosen)))
    ids: list[str] = []
    done = n = 0
    for n, cells in enumerate(_rows_of(layout, place), 1):
        row = cells if whole else [cells[j] for j in chosen]
        try:
            rows[done] = _numbers(row)
        except ValueError:
            at = next(at for at, cell in enumerate(row) if not _is_plain(cell))
            names = None if layout.names is None else tuple(layout.names[j] for j in chosen)
            raise _no_number(names, n, at, row[at], place) from None
        if own is not None:
            ids.append(cells[own])
        done += 1
        if done == step:
            yield Piece(rows, None if own is None else np.array(ids, dtype=object))
            rows, ids, done = np.empty((step, len(chosen))), [], 0
    if done:
        yield Piece(rows[:done].copy(), None if own is None else np.array(ids, dtype=object))


def _rows_of(layout: CsvLayout, place: str) -> Iterator[list[str]]:
    """Give the cells of each row below the header; UserError where they are not as many as in the first."""
    n = 0
    try:
        with layout.open() as stream:
            lines = csv.reader(_lines(stream, place), delimiter=layout.delimiter, strict=True)
            for cells in lines:
                if lines.line_num <= layout.skip or not cells:
                    continue
                n += 1
                if len(cells) != layout.width:
                    raise _csv_error(_other_width(n, cells, layout), place)
                yield cells
    except UnicodeDecodeError:
        raise not_text(layout.file, layout.encoding, place) from None
    except csv.Error:
        raise _csv_error(f"row {n + 1} is no text (an open quotation mark, an overlong cell?)", place) from None


def _numbers(row: list[str]) -> list[float]:
    """Return what Arrow makes of cells: NaN where one is missing; ValueError where one is no plain number."""
    if not all(map(str.isascii, row)) or any("_" in cell for cell in row):
        raise ValueError
    try:
        return list(map(float, row))
    except ValueError:
        return [math.nan if cell.strip() in MISSING else float(cell) for cell in row]


def _is_plain(cell: str) -> bool:
    """Say whether a cell is a number as other programs read it, too; Python also takes `1_000` and other digits."""
    return cell.isascii() and "_" not in cell and _is_number(cell)


def _csv_error(fault: str, place: str, advice: str = TEXT_ADVICE) -> UserError:
    return UserError(f"{place}: {fault}; correct it, {CHOOSE_ADVICE}, or {advice}")


def _no_number(names: Names | None, row: int, at: int, cell: str, place: str) -> UserError:
    fault = f"{called(names, at)} is not numeric, first in row {row}"
    return _csv_error(fault, place, COMMA_ADVICE if has_decimal_comma(cell) else TEXT_ADVICE)


def _other_width(row: int, cells: Sequence[str], layout: CsvLayout) -> str:
    more = len(cells) > layout.width and layout.delimiter == ","
    why = " (commas in numbers or texts? Then separate cells with semicolons)" if more else ""
    return f"row {row} has {len(cells)} cells, the first has {layout.width}{why}"


def csv_fault(layout: CsvLayout, chosen: Sequence[int] = (), errors: str = "strict") -> str | tuple[int, int, str]:
    """Return what is wrong, or of the first cell that is no number its row, its position in `chosen`, and the cell itself."""
    row = 0
    with layout.open(errors) as stream:
        text = _Counted(stream)
        lines = csv.reader(text, delimiter=layout.delimiter)
        try:
            for cells in lines:
                taken = text.taken()
                if lines.line_num <= layout.skip or not cells:
                    continue
                row += 1
                if taken > layout.block:
                    return f"row {row} {_TOO_LONG}"
                if len(cells) != layout.width:
                    return _other_width(row, cells, layout)
                for at, j in enumerate(chosen):
                    if not _is_number(cells[j]):
                        return row, at, cells[j]
        except csv.Error:
            what = (
                _TOO_LONG if text.taken() > layout.block else "is no text (an open quotation mark, an overlong cell?)"
            )
            return f"row {row + 1} {what}"
    return f"it is not a plain table{' of numbers' if chosen else ''}"
