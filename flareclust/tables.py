"""Tables of numbers: from a file or an array to checked rows.

The rows are private, so no message here or in `tables_formats` ever shows a value: it names the file, the column and
the row number, counted from 1 and without the header.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from flareclust import tables_formats as formats
from flareclust.errors import UserError
from flareclust.typing import Array, FloatArray
from flareclust.validation import did_you_mean

_READERS = {
    ".npy": formats.read_numpy,
    ".npz": formats.read_numpy,
    ".csv": formats.read_csv,
    ".parquet": formats.read_parquet,
    ".arrow": formats.read_arrow,
    ".feather": formats.read_arrow,
}

#: The formats that `read_table` knows.
SUFFIXES: tuple[str, ...] = tuple(_READERS)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, and what their columns are called.

    Attributes:
        X: (n, d) float64, C-contiguous; finite and with at least one row where it was read from a file.
        columns: the d column names, or None where there are none.
        salt: the secret that several sites hash the names of their columns with, "" for none.
        hidden: names that do not leave the site.
    """

    X: FloatArray
    columns: tuple[str, ...] | None = None
    salt: str = field(default="", repr=False)
    hidden: frozenset[str] = frozenset()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.X)


#: The rows of one site: an array (n, d), the same with the names of its columns, or the file they are in.
Rows = FloatArray | Table | Path


def read_table(
    path: str | Path, columns: Sequence[str] | None = None, *, may_lack: bool = False, where: str = ""
) -> Table:
    """Read a table of numbers; the suffix says the format.

    - `.npy`: a 2-D array.
    - `.npz`: the array `X`, or else the only 2-D one; an array of strings `columns`, where there is one, names its
      columns.
    - `.csv`: UTF-8, separated by comma, semicolon or tab. A first row of numbers is data, a first row of words is the
      header; so is any first row when columns are asked for by name.
    - `.parquet`, `.arrow`, `.feather` (version 2): all columns except a stored pandas index.

    Args:
        path: the file.
        columns: the names of the columns to read, in this order; None reads all.
        may_lack: whether the file may lack some of them, but not all.
        where: put in front of every message, such as "site-3".

    Raises:
        UserError: no such file, unknown suffix, no rows, columns that are missing, not numeric or named twice,
            missing or infinite values.
    """
    file = Path(path)
    place = f"{where}: {file}" if where else str(file)
    wanted = _wanted(columns, place)
    if file.is_dir():
        raise UserError(f"{place} is a folder; a table is one file with the suffix {', '.join(SUFFIXES)}")
    if not file.is_file():
        raise UserError(f"{place}: no such file")
    if (read := _READERS.get(file.suffix.lower())) is None:
        raise UserError(f"{place}: unknown suffix {file.suffix!r}; a table has one of {', '.join(SUFFIXES)}")
    try:
        if file.stat().st_size == 0:
            raise UserError(f"{place} is empty; a table needs at least one row")
        rows, names = read(file, wanted, lambda names: _positions(names, wanted, may_lack, place), place)
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror or 'the file is damaged'}") from None
    return Table(_checked(rows, names, place, allow_empty=False), names)


def check_rows(X: ArrayLike, *, where: str, allow_empty: bool = False) -> FloatArray:
    """Return X as (n, d) float64, C-contiguous and finite; the same array where it already is that.

    Booleans count as 0 and 1. `where` is put in front of every message.

    Raises:
        UserError: not 2-D, no columns, no rows (unless `allow_empty`), not real numbers, missing or infinite values.
    """
    return _checked(X, None, where, allow_empty)


def _wanted(columns: Sequence[str] | None, place: str) -> tuple[str, ...] | None:
    if columns is None:
        return None
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    if not wanted:
        raise UserError(f"{place}: an empty list of columns was asked for; name at least one, or leave it out for all")
    _refuse_repeats(wanted, f"{place}: the columns asked for")
    return wanted


def _positions(
    names: tuple[str, ...] | None, wanted: tuple[str, ...] | None, may_lack: bool, place: str
) -> list[int] | None:
    """Return where the wanted columns are among `names`; None stands for all."""
    if names is None:
        if wanted is not None:
            raise UserError(f"{place} has no column names to choose by; an array `columns` (.npz) can name them")
        return None
    if wanted is None:
        _refuse_repeats(names, f"{place}: the column names")
        return None
    missing = [name for name in wanted if name not in names]
    if may_lack and len(missing) < len(wanted):
        wanted = tuple(name for name in wanted if name in names)
    elif missing:
        hints = ", ".join(f"{name!r}{did_you_mean(name, names)}" for name in missing)
        raise UserError(f"{place} has no column {hints}; it has {formats.listed(names)}")
    _refuse_repeats([name for name in names if name in wanted], f"{place}: the column names")
    return [names.index(name) for name in wanted]


def _refuse_repeats(names: Sequence[str], subject: str) -> None:
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"{subject} hold {formats.listed(repeated)} more than once; every name must differ")


def _checked(X: ArrayLike, columns: tuple[str, ...] | None, where: str, allow_empty: bool) -> FloatArray:
    rows = _as_array(X, where)
    if rows.ndim != 2:
        advice = "; reshape(-1, 1) makes one column of a list of numbers" if rows.ndim == 1 else ""
        raise UserError(f"{where}: expected a 2-D array (n, d), got {rows.ndim}-D of shape {rows.shape}{advice}")
    if rows.shape[1] == 0:
        raise UserError(f"{where}: there are no columns (shape {rows.shape}); expected at least one")
    if rows.shape[0] == 0 and not allow_empty:
        raise UserError(f"{where}: there are no rows (shape {rows.shape}); expected at least one")
    if rows.dtype.kind not in "biuf":
        raise UserError(f"{where}: {_why_not_real(rows, columns)}")
    result = np.ascontiguousarray(rows, dtype=np.float64)
    _refuse_nonfinite(result, columns, where)
    return result


def _as_array(X: ArrayLike, where: str) -> Array:
    if isinstance(X, np.ma.MaskedArray):  # a masked cell is a missing one; asarray would bring back what lies under it
        return np.asarray(np.ma.filled(X.astype(np.float64), np.nan))
    try:
        return np.asarray(X)
    except ValueError:
        raise UserError(f"{where}: the rows differ in length; expected n rows of d numbers each") from None


def _why_not_real(rows: Array, columns: tuple[str, ...] | None) -> str:
    if rows.dtype.kind != "O":
        return f"expected real numbers, got {rows.dtype}; encode them as numbers or leave them out"
    for j in range(rows.shape[1]):
        for i, cell in enumerate(rows[:, j]):
            if not isinstance(cell, Real):
                column = formats.called(columns, j)
                return f"{column} is not numeric, first in row {i + 1}; encode it as numbers or leave it out"
    return "expected real numbers, got objects; convert them with X.astype(float)"


def _refuse_nonfinite(X: FloatArray, columns: tuple[str, ...] | None, where: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(X.sum()):  # one pass and no (n, d) mask in the usual case
            return
    bad = ~np.isfinite(X)
    if count := int(bad.sum()):
        i, j = divmod(int(bad.argmax()), X.shape[1])
        cells = "cell is" if count == 1 else "cells are"
        empty = [formats.called(columns, int(j)) for j in np.flatnonzero(bad.all(axis=0))[:12]] if len(X) > 1 else []
        advice = (
            f"{', '.join(empty)} without any value: choose the others" if empty else "drop these rows or fill them in"
        )
        raise UserError(
            f"{where}: {count} {cells} missing, NaN or infinite, first in row {i + 1}, {formats.called(columns, j)}; {advice}"
        )
