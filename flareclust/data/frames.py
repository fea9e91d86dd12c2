"""Data frames of pandas, polars and pyarrow as tables of numbers, with the names of their columns; such a table is one, too."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data.arrow_cells import arrow_of, decoded
from flareclust.data.arrow_files import column_source
from flareclust.data.file_formats import Selection, Source
from flareclust.data.tables import File, Table

_Package = Literal["pandas", "polars", "pyarrow"]

#: Packages with data frames, and the class in each.
_FRAMES: Mapping[_Package, str] = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}


def is_frame(value: object) -> bool:
    """Return whether a value is a data frame, or a table with names; no package is imported to find out."""
    if isinstance(value, Table):
        return value.columns is not None
    modules = ((sys.modules.get(package), kind) for package, kind in _FRAMES.items())
    return any(module is not None and isinstance(value, getattr(module, kind)) for module, kind in modules)


def names_of(frame: Any) -> tuple[str, ...]:
    """Return the names of a data frame's columns."""
    return tuple(map(str, _labels(frame)))


def table_of(name: str, frame: Any, columns: Sequence[str] | None = None, *, may_be_empty: bool = False) -> Table:
    """Return the rows of a data frame with the names of its columns; missing values become NaN.

    Args:
        name: of the site, or "data"; put in front of every message.
        frame: of pandas, polars or pyarrow, or a table with names.
        columns: to read, in this order; None for all.
        may_be_empty: whether a column may have no value at all.

    Raises:
        UserError: no columns, or one without a name, named twice, with other values than numbers, or without any value;
            or one of `columns` is missing.
    """
    labels, names = _labels(frame), names_of(frame)
    if not names:
        raise UserError(f"{name}: the data frame has no columns")
    if repeated := sorted({label for label in names if names.count(label) > 1}):
        raise UserError(f"{name}: the column {', '.join(repeated)} is there more than once; every name must differ")
    if "" in names:
        raise UserError(f"{name}: column {names.index('') + 1} has no name")
    if columns is not None:
        if missing := [column for column in columns if column not in names]:
            raise UserError(f"{name} has no column {missing[0]!r}{did_you_mean(missing[0], names)}")
        labels, names = [labels[names.index(column)] for column in columns], tuple(columns)
    if isinstance(frame, Table):
        if columns is None:
            return frame
        places = [names_of(frame).index(label) for label in names]
        return replace(frame, X=np.ascontiguousarray(frame.X[:, places]), columns=names)
    series = [_series(frame[label]) for label in labels]
    for label, column in zip(names, series, strict=True):
        if not may_be_empty and len(column) and column.null_count() == len(column):
            raise UserError(f"{name}: column {label!r} has no value at all; leave it out by naming the columns to use")
    cells = [_numbers(name, label, column) for label, column in zip(names, series, strict=True)]
    return Table(np.column_stack(cells), names)


def cells_of(frame: Any, name: str) -> tuple[list[Any], list[bool]]:
    """Return the cells (n,) of a data frame's column as they are, and which are missing: None, NaN, NaT, NA, or an empty text."""
    series = _series(frame[name])
    cells: list[Any] = series.to_list()
    nulls: list[bool] = series.is_null().to_list()
    floats = [isinstance(cell, float) and math.isnan(cell) for cell in cells]
    return cells, [null or nan or cell == "" for cell, null, nan in zip(cells, nulls, floats, strict=True)]


def file_of(name: str, frame: Any) -> File:
    """Return a data frame in the place of a file of columns of any type; messages call it by this name."""

    def cells(names: Sequence[str], rows: int) -> Iterator[list[Any]]:
        labels, own = _labels(frame), names_of(frame)
        columns = [_arrow(_series(frame[labels[own.index(name)]])) for name in names]
        for start in range(0, len(frame), rows):
            yield [column.slice(start, rows) for column in columns]

    @contextmanager
    def opened(path: Path, place: str, selection: Selection) -> Iterator[Source]:
        del path
        yield column_source(names_of(frame), cells, place, selection)

    return File(Path(name), name, opener=opened)


def _arrow(series: Any) -> Any:
    """Return a series of narwhals as an Arrow array."""
    import pyarrow as pa

    try:
        return decoded(series.to_arrow())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # cells of several types
        return arrow_of(series.to_list())


def frame_of(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns as a data frame of pandas, else of polars or pyarrow; UserError where none of them is installed."""
    for package in _FRAMES:
        if find_spec(package) is not None:
            import narwhals.stable.v2 as nw

            return nw.from_dict(dict(columns), backend=package).to_native()
    raise UserError("a data frame needs pandas, polars or pyarrow; install one: python -m pip install pandas")


def _labels(frame: Any) -> list[Any]:
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def _series(column: Any) -> Any:
    import narwhals.stable.v2 as nw  # scikit-learn needs it, too

    return nw.from_native(column, series_only=True)


def _numbers(name: str, label: str, series: Any) -> FloatArray:
    import narwhals.stable.v2 as nw

    kind, native = series.dtype, str(getattr(series.to_native(), "dtype", ""))
    mixed = kind == nw.Object and all(isinstance(value, Real | Decimal) for value in series.drop_nulls())
    empty, is_complex = series.null_count() == len(series), native.startswith("complex")
    if is_complex or not (kind.is_numeric() or kind == nw.Boolean or mixed or empty):
        kind_name = native if is_complex else str(kind).lower()
        raise UserError(
            f"{name}: expected numbers in column {label!r}, got {kind_name}; encode it as numbers, leave it out by "
            "naming the columns to use, or read the file by a schema (flareclust.read_table)"
        )
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
