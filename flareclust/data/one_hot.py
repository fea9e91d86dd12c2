"""Rows of a data frame in the columns of a result, where categories are columns of 0 and 1 such as `sex=f`, and words are numbers."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.data.frames import names_of, table_of
from flareclust.data.tables import Table
from flareclust.data.words import is_missing, numbers_of_words

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


_NO_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def rows_of(frame: Any, columns: Sequence[str], words: Mapping[str, Sequence[str]] = _NO_WORDS) -> FloatArray:
    """Return the rows (n, d) of a data frame in these columns; a category may be one column of its values.

    Args:
        frame: of pandas, polars or pyarrow, or a table with names, which holds features.
        columns: of the result (d,).
        words: which of them may hold words, with the values of an ordered column, none for dates.

    Raises:
        UserError: a column is missing, or holds something else than numbers, words or the values of the category.
    """
    if isinstance(frame, Table):
        return table_of("X", frame, columns, may_be_empty=True).X
    names = names_of(frame)
    parts: dict[tuple[int, ...], FloatArray] = {
        tuple(places): _indicators(frame, name, list(places.values()))
        for name, places in raw_columns(columns, names).items()
    }
    for j, name in enumerate(columns):
        if name in words and name in names:
            parts[(j,)] = numbers_of_words(name, _cells(frame, name), words[name])[:, None]
    made = {j for places in parts for j in places}
    plain = [j for j in range(len(columns)) if j not in made]
    if plain:
        parts[tuple(plain)] = table_of("X", frame, [columns[j] for j in plain], may_be_empty=True).X
    X = np.empty((len(next(iter(parts.values()))), len(columns)))
    for at, values in parts.items():
        X[:, list(at)] = values
    return X


def _cells(frame: Any, name: str) -> list[Any]:
    import narwhals.stable.v2 as nw

    cells: list[Any] = nw.from_native(frame)[name].to_list()
    return cells


def _indicators(frame: Any, name: str, values: Sequence[str]) -> FloatArray:
    """Return the columns (n, v) of a category's values; NaN where the cell is missing."""
    cells = _cells(frame, name)
    texts = [_MISSING if is_missing(cell) else str(cell) for cell in cells]
    found = np.array([[float(text == value) for value in values] for text in texts]).reshape(len(texts), len(values))
    none = np.array([is_missing(cell) for cell in cells], dtype=bool)
    if _MISSING not in values:
        found[none] = np.nan
    if ((found == 0).all(axis=1)).any():
        raise UserError(f"X: column {name!r} holds values other than {', '.join(values)}, which the run did not have")
    return found
