"""Data frames of pandas, polars and pyarrow give the same tables."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.frames import cells_of, is_frame, table_of

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture(params=sorted(MAKERS))
def make(request):
    return MAKERS[request.param]


def test_a_frame_keeps_its_names_and_values(make):
    table = table_of("north", make({"age": [30, 40, None], "crp": [1.5, 0.1, 0.2], "smokes": [True, False, True]}))
    assert table.columns == ("age", "crp", "smokes")
    np.testing.assert_array_equal(table.X, [[30, 1.5, 1], [40, 0.1, 0], [np.nan, 0.2, 1]])
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous


@pytest.mark.parametrize("cells", [["f", None, "", "m"], [1.0, None, float("nan"), 2.0]], ids=["texts", "numbers"])
def test_cells_without_a_value_are_missing_whatever_stands_for_them(make, cells):
    found, missing = cells_of(make({"a": cells}), "a")
    assert missing == [False, True, True, False]
    assert [found[0], found[3]] == [cells[0], cells[3]]


def test_columns_are_chosen_in_the_order_asked_for(make):
    table = table_of("north", make({"name": ["a", "b"], "age": [1, 2], "crp": [3, 4]}), ["crp", "age"])
    assert table.columns == ("crp", "age")
    np.testing.assert_array_equal(table.X, [[3, 1], [4, 2]])


@pytest.mark.parametrize(
    ("cells", "columns", "words"),
    [
        ({"age": ["old", "young"]}, None, "north: expected numbers in column 'age', got string"),
        ({"age": [None, None]}, None, "north: column 'age' has no value at all"),
        ({"": [1.0]}, None, "north: column 1 has no name"),
        ({"age": [1.0]}, ["agee"], r"north has no column 'agee' \(did you mean 'age'\?\)"),
        ({}, None, "north: the data frame has no columns"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(make, cells, columns, words):
    with pytest.raises(UserError, match=words):
        table_of("north", make(cells), columns)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pd.Series([1, None, 3], dtype="Int64"), [1, np.nan, 3]),
        (pd.Series([True, None], dtype="boolean"), [1, np.nan]),
        (pd.Series([Decimal("1.5"), None]), [1.5, np.nan]),
        (pd.Series([1, 2.5, None], dtype=object), [1, 2.5, np.nan]),
        (pd.Series([0.1, 0.7], dtype="float32"), np.array([0.1, 0.7], dtype=np.float32)),
    ],
)
def test_pandas_kinds_of_numbers(column, values):
    np.testing.assert_array_equal(table_of("north", pd.DataFrame({"x": column})).X[:, 0], values)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a"], dtype="category"),
        pd.to_datetime(pd.Series(["2020-01-01"])),
        pd.Series([1j]),
        pd.Series([1, "a"]),
    ],
)
def test_pandas_kinds_of_other_values(column):
    with pytest.raises(UserError, match="expected numbers in column 'x'"):
        table_of("north", pd.DataFrame({"x": column}))


def test_messages_hold_no_values(make):
    with pytest.raises(UserError) as refused:
        table_of("north", make({"diagnosis": ["secret-value"]}))
    assert "secret-value" not in str(refused.value)


def test_arrays_and_lists_are_no_frames():
    assert not any(map(is_frame, (np.ones((2, 2)), [[1.0]], {"a": [1.0]}, None)))


def test_one_frame_split_over_sites_keeps_its_names(make):
    X = np.random.default_rng(0).normal(size=(60, 2))
    result = flareclust.run("feca", make({"age": X[:, 0], "crp": X[:, 1]}), k=3, n_sites=2)
    assert result.columns == ("age", "crp")
    np.testing.assert_array_equal(result.centroids, flareclust.run("feca", X, k=3, n_sites=2).centroids)
    swapped = make({"crp": X[:, 1], "other": X[:, 0], "age": X[:, 0]})
    np.testing.assert_array_equal(result.predict(swapped), result.predict(X))
