"""Faults of tables are named without showing a value."""

import traceback
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.cells import check_rows
from flareclust.data.tables import File, open_columns, read_table

SECRET = 271828.1828


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
        read_table(tmp_path / "t.csv")
    shown = "".join(traceback.format_exception(caught.value))  # with the chain of exceptions, as a log would show it
    assert "secret" not in shown
    assert "271828" not in shown
    assert str(caught.value).startswith(str(tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("latin-1", "is no utf-8 text, first in line 3; .*--encoding latin-1"),
        ("utf-16", "is UTF-16 text where utf-8 is expected; .*`encoding: utf-16` in the mapping"),
        ("utf-16-le", "is UTF-16 text where utf-8 is expected; .*--encoding utf-16"),
    ],
)
@pytest.mark.parametrize("schema", [None, "schema.yaml"])
def test_another_encoding_is_named_with_what_to_do(
    tmp_path: Path, encoding: str, words: str, schema: str | None
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,größer\n", encoding=encoding)
    (tmp_path / "schema.yaml").write_text("columns: {a: number, b: number}")
    with pytest.raises(UserError, match=words) as caught:
        flareclust.read_table(tmp_path / "t.csv", None if schema is None else tmp_path / schema)
    assert "gr" not in str(caught.value).partition(";")[0].rpartition("/")[2]


@pytest.mark.parametrize(
    ("said", "encoding", "words"),
    [
        ("latin-1", "utf-16", "is UTF-16 text where .* is expected; .*`encoding: utf-16` in"),
        ("utf-16", "utf-16-be", "is no utf-16 text; .*`encoding: utf-16-le` or utf-16-be in"),
        ("utf-16", "latin-1", "is no utf-16 text; save it as UTF-8, or read it by a schema, with `encoding: utf-8` in"),
    ],
)
def test_a_mapping_with_a_wrong_encoding_is_not_advised_again(
    tmp_path: Path, said: str, encoding: str, words: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,größer\n", encoding=encoding)
    (tmp_path / "schema.yaml").write_text("columns: {a: number, b: number}")
    (tmp_path / "t.mapping.yaml").write_text(f"encoding: {said}")
    with pytest.raises(UserError, match=words):
        flareclust.read_table(tmp_path / "t.csv", tmp_path / "schema.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;b\n1;2,5\n", r"column 'b' is not numeric, first in row 1; .*schema draft FILE --decimal ,\)"),
        ("a;b\n1,5;2,5\n", r"column 'a' is not numeric, first in row 1; .*schema draft FILE --decimal ,\)"),
        (
            "a,b\n1,2,5\n",
            r"row 1 has 3 cells, the first has 2 \(commas in numbers or texts\? Then separate .* semicolons",
        ),
        ("a;b\n1;2;5\n", "row 1 has 3 cells, the first has 2; correct it"),
    ],
)
def test_decimal_commas_are_named_with_what_to_do(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(UserError, match=words):
        read_table(tmp_path / "t.csv")


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


def test_paths_that_are_no_table_say_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"patients.npy: no such file"):
        read_table(tmp_path / "patients.npy")
    with pytest.raises(UserError, match="is a folder"):
        read_table(tmp_path)
    (tmp_path / "t.xlsx").write_text("x")
    with pytest.raises(UserError, match=r"t.xlsx: unknown suffix; a table has one of .npy, .npz, .csv"):
        read_table(tmp_path / "t.xlsx")


def test_a_spreadsheet_is_saved_as_csv(tmp_path: Path) -> None:
    advice = "; save a spreadsheet as csv (UTF-8)"
    for name, content in (
        ("t.xlsx", b"PK\x03\x04\x14\xff"),
        ("t.ods", b"x"),
        ("t.XLS", b"x"),
        ("t.csv", b"PK\x03\x04\x14\xff"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError) as error:
            read_table(tmp_path / name)
        assert str(error.value).endswith(advice), name
    with (
        pytest.raises(UserError, match="a table with a schema is one of csv") as error,
        open_columns(File(tmp_path / "t.xlsx", "t.xlsx"), "utf-8"),
    ):
        pass
    assert str(error.value).endswith(advice)
    (tmp_path / "t.csv").unlink()
    for there in (tmp_path, "gone.xlsx"):
        with pytest.raises(UserError) as error:
            flareclust.run("lloyd", there, k=2, partition="none" if there == tmp_path else "iid")
        assert str(error.value).endswith(advice)


def test_npz_columns_must_fit(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.ones((4, 3)), columns=np.array(["a", "b"]))
    with pytest.raises(UserError, match="one string per column"):
        read_table(tmp_path / "t.npz")


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
