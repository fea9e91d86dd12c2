"""Every fault of a table in every format: the same words in pieces as at once, with the place and without a value."""

import re
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flareclust._foundation.errors import UserError
from flareclust.core.chunks import is_mapped
from flareclust.data import tables
from flareclust.data.memory import RowStore
from flareclust.data.schema.columns import TableSchema
from flareclust.data.schema.reading import Typed
from flareclust.data.tables import File, Numbers, open_columns
from tests.unit.data.pieces_cases import NAMES, SUFFIXES, frame, read, write

pytestmark = pytest.mark.usefixtures("small_pieces")

SECRET = 271828.1828


def _gaps(*cells: tuple[int, int], value: float = np.nan) -> pd.DataFrame:
    data = frame()
    data["age"] = SECRET
    for i, j in cells:
        data.iloc[i, j] = value
    return data


def _text() -> pd.DataFrame:
    data = frame().astype({"height": object})
    data["height"] = [None] * 60 + [f"secret{SECRET}"] * 40
    return data


def _ids(*values: object) -> pd.DataFrame:
    data = frame(len(values))
    data.insert(1, "pid", list(values))
    return data


TEXT = ("csv", "parquet", "feather", "arrow")
NAMED = SUFFIXES[1:]
EVERY_ID = [f"{SECRET}-{i}" for i in range(100)]

#: What a fault is called: the formats that can have it, the table, what is asked of it, and what is said; {height} stands for
#: what the format calls the second column.
FAULTS: dict[str, tuple[tuple[str, ...], Callable[[], pd.DataFrame], dict[str, Any], str]] = {
    "a missing cell": (SUFFIXES, lambda: _gaps((37, 1)), {}, r"t\.\w+: 1 cell is missing, NaN or infinite, first in row 38, {height};"),
    "an infinite cell": (SUFFIXES, lambda: _gaps((99, 1), value=np.inf), {}, "1 cell is missing, NaN or infinite, first in row 100, {height};"),
    "missing cells": (SUFFIXES, lambda: _gaps((0, 1), (99, 2)), {}, "2 cells are .* first in row 1, {height}; drop these rows"),
    "half of the cells": (
        SUFFIXES, lambda: _gaps(*((i, j) for i in range(50, 100) for j in (1, 2))), {}, "100 cells are .* first in row 51, {height}; drop",
    ),
    "a column without any": (
        SUFFIXES, lambda: _gaps(*((i, 1) for i in range(100))), {}, "100 cells are .*, first in row 1, {height}; {height} without any value: choose",
    ),
    "text": (("csv",), _text, {}, "column 'height' is not numeric.*, first in row 61;"),
    "text with a type": (TEXT[1:], _text, {}, r"column 'height' is not numeric \(.*string\), first in row 61;"),
    "a column that is not there": (
        NAMED, frame, {"columns": ["wieght", "age", "zzz"]}, r"no column 'wieght' \(did you mean 'weight'.*\?\), 'zzz'; it has 'age'",
    ),
    "a column asked for twice": (SUFFIXES, frame, {"columns": ["age", "age"]}, "the columns asked for hold 'age' more than once"),
    "no column asked for": (SUFFIXES, frame, {"columns": []}, "an empty list of columns was asked for"),
    "no names to choose by": (("npy",), frame, {"columns": ["age"]}, "has no column names to choose by"),
    "no rows": (SUFFIXES, lambda: frame(0), {}, "no rows"),
    "no ids": (SUFFIXES, frame, {"id_name": "insurance"}, "has no column of the name that `id`"),
    "a missing id": (
        ("csv", "parquet", "feather"), lambda: _ids(*EVERY_ID[:70], None, *EVERY_ID[71:]), {"id_name": "pid"}, "an id is missing, first in row 71;",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "suffix"), [(fault, suffix) for fault, (formats, *_) in FAULTS.items() for suffix in formats]
)
def test_a_fault_is_named_with_its_place_and_no_value(tmp_path, fault, suffix):
    _, table, asked, words = FAULTS[fault]
    file, texts = write(tmp_path, suffix, table()), set()
    for memory in (None, 100):
        with pytest.raises(
            UserError, match=words.format(height="column 2" if suffix == "npy" else "column 'height'")
        ) as it:
            read(file, tmp_path, memory, **asked)
        shown = "".join(traceback.format_exception(it.value))  # with the chain of exceptions, as a log would show it
        assert not any(secret in shown.replace(__file__, "") for secret in ("secret", "271828", "insurance"))
        texts.add(str(it.value))
    assert len(texts) == 1


#: What damages a file, and the formats where it can be noticed: half a csv file is a shorter table, and only npz has a checksum.
DAMAGES: dict[str, tuple[tuple[str, ...], Callable[[bytes], bytes]]] = {
    "other bytes": (SUFFIXES, lambda whole: bytes(range(256)) * 3),
    "half of the file": (tuple(suffix for suffix in SUFFIXES if suffix != "csv"), lambda whole: whole[: len(whole) // 2]),
    "another byte": (("npz",), lambda whole: whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 255]) + whole[len(whole) // 2 + 1 :]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "suffix"), [(damage, suffix) for damage in DAMAGES for suffix in DAMAGES[damage][0]]
)
def test_a_damaged_file_is_a_users_error(tmp_path, damage, suffix):
    file = write(tmp_path, suffix, frame(1000))
    file.path.write_bytes(DAMAGES[damage][1](file.path.read_bytes()))
    numpy = r" is not a NumPy file of plain numbers, or it is damaged" if suffix in ("npy", "npz") else ""
    for memory in (None, 100):
        with pytest.raises(UserError, match=rf"^t\.{suffix}\b{numpy}"):
            read(file, tmp_path, memory)


class _Growing(RowStore):
    """A store during whose reading another process goes on writing the file."""

    def __init__(self, file: File, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.file = file

    def add(self, rows: Any) -> None:
        with self.file.path.open("ab") as out:
            out.write(b"1")
        super().add(rows)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("memory", [None, 100])
def test_a_table_that_is_being_written_is_not_used(tmp_path, suffix, memory):
    file, words = (
        write(tmp_path, suffix, frame()),
        "changed while it was read, .* write a table or images to another name, rename",
    )
    with pytest.raises(UserError, match=rf"^t\.{suffix} {words}"):
        Numbers().read([file], _Growing(file, memory, tmp_path))
    if suffix in TEXT:
        file = write(tmp_path, suffix, frame())
        with pytest.raises(UserError, match=rf"^t\.{suffix} {words}"):
            Typed(NUMBERS).read([file], _Growing(file, memory, tmp_path))


class _Replacing(RowStore):
    """A store during whose reading another table gets the name of the file."""

    def __init__(self, new: Path, file: File, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.new, self.file = new, file

    def check_fits(self, size: int, place: str) -> None:  # before the rows are read
        if self.new.exists():
            self.new.replace(self.file.path)
        super().check_fits(size, place)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is refused")
@pytest.mark.parametrize("memory", [None, 100])
@pytest.mark.parametrize(("suffix", "typed"), [*((s, False) for s in SUFFIXES), *((s, True) for s in TEXT)])
def test_a_table_that_is_renamed_over_the_one_being_read_leaves_the_old_rows(tmp_path, suffix, memory, typed):
    (tmp_path / "new").mkdir()
    new, file = write(tmp_path / "new", suffix, frame(1000) + 1).path, write(tmp_path, suffix, frame())
    table = (Typed(NUMBERS) if typed else Numbers()).read([file], _Replacing(new, file, memory, tmp_path))
    np.testing.assert_allclose(table.X, frame(), rtol=1e-15)
    assert not new.exists()
    assert read(file, tmp_path, memory).shape == (1000, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is refused")
def test_a_csv_file_of_another_encoding_may_be_replaced_while_it_is_read(tmp_path):
    file, new = File(tmp_path / "t.csv", "t.csv"), tmp_path / "new.csv"
    file.path.write_text("größe\n1\n2\n", encoding="latin-1")
    new.write_text("größe\n3\n" * 9, encoding="latin-1")
    with open_columns(file, "latin-1") as source:
        new.replace(file.path)
        assert [cells[0].to_pylist() for cells in source.cells(["größe"])] == [["1", "2"]]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_a_path_to_an_open_file_a_replaced_table_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(tables, "_held", nullcontext)
    (tmp_path / "new").mkdir()
    new, file = write(tmp_path / "new", suffix, frame(1000) + 1).path, write(tmp_path, suffix, frame())
    with pytest.raises(UserError, match=rf"^t\.{suffix} changed while it was read"):
        Numbers().read([file], _Replacing(new, file, 100, tmp_path))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_objects_and_pickles_are_refused(tmp_path, suffix):
    cells, file = np.array([[SECRET, "secret"]], dtype=object), File(tmp_path / f"t.{suffix}", f"t.{suffix}")
    np.save(file.path, cells, allow_pickle=True) if suffix == "npy" else np.savez(file.path, X=cells)
    with pytest.raises(UserError, match="arrays of objects and pickles are not read"):
        read(file, tmp_path)


#: What the same faults are called where the table is read by a schema whose columns are all numbers.
BY_SCHEMA = {
    "a missing cell": "height: 1 cell is missing, first in row 38",
    "an infinite cell": "height: 1 cell is no number, first in row 100",
    "missing cells": "height: 1 cell is missing, first in row 1 .*; weight: 1 cell is missing, first in row 100",
    "half of the cells": "height: 50 cells are missing, first in row 51 .*; weight: 50 cells are missing, first in row 51",
    "a column without any": "height: 100 cells are missing, first in row 1",
    "text": "height: 40 cells are no number, first in row 61",
    "no rows": "no rows",
}
NUMBERS = TableSchema(columns=dict.fromkeys(NAMES, "number"))


@pytest.mark.parametrize("suffix", TEXT)
@pytest.mark.parametrize("fault", BY_SCHEMA)
def test_a_fault_is_found_by_a_schema_of_numbers_too(tmp_path, fault, suffix):
    file, texts = write(tmp_path, suffix, FAULTS[fault][1]()), set()
    for memory in (None, 100):
        with pytest.raises(UserError) as it:
            Typed(NUMBERS).read([file], RowStore(memory, tmp_path))
        texts.add(str(it.value))
        assert not any(secret in str(it.value) for secret in ("secret", "271828"))
    assert len(texts) == 1
    assert re.search(BY_SCHEMA[fault], texts.pop().replace("\n", " ")), it.value


@pytest.mark.parametrize("suffix", TEXT)
def test_a_table_of_numbers_is_one_by_a_schema_of_numbers(tmp_path, suffix):
    file = write(tmp_path, suffix, frame())
    for memory in (None, 100):
        typed = Typed(NUMBERS).read([file], RowStore(memory, tmp_path))
        plain = read(file, tmp_path, memory)
        np.testing.assert_array_equal(typed.X, plain.X)
        assert (typed.columns, is_mapped(typed.X)) == (plain.columns, memory is not None)
