"""The columns of a csv, parquet, arrow or feather file as Arrow arrays, batch by batch; csv in any encoding, as text."""

import codecs
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.data.arrow_files import stored_arrow, stored_parquet
from flareclust.data.csv_files import csv_fault, csv_head
from flareclust.data.file_formats import Names
from flareclust.data.spill import on_disk
from flareclust.data.text_faults import not_text

#: The formats of tables with a schema.
FORMATS = ("csv", "parquet", "arrow", "feather")

#: Rows of other formats than csv that are read at a time.
_ROWS = 65_536

#: Characters of a text in another encoding than UTF-8 that are copied at a time.
_COPIED = 1 << 20


def format_of(file: Path, form: str | None, place: str) -> str:
    """Return the format of a table with a schema, by its name unless it is given; UserError for others, and for no file."""
    form = (form or Path(place).suffix.lower()).removeprefix(".")
    if form not in FORMATS:
        raise UserError(f"{place}: a table with a schema is one of {', '.join(FORMATS)}")
    if not file.is_file():
        raise UserError(f"{place}: no such file")
    return form


def names_of(file: Path, form: str, encoding: str, place: str) -> Names:
    """Return the names of a file's columns; raise UserError where it cannot be read."""
    if form == "csv":
        try:
            return tuple(cell.strip() for cell in csv_head(file, place, encoding)[1])
        except UnicodeError:
            raise not_text(file, encoding, place) from None
    with (stored_parquet if form == "parquet" else stored_arrow)(file, place) as stored:
        return tuple(stored.schema.names)


def batches(file: Path, form: str, encoding: str, columns: Sequence[str], place: str) -> Iterator[list[Any]]:
    """Give the cells of some columns, an Arrow array for each, as many rows at a time as fit.

    Raises:
        UserError: the file is damaged, or is no text in this encoding.
    """
    if form == "csv":
        yield from _csv_batches(file, encoding, columns, place)
        return
    with (stored_parquet if form == "parquet" else stored_arrow)(file, place) as stored:
        for batch in stored.batches(list(dict.fromkeys(columns)), _ROWS):
            yield [batch.column(name) for name in columns]


def _csv_batches(file: Path, encoding: str, columns: Sequence[str], place: str) -> Iterator[list[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    layout, first, _ = csv_head(file, place, encoding)
    names = [cell.strip() for cell in first]
    every = [str(j) for j in range(layout.width)]
    kept = [every[names.index(name)] for name in columns]
    reading = arrow_csv.ReadOptions(
        column_names=every, skip_rows=layout.skip, block_size=layout.block, use_threads=False
    )
    parsing = arrow_csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True)
    different = list(dict.fromkeys(kept))
    converting = arrow_csv.ConvertOptions(include_columns=different, column_types=dict.fromkeys(different, pa.string()))
    try:
        with (
            _in_utf8(file, encoding) as text,
            arrow_csv.open_csv(text, reading, parsing, converting) as read,
        ):
            for batch in read:
                yield [batch.column(name) for name in kept]
    except (pa.ArrowInvalid, UnicodeError):  # their texts quote cells
        pass
    else:
        return
    try:
        fault = csv_fault(layout)
    except UnicodeError:
        raise not_text(file, encoding, place) from None
    raise UserError(f"{place}: {fault}")


@contextmanager
def _in_utf8(file: Path, encoding: str) -> Iterator[Any]:
    """Give what Arrow reads as UTF-8: the file, or a copy of it; UnicodeError where it is no text in this encoding.

    Arrow's own conversion calls Python from threads of its own, which abort the process, or never let it end, where they do
    so while it ends.
    """
    import pyarrow as pa

    if codecs.lookup(encoding).name == "utf-8":
        yield file
        return
    with file.open(encoding=encoding, newline="") as text:
        parts = (part.encode() for part in iter(partial(text.read, _COPIED), ""))
        with on_disk(parts, None) as copy:
            copy.seek(0)
            with pa.OSFile(f"/dev/fd/{copy.fileno()}") as native:
                yield native
