"""Rows of a data frame in the columns of a result, where categories are columns of 0 and 1 such as `sex=f`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.data.frames import names_of, table_of

#: The value that stands for a missing cell of a category, where the schema has it.
_MISSING = "missing"


def raw_columns(columns: Sequence[str], present: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the categories that a frame has as they were read: by name, the places of the columns and the value of each.

    Args:
        columns: of the result (d,), a category's called like `sex=f`.
        present: columns of the frame.
    """
    found: dict[str, dict[int, str]] = {}
    for j, column in enumerate(columns):
        name, equals, value = column.partition("=")
        if equals and column not in present and name in present and name not in columns:
            found.setdefault(name, {})[j] = value
    return found


def rows_of(frame: Any, columns: Sequence[str]) -> FloatArray:
    """Return the rows (n, d) of a data frame in these columns; a category may be one column of its values.

    Raises:
        UserError: a column is missing, or holds something else than numbers or the values of the category.
    """
    raw = raw_columns(columns, names_of(frame))
    made = {j for places in raw.values() for j in places}
    plain = [column for j, column in enumerate(columns) if j not in made]
    if not raw:
        return table_of("X", frame, plain, may_be_empty=True).X
    parts = {name: _indicators(frame, name, list(places.values())) for name, places in raw.items()}
    X = np.empty((len(next(iter(parts.values()))), len(columns)))
    if plain:
        X[:, [j for j in range(len(columns)) if j not in made]] = table_of("X", frame, plain, may_be_empty=True).X
    for name, places in raw.items():
        X[:, list(places)] = parts[name]
    return X


def _indicators(frame: Any, name: str, values: Sequence[str]) -> FloatArray:
    """Return the columns (n, v) of a category's values; NaN where the cell is missing."""
    import narwhals.stable.v2 as nw

    cells = nw.from_native(frame)[name].to_list()
    texts = [_MISSING if _is_missing(cell) else str(cell) for cell in cells]
    found = np.array([[float(text == value) for value in values] for text in texts]).reshape(len(texts), len(values))
    none = np.array([_is_missing(cell) for cell in cells], dtype=bool)
    if _MISSING not in values:
        found[none] = np.nan
    if ((found == 0).all(axis=1)).any():
        raise UserError(f"X: column {name!r} holds values other than {', '.join(values)}, which the run did not have")
    return found


def _is_missing(cell: object) -> bool:
    return bool(cell is None or cell == "" or (isinstance(cell, float) and np.isnan(cell)))
