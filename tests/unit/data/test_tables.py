"""Tables are read to the last bit in every format, and faults are named without showing a value."""

import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flareclust._foundation.errors import UserError
from flareclust.data.tables import check_rows, read_table

NAMES = ("age", "height", "weight")
SECRET = 271828.1828


def _write(path: Path, X: np.ndarray, names: tuple[str, ...] = NAMES) -> Path:
    frame = pd.DataFrame(X, columns=list(names))
    match path.suffix:
        case ".npy":
            np.save(path, X)
        case ".npz":
            np.savez(path, X=X, columns=np.array(names))
        case ".csv":
            frame.to_csv(path, index=False, float_format="%.17g")
        case ".parquet":
            frame.to_parquet(path)
        case ".feather":
            frame.to_feather(path)
        case ".arrow":
            _write_arrow(path, pa.table(frame))
    return path


def _write_arrow(path: Path, table: pa.Table, *, stream: bool = False) -> None:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".feather", ".arrow"])
def test_every_format_gives_back_the_same_rows(tmp_path: Path, suffix: str) -> None:
    X = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-8, 10, 6)
    table = read_table(_write(tmp_path / f"t{suffix}", X))
    np.testing.assert_array_equal(X, table.X)
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    assert table.columns == (None if suffix == ".npy" else NAMES)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".feather", ".arrow"])
def test_columns_are_chosen_by_name_in_the_order_asked_for(tmp_path: Path, suffix: str) -> None:
    X = np.arange(12.0).reshape(4, 3)
    table = read_table(_write(tmp_path / f"t{suffix}", X), columns=["weight", "age"])
    np.testing.assert_array_equal(X[:, [2, 0]], table.X)
    assert table.columns == ("weight", "age")
    assert table.X.flags.c_contiguous


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet", ".feather", ".arrow"])
def test_a_missing_column_is_named_with_the_nearest_one(tmp_path: Path, suffix: str) -> None:
    path = _write(tmp_path / f"t{suffix}", np.ones((2, 3)))
    with pytest.raises(UserError, match=r"no column 'wieght' \(did you mean 'weight'.*\?\), 'zzz'; it has 'age'"):
        read_table(path, columns=["wieght", "age", "zzz"])


def test_other_layouts_and_dtypes_become_c_contiguous_float64(tmp_path: Path) -> None:
    X = np.asfortranarray(np.arange(6, dtype=np.int16).reshape(3, 2))
    np.save(tmp_path / "t.npy", X)
    table = read_table(tmp_path / "t.npy")
    assert (table.X.dtype, table.X.flags.c_contiguous) == (np.dtype(np.float64), True)
    np.testing.assert_array_equal([[0, 1], [2, 3], [4, 5]], table.X)


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
    _write_arrow(tmp_path / "t.arrow", pa.table(columns))
    _write_arrow(tmp_path / "stream.arrow", pa.table(columns), stream=True)
    for name in ("t.arrow", "stream.arrow"):
        assert read_table(tmp_path / name).X.tolist() == [[1, 1, 1.5], [2, 0, 2.5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "no rows"),
        ("a,b\n", "no rows"),
        (",a\n0,1\n", "column 1 has no name.*index=False"),
        ("a,b,a\n1,2,3\n", "hold 'a' more than once"),
        ("a,b\n1,2\n3,secret\n", "column 'b' is not numeric, first in row 2;"),
        ("1,2\n3,4\n5,secret\n", "column 2 is not numeric, first in row 3;"),
        ("1,secret\n3,secret\n", "column 2 is not numeric, first in row 1;"),
        ("secret,secret\nsecret,secret\n", "column 1 is not numeric, first in row 1;"),
        ("secret,\nsecret,3\n", "column 1 is not numeric, first in row 1;"),
        ("secret,4\n,3\n", "column 1 is not numeric, first in row 1;"),
        ("NA,271828.1828\n1,2\n", "1 cell is missing, NaN or infinite, first in row 1, column 1;"),
        ("a,b\n1,2\n271828.1828\n", "row 2 has 1 cells, the first has 2"),
        ("a,b\n1,2\n3,\n,6\n", "2 cells are missing, NaN or infinite, first in row 2, column 'b'"),
        ("1,2\n3,inf\n", "1 cell is missing, NaN or infinite, first in row 2, column 2"),
        ("a,b\nNA,2\n", "1 cell is missing, NaN or infinite, first in row 1, column 'a'"),
        ("a,b\n1,2\n3,secret" + "secret" * 30_000 + "\n", "row 2 is no text .an open quotation mark, an overlong cell"),
        ("a,b\n2,3\n" + "1,2\n" * 200_000 + "1,secret\n", "column 'b' is not numeric, first in row 200002;"),
    ],
)
def test_csv_faults_are_named_without_a_value(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        read_table(tmp_path / "t.csv", where="site-3")
    shown = "".join(traceback.format_exception(caught.value))  # with the chain of exceptions, as a log would show it
    assert "secret" not in shown
    assert "271828" not in shown
    assert str(caught.value).startswith("site-3: ")


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_text_and_missing_cells_in_arrow_formats_are_named(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"x": [1.0, None], "sex": [None, "secret"]})
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".feather":
        frame.to_feather(path)
    else:
        _write_arrow(path, pa.table(frame))
    with pytest.raises(UserError, match=r"column 'sex' is not numeric \(.*string\), first in row 2") as caught:
        read_table(path)
    assert "secret" not in str(caught.value)
    with pytest.raises(UserError, match="1 cell is missing, NaN or infinite, first in row 2, column 'x'"):
        read_table(path, columns=["x"])


@pytest.mark.parametrize("header", [False, True])
def test_csv_rows_of_more_than_a_mebibyte_are_read(tmp_path: Path, header: bool) -> None:
    X = np.random.default_rng(0).normal(size=(5, 60_000))
    names = ",".join(f"gene{j}" for j in range(60_000)) + "\n"
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    assert len(lines[0]) > 1 << 20
    (tmp_path / "t.csv").write_text(names * header + "\n".join(lines) + "\n")
    np.testing.assert_array_equal(X, read_table(tmp_path / "t.csv").X)


@pytest.mark.parametrize("wide", ["1," + "0" * 2_500_000, "1," * 1_250_000])
def test_a_csv_row_that_is_too_long_is_named(tmp_path: Path, wide: str) -> None:
    (tmp_path / "t.csv").write_text(f"a,b\n1,2\n271828,3\n{wide}\n" + "4,5\n" * 300_000)
    with pytest.raises(
        UserError, match=r"t.csv: row 3 is too long: more than a mebibyte, and more than four times"
    ) as it:
        read_table(tmp_path / "t.csv")
    assert "271828" not in str(it.value)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".arrow", ".feather", ".csv"])
def test_damaged_files_are_a_users_error_in_every_format(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(bytes(range(256)) * 3)
    with pytest.raises(UserError, match=str(path)):
        read_table(path)
    whole = _write(tmp_path / f"whole{suffix}", np.random.default_rng(0).normal(size=(100, 3))).read_bytes()
    if suffix != ".csv":  # half a csv file is a shorter table, and nobody can tell
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(UserError, match=str(path)):
            read_table(path)


def test_objects_and_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([[SECRET, "a"]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "t.npz", X=np.array([[SECRET, "a"]], dtype=object))
    for name in ("t.npy", "t.npz"):
        with pytest.raises(UserError, match="objects and pickles are not read"):
            read_table(tmp_path / name)


def test_paths_that_are_no_table_say_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"patients.npy: no such file"):
        read_table(tmp_path / "patients.npy")
    with pytest.raises(UserError, match="is a folder"):
        read_table(tmp_path)
    (tmp_path / "t.xlsx").write_text("x")
    with pytest.raises(UserError, match=r"t.xlsx: unknown suffix; a table has one of .npy, .npz, .csv"):
        read_table(tmp_path / "t.xlsx")


def test_choosing_columns_needs_names_that_differ(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.ones((2, 2)))
    with pytest.raises(UserError, match="has no column names"):
        read_table(tmp_path / "t.npy", columns=["a"])
    path = _write(tmp_path / "t.csv", np.ones((2, 3)))
    with pytest.raises(UserError, match="hold 'age' more than once"):
        read_table(path, columns=["age", "age"])
    with pytest.raises(UserError, match="empty list of columns"):
        read_table(path, columns=[])


def test_npz_columns_must_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((4, 3)), columns=np.array(["a", "b"]))
    with pytest.raises(UserError, match="one string per column"):
        read_table(tmp_path / "t.npz")


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e300, 1e300)))
def test_check_rows_returns_finite_float64_arrays_untouched(X: np.ndarray) -> None:
    assert check_rows(X, where="x") is X


@given(
    st.sampled_from([np.nan, np.inf, -np.inf]),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
    st.sets(st.integers(0, 35), min_size=1),
)
def test_check_rows_counts_and_places_what_is_not_finite(bad: float, shape: tuple[int, int], where: set[int]) -> None:
    X = np.full(shape, SECRET)
    cells = sorted({cell % X.size for cell in where})
    X.flat[cells] = bad
    with pytest.raises(UserError) as caught:
        check_rows(X, where="site-3")
    text = str(caught.value)
    assert text.startswith(f"site-3: {len(cells)} cell")
    assert f"row {cells[0] // shape[1] + 1}, column {cells[0] % shape[1] + 1};" in text
    assert "271828" not in text


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(5), r"expected a 2-D array \(n, d\), got 1-D of shape \(5,\); reshape"),
        (np.ones((2, 2, 2)), "got 3-D"),
        (np.ones((2, 0)), "no columns"),
        (np.ones((0, 2)), "no rows"),
        (np.ones((2, 2), dtype=complex), "expected real numbers, got complex128"),
        (np.array([["a", "b"]]), "expected real numbers"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "expected real numbers"),
        (np.array([[1.0, 2.0], [3.0, "secret"]], dtype=object), "column 2 is not numeric, first in row 2"),
        (np.array([[1.0, 2.0]], dtype=object), r"X.astype\(float\)"),
        ([[1.0, 2.0], [3.0]], "differ in length"),
        (np.ma.masked_array([[1.0, 2.0]], mask=[[False, True]]), "1 cell is missing"),
    ],
)
def test_check_rows_says_what_was_expected_and_what_came(X: object, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_rows(X, where="site-3")  # type: ignore[arg-type]
    assert str(caught.value).startswith("site-3: ")
    assert "secret" not in str(caught.value)


def test_check_rows_allows_no_rows_where_asked_and_huge_finite_sums() -> None:
    assert check_rows(np.ones((0, 2)), where="x", allow_empty=True).shape == (0, 2)
    X = np.full((2, 2), 1e308)  # the sum overflows, the cells do not
    assert check_rows(X, where="x") is X
    np.testing.assert_array_equal([[1.0, 0.0]], check_rows(np.array([[True, False]]), where="x"))


def test_npy_and_npz_import_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    code = (
        "import sys; from flareclust.data.tables import read_table; read_table(sys.argv[1]); "
        "print([m for m in ('pandas', 'pyarrow', 'sklearn', 'pooch') if m in sys.modules])"
    )
    path = _write(tmp_path / "t.npz", np.ones((2, 3)))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
