"""Ids of rows: read beside them, piece by piece too, and never disclosed."""

import numpy as np
import pandas as pd
import pytest

from flareclust._foundation.errors import UserError
from flareclust.data.tables import File
from tests.unit.data.pieces_cases import NAMES, frame, read, write

SECRET = 271828.1828


pytestmark = pytest.mark.usefixtures("small_pieces")


# --- ids ---
def with_ids(values: list) -> pd.DataFrame:
    data = frame(len(values))
    data.insert(1, "pid", values)
    return data


@pytest.mark.parametrize("memory", [None, 100])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "arrow"])
@pytest.mark.parametrize("values", [[f"p,{i}" for i in range(100)], list(range(7000, 7100))])
def test_ids_are_text_beside_the_rows(tmp_path, suffix, memory, values):
    table = read(write(tmp_path, suffix, with_ids(values)), tmp_path, memory, id_name="pid")
    assert table.columns == NAMES
    assert list(table.ids) == list(map(str, values))
    assert [table.ids[row] for row in (0, 57, -1)] == [str(values[row]) for row in (0, 57, -1)]
    with pytest.raises(IndexError):
        table.ids[100]
    assert str(values[57]) not in repr(table)
    assert "array" not in repr(table)
    np.testing.assert_array_equal(frame().to_numpy(), table.X)
    chosen = read(write(tmp_path, suffix, with_ids(values)), tmp_path, memory, id_name="pid", columns=["weight"])
    np.testing.assert_array_equal(frame().to_numpy()[:, [2]], chosen.X)
    assert list(chosen.ids) == list(map(str, values))


@pytest.mark.parametrize("memory", [None, 100])
def test_ids_in_npz_are_an_array_or_a_column(tmp_path, memory):
    X, ids = frame().to_numpy(), np.arange(7000, 7100)
    columns = np.array(["age", "pid", "height", "weight"])
    np.savez(tmp_path / "array.npz", X=X, columns=np.array(NAMES), pid=np.array([f"p{i}" for i in ids]))
    np.savez(tmp_path / "column.npz", X=np.insert(X, 1, ids, axis=1), columns=columns)
    np.savez(tmp_path / "bare.npz", X=X, pid=ids)
    for name, prefix, names in (("array", "p", NAMES), ("column", "", NAMES), ("bare", "", None)):
        table = read(File(tmp_path / f"{name}.npz", f"{name}.npz"), tmp_path, memory, id_name="pid")
        assert list(table.ids) == [f"{prefix}{i}" for i in ids]
        assert table.columns == names
        np.testing.assert_array_equal(X, table.X)


def test_ids_of_several_files_follow_one_another(tmp_path):
    files = [write(tmp_path, "csv", with_ids([f"{name}{i}" for i in range(40)]), name) for name in "ab"]
    assert list(read(files, tmp_path, id_name="pid").ids) == [f"{name}{i}" for name in "ab" for i in range(40)]


def test_a_stored_pandas_index_can_be_the_id(tmp_path):
    with_ids([(7 * i) % 50 for i in range(50)]).set_index("pid").to_parquet(tmp_path / "t.parquet")
    table = read(File(tmp_path / "t.parquet", "t.parquet"), tmp_path, id_name="pid")
    assert table.columns == NAMES
    assert list(table.ids) == [str((7 * i) % 50) for i in range(50)]


def test_categories_and_text_with_line_ends_are_ids(tmp_path):
    values = [f"p\n{i % 5}" for i in range(50)]
    file = write(tmp_path, "parquet", with_ids(values).astype({"pid": "category"}))
    assert list(read(file, tmp_path, id_name="pid").ids) == values


def test_the_id_is_not_among_the_columns_that_a_message_lists(tmp_path):
    file = write(tmp_path, "csv", with_ids([f"{SECRET}" for _ in range(50)]))
    with pytest.raises(UserError, match=r"no column 'wight'.*it has 'age', 'height', 'weight'$") as caught:
        read(file, tmp_path, id_name="pid", columns=["wight"])
    assert "pid" not in str(caught.value)
    assert "271828" not in str(caught.value)


def test_ids_are_not_in_what_a_table_shows_of_itself(tmp_path):
    table = read(write(tmp_path, "csv", with_ids([f"patient {i}" for i in range(50)])), tmp_path, id_name="pid")
    assert "patient" not in repr(table)


def test_an_array_of_ids_must_be_as_long_as_the_rows(tmp_path):
    np.savez(tmp_path / "t.npz", X=frame().to_numpy(), pid=np.arange(99))
    with pytest.raises(UserError, match="one entry per row"):
        read(File(tmp_path / "t.npz", "t.npz"), tmp_path, id_name="pid")


def test_ids_have_no_spaces_around_them_and_floats_are_told_apart(tmp_path):
    assert list(read(write(tmp_path, "parquet", with_ids(["p1", " p1", "p2 "])), tmp_path, id_name="pid").ids) == [
        "p1",
        "p1",
        "p2",
    ]
    with pytest.raises(UserError, match="too large to tell apart"):
        read(write(tmp_path, "parquet", with_ids([1.0, 2.0**53])), tmp_path, id_name="pid")
