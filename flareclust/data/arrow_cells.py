"""Arrow arrays of what databases and data frames hold: values of Python, some of which no Arrow type has, or of several types.

What a cell becomes does not depend on the cells around it, so that tables can be read a part at a time.
"""

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

#: Integers of Arrow are below this, and integers below that are different numbers as floats, too.
_INT64, _EXACT = 2**63, 2**53

#: Stands for a cell that is neither a number, a text nor a date, and so no value of any column.
NO_TEXT = "\0"


def arrow_of(values: Sequence[Any]) -> Any:
    """Return values (n,) as an Arrow array: numbers, texts, booleans; dates are texts such as 2024-12-31, without a time of day.

    Decimals become integers or 64-bit floats. Values of several types become texts, each as it would be alone.
    """
    import pyarrow as pa

    cells = [_plain(value) for value in values]
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        pass
    if all(cell is None or isinstance(cell, int | float) for cell in cells):  # integers that Arrow has no type for
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array([_text(cell) for cell in cells], pa.string())


def decoded(array: Any) -> Any:
    """Return an Arrow array, or one in chunks, as one array of a type that the readers know."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind, of = array.type, pa.types
    if of.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if of.is_decimal(kind) or of.is_time(kind) or of.is_duration(kind):
        return arrow_of(array.to_pylist())
    return array.cast(pa.large_string()) if str(kind) == "string_view" else array


def _plain(value: Any) -> Any:
    if value is None or type(value) in (int, float, str, bool):
        return value
    if isinstance(value, Decimal):
        if value.is_finite() and value == value.to_integral_value() and abs(value) < _INT64:
            return int(value)
        return float(value) if not value.is_snan() else None
    if isinstance(value, date):  # so is NaT, which is no day
        return None if str(value) == "NaT" else value.isoformat()[:10]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Real):
        return value
    return value if isinstance(value, list | dict) else str(value)


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT:
        cell = int(cell)
    if isinstance(cell, float) and math.isnan(cell):
        return None
    return str(cell) if isinstance(cell, int | float) else NO_TEXT
