"""parquet, arrow and feather: the chosen columns, batch by batch."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.typing import Array, FloatArray
from flareclust.data.file_formats import CHOOSE_ADVICE, TEXT_ADVICE, Names, Piece, Selection, Source, called, id_place
from flareclust.data.memory import RowStore

#: What pyarrow raises, beside its own errors, for bytes that are no such file.
_DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError, NotImplementedError, RecursionError)

#: Rows of columns of any type that are read at a time.
_ROWS = 65_536

#: Gives the record batches of some columns, so many rows at a time at the most.
_Batches = Callable[[Sequence[str], int], Iterator[Any]]

#: Gives an Arrow array for each of some columns, so many rows at a time at the most.
Cells = Callable[[Sequence[str], int], Iterator[list[Any]]]


@contextmanager
def _arrow_errors(place: str, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (FlareclustError, pa.ArrowMemoryError):
        raise
    except (pa.ArrowException, *_DAMAGED):
        raise UserError(f"{place} is not {kind} file, or it is damaged") from None


@contextmanager
def open_parquet(file: Path, place: str, selection: Selection) -> Iterator[Source]:
    """Open a parquet file; UserError where it is none, also from reading it."""
    from pyarrow import parquet

    with _arrow_errors(place, "a parquet"), parquet.ParquetFile(file, buffer_size=1 << 20) as stored:
        yield _source(stored.schema_arrow, partial(_by_group, stored), stored.metadata.num_rows, place, selection)


def _by_group(stored: Any, names: Sequence[str], rows: int) -> Iterator[Any]:
    """Give the batches of one row group after the other: Arrow keeps what it has read of all groups that it is asked for."""
    for group in range(stored.num_row_groups):
        yield from stored.iter_batches(batch_size=rows, row_groups=[group], columns=list(names))


@contextmanager
def open_arrow(file: Path, place: str, selection: Selection) -> Iterator[Source]:
    """Open an Arrow file (feather version 2 is one) or stream; UserError where it is none, also from reading it."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as mapped, _arrow_errors(place, "an Arrow or feather (version 2)"):
        try:
            stored = pa.ipc.open_file(mapped)
            batches = map(stored.get_batch, range(stored.num_record_batches))
        except pa.ArrowInvalid:
            mapped.seek(0)
            batches = stored = pa.ipc.open_stream(mapped)
        yield _source(stored.schema, partial(_sliced, batches), None, place, selection)


def _sliced(batches: Iterable[Any], names: Sequence[str], rows: int) -> Iterator[Any]:
    for batch in batches:
        for name in names:  # Arrow takes the file's word for where things lie, and reads elsewhere if it is wrong
            batch.column(name).validate(full=True)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _source(schema: Any, batches: _Batches, n: int | None, place: str, selection: Selection) -> Source:
    index: list[str] = []
    if selection.columns is None and selection.encoding is None:
        # pandas stores an index that is no plain range as one more column: row names, not a feature.
        index = _index_columns((schema.metadata or {}).get(b"pandas", b"{}"))

    def cells(names: Sequence[str], rows: int) -> Iterator[list[Any]]:
        for batch in batches(names, rows):
            # Asking for "a" also brings a nested "a.b", so the columns are chosen once more.
            yield [batch.column(name) for name in names]

    return replace(column_source(tuple(schema.names), cells, place, selection, index), n=n)


def column_source(every: Names, cells: Cells, place: str, selection: Selection, left_out: Sequence[str] = ()) -> Source:
    """Return an open table of columns of any type.

    Args:
        every: the names of its columns, of which those in `left_out` are no features.
        cells: gives Arrow arrays of some columns, so many rows at a time at the most.

    Raises:
        UserError: the id column is not there; from reading also, where a feature is not numeric.
    """
    id_name = selection.id_name
    own = id_place(every, id_name, place)
    names = tuple(name for j, name in enumerate(every) if j != own and name not in left_out)

    def read(positions: Sequence[int] | None, store: RowStore) -> Iterator[Piece]:
        chosen, before = names if positions is None else tuple(names[j] for j in positions), 0
        step = max(1, store.piece // (8 * max(1, len(chosen))))
        for found in cells(list(chosen) if id_name is None else [*chosen, id_name], step):
            for name, column in zip(chosen, found, strict=False):
                _check_numeric(name, column, before, place)
            yield Piece(stack(found[: len(chosen)]), None if id_name is None else id_values(found[-1]))
            before += len(found[0])

    return Source(names, read, lambda wanted: cells(wanted, _ROWS), width=len(names))


def _index_columns(pandas: bytes) -> list[str]:
    """Return the names of the columns with a stored index, none where pandas' note about the file is damaged."""
    try:
        note = json.loads(pandas)
    except (ValueError, RecursionError):
        return []
    index = note.get("index_columns") if isinstance(note, dict) else None
    return [name for name in index if isinstance(name, str)] if isinstance(index, list) else []


def _check_numeric(name: str, column: Any, before: int, place: str) -> None:
    import pyarrow.types as of

    numeric = of.is_floating, of.is_integer, of.is_boolean, of.is_decimal, of.is_null
    if any(is_of(column.type) for is_of in numeric) or not len(column):
        return
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if not valid.any() and (of.is_string(column.type) or of.is_large_string(column.type)):
        return  # the first text comes later
    row = before + int(valid.argmax()) + 1
    raise UserError(
        f"{place}: {called((name,), 0)} is not numeric ({column.type}), first in row {row}; {CHOOSE_ADVICE}, or {TEXT_ADVICE}"
    )


def stack(columns: Sequence[Any]) -> FloatArray:
    """Return Arrow arrays of numbers, one per column, as (c, d); a null becomes NaN."""
    from flareclust.core.arrays import TURNED, turn  # not before rows are read: it loads numba

    last, result = len(columns) - 1, np.empty((len(columns[0]) if columns else 0, len(columns)))
    numbers = [_floats(column) for column in columns]
    for first in range(0, len(columns), TURNED):
        places = [min(j, last) for j in range(first, first + TURNED)]
        turn(tuple(numbers[j] for j in places), np.array(places), result)
    return result


def _floats(column: Any) -> FloatArray:
    """Return an Arrow array of numbers as one that cannot be written to: a kernel is compiled for each form of array."""
    import pyarrow as pa

    kind = pa.float64()
    column = column if column.type == kind else column.cast(kind, safe=False)
    numbers: FloatArray = column.to_numpy(zero_copy_only=False)
    if not numbers.flags.aligned:  # which a file can make it
        numbers = numbers.copy()
    numbers.flags.writeable = False
    return numbers


def id_values(column: Any) -> Array:
    """Return an Arrow array of ids (c,) as numbers, or as text and None."""
    import pyarrow as pa

    kind, of = column.type, pa.types
    if of.is_integer(kind) or of.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if any(is_of(kind) for is_of in (of.is_dictionary, of.is_string, of.is_large_string, of.is_null)):
        found = np.empty(len(column), dtype=object)
        found[:] = column.cast(pa.string()).to_pylist()
        return found
    return np.empty(len(column), dtype="V1")
