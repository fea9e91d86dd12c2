"""csv: cells separated by comma, semicolon, tab or |: numbers with or without a header, or texts with one.

What is wrong with a file is said without showing a cell.
"""

import codecs
import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import is_number
from flareclust.data import file_formats as formats
from flareclust.data.memory import RowStore, on_disk

#: How many bytes of text Arrow is given at once, and how many times as long as the first rows.
_BLOCK, _LONGER = 1 << 20, 4

#: With more columns than this, rows are read one by one: Arrow keeps 10 kB for each column.
_WIDE = 1000

#: Most columns of a table, as the server takes no more from a site; and most characters of its lines.
_MOST_COLUMNS, _LONGEST_LINE = 1_000_000, 1 << 26

_TOO_LONG = "is too long: more than a mebibyte, and more than four times as long as the first rows"

#: A number with a decimal comma.
_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*")

#: So many bytes at the beginning of a file show that every second one is 0, and a line has at most so many.
_HEAD, _LINE = 4096, 1 << 20

#: What to do with a table whose numbers have decimal commas.
COMMA_ADVICE = "read decimal commas by a schema (--schema, schema=; flareclust schema draft FILE --decimal ,)"

#: How errors of rows of numbers end.
_ADVICE = f"; correct it, {formats.CHOOSE_ADVICE}, or {{}}"

#: What to do with a text in another encoding.
UTF8_ADVICE = "save it as UTF-8"

#: Characters of a text in another encoding than UTF-8 that are copied at a time.
_COPIED = 1 << 20


@dataclass(frozen=True)
class _Layout:
    """A csv file: its delimiter, how many cells a line has, how many lines come before the rows, names if it has any.

    `place` is what messages call it, and `advice` what they end with where a row is at fault. `block` is how many bytes Arrow
    reads at once; no row may be longer.
    """

    file: Path
    place: str
    delimiter: str
    width: int
    skip: int
    names: formats.Names | None
    block: int
    encoding: str
    advice: str = ""

    def open(self, errors: str = "strict") -> TextIO:
        """Return the open text, without a byte order mark."""
        return _opened(self.file, self.encoding, errors)

    def fault(self, what: str) -> UserError:
        """Return the error of a row."""
        return UserError(f"{self.place}: {what}{self.advice}")


def _opened(file: Path, encoding: str, errors: str = "strict") -> TextIO:
    return file.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors=errors, newline="")


@contextmanager
def open_csv(file: Path, place: str, selection: formats.Selection) -> Iterator[formats.Source]:
    """Open a csv file; of numbers it has a header where columns are asked for by name, or its first row is no row of numbers."""
    wanted, id_name, encoding = selection
    layout, first, second = _csv_head(file, place, encoding or "utf-8")
    names: formats.Names | None = (head := tuple(cell.strip() for cell in first))
    if encoding is None:
        layout = replace(layout, advice=_ADVICE.format(formats.TEXT_ADVICE))
        if wanted is None and id_name is None and all(map(_is_number, first)):
            layout, names = replace(layout, skip=0), None
        else:
            _refuse_data_as_header(head, second, wanted, id_name, place)
            layout = replace(layout, names=head)
    own = None if names is None else formats.id_place(names, id_name, place)
    others = [j for j in range(len(first)) if j != own]

    def read(positions: Sequence[int] | None, store: RowStore) -> Iterator[formats.Piece]:
        chosen = others if positions is None else [others[j] for j in positions]
        if names is not None and "" in (kept := [names[j] for j in chosen]):
            raise UserError(
                f"{place}: column {chosen[kept.index('')] + 1} has no name. An index that pandas wrote? Leave it out "
                "with to_csv(index=False), or choose the columns by name"
            )
        if layout.width > _WIDE:
            yield from _wide_pieces(layout, chosen, own, store.piece)
            return
        from flareclust.data.arrow_files import id_values, stack

        for columns in _columns(layout, chosen, [] if own is None else [own]):  # Arrow gives a block of text at a time
            yield formats.Piece(stack(columns[: len(chosen)]), None if own is None else id_values(columns[-1]))

    def columns(names: Sequence[str]) -> Iterator[list[Any]]:
        return _columns(layout, (), [head.index(name) for name in names])

    yield formats.Source(None if names is None else tuple(names[j] for j in others), read, columns)


def _csv_head(file: Path, place: str, encoding: str) -> tuple[_Layout, list[str], list[str]]:
    """Return the layout of a csv file whose first line is a header, without names, and the cells of the first two rows."""
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
    except UnicodeError:
        raise _not_text(file, encoding, place) from None
    except csv.Error:
        raise UserError(
            f"{place} does not begin as a table of text (an open quotation mark, an overlong cell?)"
        ) from None
    if not first:
        raise UserError(f"{place} has no rows; a table needs at least one")
    block = max(_BLOCK, _LONGER * max(longest, text.taken()))
    return _Layout(file, place, delimiter, len(first), skip, None, block, encoding), first, second


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
    names: formats.Names, second: list[str], wanted: formats.Names | None, id_name: str | None, place: str
) -> None:
    """Refuse what may be data and not a header, a word above a number, lest its cells end up in messages as names of columns."""
    if not second:
        raise UserError(f"{place} has no rows below its header; a table needs at least one")
    if any(
        not _is_number(above) and cell.strip() and (_is_number(cell) or _COMMA.fullmatch(cell))
        for above, cell in zip(names, second, strict=False)
    ):
        return
    if id_name is not None and id_name not in names:
        raise formats.no_id(place)
    if wanted is None and id_name is None:
        word = next(j for j, cell in enumerate(names) if not _is_number(cell))
        raise UserError(
            f"{place}: column {word + 1} is not numeric, first in row 1; {formats.TEXT_ADVICE}, or, where the first row "
            f"is a header, {formats.CHOOSE_ADVICE}"
        )
    if missing := [name for name in wanted or () if name not in names]:
        lacking = formats.listed(missing)
        raise UserError(f"{place} has no column {lacking}, and its first row looks like data; add a header row")


#: Spellings of a missing number that Arrow reads as such and Python's float does not.
_MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL", "null")
)


def _is_number(cell: str) -> bool:
    """Say whether a cell can stand in a numeric column, where it may also be missing."""
    return (text := cell.strip()) in _MISSING or is_number(text)


def _columns(layout: _Layout, numbers: Sequence[int], texts: Sequence[int]) -> Iterator[list[Any]]:
    """Give the cells of columns of numbers, and of columns of texts, batch by batch; UserError where some row has none of these.

    Without numbers cells may hold ends of lines.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    every = [str(j) for j in range(layout.width)]
    types = {every[j]: pa.float64() for j in numbers} | {every[j]: pa.string() for j in texts}
    reading = arrow_csv.ReadOptions(
        column_names=every, skip_rows=layout.skip, block_size=layout.block, use_threads=bool(numbers)
    )
    parsing = arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=not numbers)
    converting = arrow_csv.ConvertOptions(include_columns=list(types), column_types=types)
    try:
        with _in_utf8(layout) as text, arrow_csv.open_csv(text, reading, parsing, converting) as batches:
            for batch in batches:
                yield batch.columns
    except (pa.ArrowInvalid, UnicodeError):  # their texts quote cells
        pass
    else:
        return
    # Bytes that are no text are no number either, and may lie in columns that are not read.
    for row, cells in enumerate(_rows(layout, "replace" if numbers else "strict", layout.block), 1):
        for j in numbers:
            if not _is_number(cells[j]):
                raise _no_number(layout, row, j, cells[j])
    raise layout.fault(f"it is not a plain table{' of numbers' if numbers else ''}")


@contextmanager
def _in_utf8(layout: _Layout) -> Iterator[Any]:
    """Give what Arrow reads as UTF-8: the file, or a copy of it; UnicodeError where it is no text in this encoding.

    Arrow's own conversion calls Python from threads of its own, which abort the process, or never let it end, where they do
    so while it ends.
    """
    import pyarrow as pa

    if codecs.lookup(layout.encoding).name == "utf-8":
        yield layout.file
        return
    with layout.open() as text:
        parts = (part.encode() for part in iter(partial(text.read, _COPIED), ""))
        with on_disk(parts, None) as copy:
            copy.seek(0)
            with pa.OSFile(f"/dev/fd/{copy.fileno()}") as native:
                yield native


def _wide_pieces(layout: _Layout, chosen: list[int], own: int | None, piece: int) -> Iterator[formats.Piece]:
    """Give the rows of a table with many columns; only the cells of one row are Python objects at a time."""
    whole, step = chosen == list(range(layout.width)), max(1, piece // (8 * len(chosen)))

    def parsed() -> Iterator[tuple[FloatArray, str | None]]:
        for n, cells in enumerate(_rows(layout), 1):
            row = cells if whole else [cells[j] for j in chosen]
            try:
                yield np.array(_numbers(row)), None if own is None else cells[own]
            except ValueError:
                # Other programs read neither `1_000` nor other digits than these as numbers.
                j = next(j for j in chosen if not cells[j].isascii() or "_" in cells[j] or not _is_number(cells[j]))
                raise _no_number(layout, n, j, cells[j]) from None

    rows = parsed()
    while part := list(islice(rows, step)):
        X, ids = zip(*part, strict=True)
        yield formats.Piece(np.array(X), None if own is None else np.array(ids, dtype=object))


def _rows(layout: _Layout, errors: str = "strict", longest: int | None = None) -> Iterator[list[str]]:
    """Give the cells of each row below the header; UserError where they are not as many as in the first, or it takes more bytes."""
    row, text = 0, _Counted(())
    try:
        with layout.open(errors) as stream:
            text = _Counted(_lines(stream, layout.place))
            lines = csv.reader(text, delimiter=layout.delimiter, strict=longest is None)
            for cells in lines:
                taken = text.taken()
                if lines.line_num <= layout.skip or not cells:
                    continue
                row += 1
                if longest is not None and taken > longest:
                    raise layout.fault(f"row {row} {_TOO_LONG}")
                if len(cells) != layout.width:
                    more = len(cells) > layout.width and layout.delimiter == ","
                    why = " (commas in numbers or texts? Then separate cells with semicolons)" if more else ""
                    raise layout.fault(f"row {row} has {len(cells)} cells, the first has {layout.width}{why}")
                yield cells
    except UnicodeError:
        raise _not_text(layout.file, layout.encoding, layout.place) from None
    except csv.Error:
        too_long = longest is not None and text.taken() > longest
        what = _TOO_LONG if too_long else "is no text (an open quotation mark, an overlong cell?)"
        raise layout.fault(f"row {row + 1} {what}") from None


def _numbers(row: list[str]) -> list[float]:
    """Return what Arrow makes of cells: NaN where one is missing; ValueError where one is no plain number."""
    if not all(map(str.isascii, row)) or any("_" in cell for cell in row):
        raise ValueError
    try:
        return list(map(float, row))
    except ValueError:
        return [math.nan if cell.strip() in _MISSING else float(cell) for cell in row]


def _no_number(layout: _Layout, row: int, j: int, cell: str) -> UserError:
    advice = _ADVICE.format(COMMA_ADVICE if _COMMA.fullmatch(cell) else formats.TEXT_ADVICE)
    return UserError(f"{layout.place}: {formats.called(layout.names, j)} is not numeric, first in row {row}{advice}")


def _not_text(file: Path, encoding: str, place: str) -> UserError:
    """Return the error of a csv file that is no text in this encoding."""
    if advice := formats.spreadsheet_advice(file):
        return UserError(f"{place} is no text{advice}")
    unmarked = encoding.startswith("utf-16") and _is_wide(file)
    wide = not encoding.startswith("utf-16") and _is_wide(file)
    likely = "utf-16" if wide else "utf-16-le" if unmarked else "utf-8" if encoding != "utf-8" else "latin-1"
    what = f"is UTF-16 text where {encoding} is expected" if wide else f"is no {encoding} text{_first(file, encoding)}"
    others = {"latin-1": " or cp1252", "utf-16-le": " or utf-16-be"}.get(likely, "")
    return UserError(
        f"{place} {what}; {UTF8_ADVICE}, or read it by a schema, with `encoding: {likely}`{others} in the mapping "
        f"(NAME.mapping.yaml beside it); for a first schema: flareclust schema draft FILE --encoding {likely}"
    )


def _is_wide(file: Path) -> bool:
    with file.open("rb") as stream:
        return b"\0" in stream.read(_HEAD)


def _first(file: Path, encoding: str) -> str:
    """Return in which line the first bytes are that are no UTF-8."""
    if encoding != "utf-8":
        return ""
    number = 1
    with file.open("rb") as stream:
        while line := stream.readline(_LINE):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", first in line {number}"
            number += line.endswith(b"\n")
    return ""
