"""The columns of a csv, parquet, arrow or feather file as Arrow arrays, batch by batch; csv in any encoding, as text."""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust.data.file_formats import Names

#: The formats of tables with a schema.
FORMATS = ("csv", "parquet", "arrow", "feather")

#: Bytes of csv text, and rows of other formats, that are read at a time.
_BLOCK, _ROWS = 4 << 20, 65_536


def names_of(file: Path, form: str, encoding: str, place: str) -> Names:
    """Return the names of a file's columns; raise UserError where it cannot be read."""
    if form == "csv":
        return _head(file, encoding, place)[0]
    with _stored(file, form, place) as (schema, _):
        return tuple(schema.names)


def batches(file: Path, form: str, encoding: str, columns: Sequence[str], place: str) -> Iterator[list[Any]]:
    """Give the cells of some columns, an Arrow array for each, as many rows at a time as fit.

    Raises:
        UserError: the file is damaged, or is no text in this encoding.
    """
    if form == "csv":
        yield from _csv_batches(file, encoding, columns, place)
        return
    with _stored(file, form, place) as (_, stored):
        for batch in stored(list(columns)):
            yield [batch.column(name) for name in columns]


def _head(file: Path, encoding: str, place: str) -> tuple[Names, str, int]:
    """Return the names in the first line of a csv file, its delimiter, and how many lines the header takes."""
    try:
        with file.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as stream:
            line = next((line for line in stream if line.strip()), "")
            stream.seek(0)
            delimiter = max(",;\t|", key=line.count)
            rows = csv.reader(stream, delimiter=delimiter, strict=True)
            first = next((row for row in rows if any(map(str.strip, row))), [])
            skip = rows.line_num
    except UnicodeError:
        raise _no_text(encoding, place) from None
    except csv.Error:
        raise UserError(f"{place} does not begin as a table of text (an open quotation mark?)") from None
    if not first:
        raise UserError(f"{place} is empty; a table needs a header and at least one row")
    return tuple(cell.strip() for cell in first), delimiter, skip


def _csv_batches(file: Path, encoding: str, columns: Sequence[str], place: str) -> Iterator[list[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names, delimiter, skip = _head(file, encoding, place)
    every = [str(j) for j in range(len(names))]
    kept = [every[names.index(name)] for name in columns]
    reading = arrow_csv.ReadOptions(
        column_names=every, skip_rows=skip, block_size=_BLOCK, encoding=encoding, use_threads=False
    )
    parsing = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    converting = arrow_csv.ConvertOptions(include_columns=kept, column_types=dict.fromkeys(every, pa.string()))
    try:
        with arrow_csv.open_csv(file, reading, parsing, converting) as read:
            for batch in read:
                yield list(batch.columns)
    except (pa.ArrowInvalid, UnicodeError):  # their texts quote cells
        raise _csv_fault(file, encoding, delimiter, len(names), place) from None


def _csv_fault(file: Path, encoding: str, delimiter: str, width: int, place: str) -> UserError:
    """Return what is wrong with a csv file that Arrow cannot read."""
    n = -1
    try:
        with file.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="") as stream:
            for cells in csv.reader(stream, delimiter=delimiter):
                n += bool(cells)
                if cells and len(cells) != width:
                    return UserError(f"{place}: row {n} has {len(cells)} cells where the header has {width}")
    except UnicodeError:
        return _no_text(encoding, place)
    except csv.Error:
        pass
    return UserError(f"{place}: row {n + 1} is no text (an open quotation mark, a cell without end?)")


def _no_text(encoding: str, place: str) -> UserError:
    return UserError(f"{place} is no {encoding} text; say `encoding:` in the mapping, such as latin-1 or cp1252")


@contextmanager
def _stored(file: Path, form: str, place: str) -> Iterator[tuple[Any, Any]]:
    """Open a parquet, arrow or feather file: its schema, and a function that gives the batches of some columns."""
    import pyarrow as pa
    from pyarrow import dataset

    try:
        found = dataset.dataset(file, format="parquet" if form == "parquet" else "ipc")
        yield found.schema, lambda names: found.to_batches(columns=names, batch_size=_ROWS, use_threads=False)
    except (FlareclustError, pa.ArrowMemoryError):
        raise
    except (pa.ArrowException, ValueError, LookupError, TypeError, ArithmeticError, NotImplementedError):
        raise UserError(f"{place} is not a {form} file, or it is damaged") from None
