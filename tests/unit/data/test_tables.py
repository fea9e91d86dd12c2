"""Tables are read to the last bit in every format."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flareclust._foundation.errors import UserError
from flareclust.core.arrays import turn
from flareclust.data.arrow_files import stack
from flareclust.data.cells import check_rows
from flareclust.data.tables import read_table


def test_npz_without_an_x_gives_its_only_matrix_and_refuses_to_choose(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", y=np.arange(3), rows=np.ones((3, 2)))
    assert read_table(tmp_path / "one.npz").X.shape == (3, 2)
    np.savez(tmp_path / "two.npz", a=np.ones((3, 2)), b=np.ones((3, 2)))
    with pytest.raises(UserError, match="exactly one 2-D array, got 'a', 'b'"):
        read_table(tmp_path / "two.npz")


@pytest.mark.parametrize(
    ("text", "expected", "names"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None),
        ("a,b\n1,2\n3,4\n", [[1, 2], [3, 4]], ("a", "b")),
        ("\ufeffa,b\r\n1,2\r\n", [[1, 2]], ("a", "b")),
        ("\n\na;b\n1;2\n\n3;4", [[1, 2], [3, 4]], ("a", "b")),
        ("a\tb\n1\t2e3\n", [[1, 2000]], ("a", "b")),
        ('"a, b",c\n1, -2\n', [[1, -2]], ("a, b", "c")),
        ("2019,x\n1,2\n", [[1, 2]], ("2019", "x")),
        ("5\n6\n", [[5], [6]], None),
    ],
)
def test_csv_headers_and_separators_are_recognised(
    tmp_path: Path, text: str, expected: list[list[float]], names: tuple[str, ...] | None
) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode())
    table = read_table(tmp_path / "t.csv")
    np.testing.assert_array_equal(expected, table.X)
    assert table.columns == names


def test_text_columns_do_no_harm_where_they_are_not_chosen(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,2019\np1,3\np2,4\n")
    np.testing.assert_array_equal([[3], [4]], read_table(tmp_path / "t.csv", columns=["2019"]).X)
    pd.DataFrame({"id": ["p1", "p2"], "x": [3, 4]}).to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal([[3], [4]], read_table(tmp_path / "t.parquet", columns=["x"]).X)


@pytest.mark.parametrize("text", ["secret,271828.1828\nsecret,3\n", "271828.1828,5\n2,3\n"])
def test_the_first_row_of_a_file_without_header_is_not_shown_as_its_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match="no column 'secrets', and its first row looks like data") as caught:
        read_table(tmp_path / "t.csv", columns=["secrets"])
    assert "'secret'" not in str(caught.value)
    assert "271828" not in str(caught.value)


def test_a_stored_pandas_index_is_not_a_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [3.0, 4.0, 5.0], "pid": [7, 9, 8]}).set_index("pid")
    frame.to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").columns == ("x",)
    assert read_table(tmp_path / "t.parquet", columns=["pid"]).X.tolist() == [[7], [9], [8]]


def test_parquet_names_with_dots_do_not_bring_their_neighbours(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1], "a.b": [2], "c": [3]}).to_parquet(tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet", columns=["c", "a"]).X.tolist() == [[3, 1]]


def test_arrow_integers_booleans_and_decimals_are_numbers_in_files_and_streams(tmp_path: Path) -> None:
    columns = {
        "i": pa.array([1, 2], pa.int8()),
        "b": [True, False],
        "d": pa.array(["1.5", "2.5"]).cast(pa.decimal128(5, 2)),
    }
    table, path = pa.table(columns), tmp_path / "t.arrow"
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
        assert read_table(path).X.tolist() == [[1, 1, 1.5], [2, 0, 2.5]]


@pytest.mark.parametrize(("n", "d"), [(0, 2), (1, 1), (131_073, 3), (5, 40_000), (700, 400)])
def test_columns_become_rows_whether_they_fit_in_a_block_or_not(n: int, d: int) -> None:
    X = np.random.default_rng(0).normal(size=(n, d))
    X[1::7, -1] = np.nan
    columns = [pa.array(column, mask=np.isnan(column)) for column in X.T]
    if n > 1:
        columns[0], X[:, 0] = pa.array(np.arange(n, dtype=np.int16)), np.arange(n, dtype=np.int16)
    rows = stack(columns)
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, X)


def test_all_forms_of_columns_become_rows_by_one_compiled_kernel() -> None:
    whole = pa.array(np.arange(9.0))
    off = pa.Array.from_buffers(pa.float64(), 3, [None, pa.py_buffer(b"0" + np.arange(3.0).tobytes()).slice(1)])
    assert not off.to_numpy().flags.aligned
    columns = [whole.slice(2, 3), off, pa.array([1.5, None, 2.5]), pa.nulls(3), pa.array([1, 2, 3], pa.uint8())]
    expected = np.column_stack([column.cast(pa.float64()).to_numpy(zero_copy_only=False) for column in columns])
    np.testing.assert_array_equal(stack(columns), expected)
    np.testing.assert_array_equal(stack(columns * 4), np.tile(expected, 4))
    assert len(turn.signatures) == 1


def test_no_columns_are_no_rows() -> None:
    assert stack([]).shape == (0, 0)


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e300, 1e300)))
def test_check_rows_returns_finite_float64_arrays_untouched(X: np.ndarray) -> None:
    assert check_rows(X, where="x") is X


def test_check_rows_allows_no_rows_where_asked_and_huge_finite_sums() -> None:
    assert check_rows(np.ones((0, 2)), where="x", allow_empty=True).shape == (0, 2)
    X = np.full((2, 2), 1e308)  # the sum overflows, the cells do not
    assert check_rows(X, where="x") is X
    np.testing.assert_array_equal([[1.0, 0.0]], check_rows(np.array([[True, False]]), where="x"))
