"""The file formats of `tables.read_table`: each reader returns the chosen columns, unchecked, and their names.

Site processes start often and mostly read npy or npz, so pyarrow is imported only where a format needs it.
Errors of NumPy and Arrow quote cells; they are replaced, not chained, so that no value reaches a log.
"""

import csv
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from flareclust.errors import UserError
from flareclust.typing import Array, FloatArray

Names = tuple[str, ...]

#: Says which of the columns with these names (None: there are none) to read, and in which order; None for all.
Choose = Callable[[Names | None], list[int] | None]


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, the first twelve of them where there are more."""
    shown = ", ".join(map(repr, names[:12]))
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def called(names: Names | None, j: int) -> str:
    """Return what to call column j in a message: its name, or its number counted from 1."""
    return f"column {j + 1}" if names is None else f"column {names[j]!r}"


def npz_arrays(file: Path, keys: Sequence[str], *, where: str = "") -> dict[str, Array]:
    """Return those arrays of an npz file that are named in `keys`; what is not there is left out.

    Raises:
        UserError: the file is no npz file, is damaged, or holds objects.
    """
    with _numpy_errors(where or str(file)), np.load(file, allow_pickle=False) as stored:
        return {key: stored[key] for key in keys if key in stored.files}


# npy and npz


@contextmanager
def _numpy_errors(place: str) -> Iterator[None]:
    try:
        yield
    except UserError:  # a ValueError, too, but one that already says what is wrong
        raise
    except (ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        raise UserError(
            f"{place} is not a NumPy file of plain numbers, or it is damaged; arrays of objects and pickles are not "
            "read. Write it again with np.save or np.savez and X.astype(float)"
        ) from None


def read_numpy(file: Path, wanted: Names | None, choose: Choose, place: str) -> tuple[Array, Names | None]:
    """Read a 2-D array and, from npz, its column names."""
    names: Names | None = None
    with _numpy_errors(place):
        stored = np.load(file, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            rows: Array = stored
        else:
            with stored:
                rows, names = _npz_rows(stored, place)
    positions = choose(names)
    if names is None or positions is None:
        return rows, names
    return rows[:, positions], tuple(names[j] for j in positions)


def _npz_rows(stored: Any, place: str) -> tuple[Array, Names | None]:
    keys: list[str] = stored.files
    if "X" in keys:
        rows = stored["X"]
    else:
        flat = [array for key in keys if (array := stored[key]).ndim == 2]
        if len(flat) != 1:
            raise UserError(
                f"{place}: expected an array `X` or exactly one 2-D array, got {listed(keys)}; name one `X`"
            )
        rows = flat[0]
    if "columns" not in keys:
        return rows, None
    names = stored["columns"]
    if rows.ndim != 2 or names.dtype.kind != "U" or names.shape != rows.shape[1:]:
        raise UserError(
            f"{place}: `columns` must be one string per column of X {rows.shape}, got {names.dtype} {names.shape}"
        )
    return rows, tuple(map(str, names))


# csv


def read_csv(file: Path, wanted: Names | None, choose: Choose, place: str) -> tuple[FloatArray, Names | None]:
    """Read numbers separated by comma, semicolon or tab, with or without a header."""
    delimiter, first, second, skip = _csv_head(file, place)
    width = len(first)
    names: Names | None = None
    if wanted is None and all(map(_is_number, first)):
        skip = 0
    else:
        names = tuple(cell.strip() for cell in first)
        _refuse_data_as_header(names, second, wanted, place)
    positions = choose(names)
    chosen = list(range(width)) if positions is None else positions
    if names is not None:
        if "" in (kept := [names[j] for j in chosen]):
            raise UserError(
                f"{place}: column {chosen[kept.index('')] + 1} has no name. An index that pandas wrote? Leave it out "
                "with to_csv(index=False), or choose the columns by name"
            )
        names = tuple(kept)
    return _csv_rows(file, delimiter, width, skip, chosen, names, place), names


def _csv_head(file: Path, place: str) -> tuple[str, list[str], list[str], int]:
    """Return the delimiter, the cells of the first two rows, and the number of lines up to the end of the first."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            line = next((line for line in stream if line.strip()), "")
            stream.seek(0)
            delimiter = max(",;\t", key=line.count)
            lines = csv.reader(stream, delimiter=delimiter, strict=True)
            first = next((row for row in lines if any(map(str.strip, row))), [])
            skip = lines.line_num
            second = next((row for row in lines if any(map(str.strip, row))), [])
    except UnicodeDecodeError:
        raise UserError(f"{place} is not UTF-8 text; save it as UTF-8") from None
    except csv.Error:
        raise UserError(
            f"{place} does not begin as a table of text (an open quotation mark, an overlong cell?)"
        ) from None
    if not first:
        raise UserError(f"{place} has no rows; a table needs at least one")
    return delimiter, first, second, skip


def _refuse_data_as_header(names: Names, second: list[str], wanted: Names | None, place: str) -> None:
    """Refuse a header that may be a row of data, lest its cells end up in messages as names of columns.

    It is surely a header where a word stands above a number.
    """
    if not second:
        raise UserError(f"{place} has no rows below its header; a table needs at least one")
    if any(
        not _is_number(above) and below.strip() and _is_number(below)
        for above, below in zip(names, second, strict=False)
    ):
        return
    if wanted is None:
        word = next(j for j, cell in enumerate(names) if not _is_number(cell))
        raise UserError(
            f"{place}: column {word + 1} is not numeric, first in row 1; encode it as numbers, or, where the first row "
            "is a header, choose other columns by name"
        )
    if missing := [name for name in wanted if name not in names]:
        raise UserError(f"{place} has no column {listed(missing)}, and its first row looks like data; add a header row")


#: Spellings of a missing number that Arrow reads as such and Python's float does not.
_MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL", "null")
)


def _is_number(cell: str) -> bool:
    """Say whether a cell can stand in a numeric column, where it may also be missing."""
    if (text := cell.strip()) in _MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_rows(
    file: Path, delimiter: str, width: int, skip: int, chosen: list[int], names: Names | None, place: str
) -> FloatArray:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    every = [str(j) for j in range(width)]
    kept = [every[j] for j in chosen]
    reading = arrow_csv.ReadOptions(column_names=every, skip_rows=skip)
    parsing = arrow_csv.ParseOptions(delimiter=delimiter)
    converting = arrow_csv.ConvertOptions(include_columns=kept, column_types=dict.fromkeys(kept, pa.float64()))
    try:
        return _stack(arrow_csv.read_csv(file, reading, parsing, converting), names, place)
    except pa.ArrowInvalid:
        fault = _csv_fault(file, delimiter, width, skip, chosen)
    subject = fault if isinstance(fault, str) else f"{called(names, fault[1])} is not numeric, first in row {fault[0]}"
    raise UserError(f"{place}: {subject}; mend it, encode text as numbers, or choose other columns by name")


def _csv_fault(file: Path, delimiter: str, width: int, skip: int, chosen: list[int]) -> str | tuple[int, int]:
    """Return what is wrong, or the row number and the position in `chosen` of the first cell that is no number."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        lines = csv.reader(stream, delimiter=delimiter)
        row = 0
        for cells in lines:
            if lines.line_num <= skip or not cells:
                continue
            row += 1
            if len(cells) != width:
                return f"row {row} has {len(cells)} cells, the first has {width}"
            for at, j in enumerate(chosen):
                if not _is_number(cells[j]):
                    return row, at
    return "it is not a plain table of numbers"


# parquet, arrow and feather


def read_parquet(file: Path, wanted: Names | None, choose: Choose, place: str) -> tuple[FloatArray, Names | None]:
    """Read the chosen columns of a parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as stored:
            names = _arrow_names(stored.schema_arrow, wanted, choose)
            # Asking for "a" also brings a nested "a.b", so the columns are chosen once more.
            return _stack(stored.read(columns=list(names)).select(list(names)), names, place), names
    except pa.ArrowException:
        raise UserError(f"{place} is not a parquet file, or it is damaged") from None


def read_arrow(file: Path, wanted: Names | None, choose: Choose, place: str) -> tuple[FloatArray, Names | None]:
    """Read the chosen columns of an Arrow file (feather version 2 is one) or Arrow stream."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as source:
        try:
            try:
                table = pa.ipc.open_file(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                table = pa.ipc.open_stream(source).read_all()
            names = _arrow_names(table.schema, wanted, choose)
            return _stack(table.select(list(names)), names, place), names
        except pa.ArrowException:
            raise UserError(f"{place} is not an Arrow or feather (version 2) file, or it is damaged") from None


def _arrow_names(schema: Any, wanted: Names | None, choose: Choose) -> Names:
    names = tuple(schema.names)
    if wanted is None:
        # pandas stores an index that is no plain range as one more column: row names, not a feature.
        index = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        names = tuple(name for name in names if name not in index)
    positions = choose(names)
    return names if positions is None else tuple(names[j] for j in positions)


def _stack(table: Any, names: Names | None, place: str) -> FloatArray:
    """Return an Arrow table of numbers as (n, d); a null becomes NaN."""
    import pyarrow as pa

    result = np.empty((table.num_rows, table.num_columns))
    for j, column in enumerate(table.itercolumns()):
        kind = column.type
        if not any(
            is_kind(kind)
            for is_kind in (
                pa.types.is_floating,
                pa.types.is_integer,
                pa.types.is_boolean,
                pa.types.is_decimal,
                pa.types.is_null,
            )
        ):
            row = column.is_valid().index(pa.scalar(True)).as_py() + 1
            raise UserError(
                f"{place}: {called(names, j)} is not numeric ({kind}), first in row {max(row, 1)}; encode it as "
                "numbers or choose other columns by name"
            )
        result[:, j] = column.cast(pa.float64(), safe=False).to_numpy()
    return result
