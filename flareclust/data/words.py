"""Cells of a data frame that are words in place of numbers: values of an ordered column, and dates."""

from collections.abc import Sequence
from datetime import date, timedelta
from numbers import Real

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray

#: The first of the days that dates are counted in.
_START = date(1970, 1, 1)

#: The unit of a date's feature.
DAYS = "days since 1970-01-01"


def numbers_of_words(name: str, cells: Sequence[object], values: Sequence[str]) -> FloatArray:
    """Return the features (n,) of the cells of one column; NaN where one is missing.

    Args:
        name: of the column, for messages.
        cells: of an ordered column its values, of a date ISO texts or dates. Numbers are features already.
        values: of an ordered column in their order; none for a date.

    Raises:
        UserError: a cell is something else; or numbers may be values as well as places.
    """
    texts = [None if is_missing(cell) else cell for cell in cells]
    if any(isinstance(cell, Real) for cell in texts) and not takes_numbers(values):
        raise UserError(
            f"X: numbers in the ordered column {name!r} may be values or their places; give values as texts, or read the file by the "
            "schema (flareclust.read_table)"
        )
    places = {value: float(place) for place, value in enumerate(values)}
    try:
        read = [np.nan if cell is None else _number(cell, places) for cell in texts]
    except (KeyError, ValueError):
        what = f"other values than {', '.join(values)}" if values else "values that are no dates such as 2024-12-31"
        raise UserError(f"X: column {name!r} holds {what}") from None
    return np.array(read, dtype=np.float64)


def takes_numbers(values: Sequence[str]) -> bool:
    """Return whether numbers in a column of words can only be features: its values do not look like numbers, or like their places."""
    return not any(_is_number(value) and value != str(place) for place, value in enumerate(values))


def iso_date(days: float) -> str:
    """Return the ISO date of days since 1970-01-01, to the nearest day; the number of days where there is no such date."""
    try:
        return (_START + timedelta(days=round(days))).isoformat()
    except (OverflowError, ValueError):
        return f"{days:.4g}"


def is_missing(cell: object) -> bool:
    """Return whether a cell of a data frame is a missing one: None, NaN, pandas' NaT and NA, or an empty text."""
    if cell is None or type(cell).__name__ in ("NaTType", "NAType"):
        return True
    return cell == "" if isinstance(cell, str) else isinstance(cell, float) and bool(np.isnan(cell))


def _number(cell: object, places: dict[str, float]) -> float:
    if isinstance(cell, Real):
        return float(cell)
    text = cell.isoformat() if isinstance(cell, date) else str(cell).strip()
    if places:
        return places[text]
    day = text[:10] if len(text) > 10 and text[10] in " T" else text
    if len(day) != 10:  # Python 3.11 reads more forms than sites' files may have
        raise ValueError(day)
    return float((date.fromisoformat(day) - _START).days)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
