"""How a missing cell is written, in all columns of a site's file or in one: in every format, and nothing else is missing."""

import json
import sqlite3
from contextlib import closing
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.schema.columns import TableSchema
from flareclust.data.schema.draft import draft
from flareclust.data.schema.mapping import TableMapping
from flareclust.data.schema.reading import Typed
from flareclust.data.sql_tables import Query
from flareclust.data.tables import File

SCHEMA = {
    "missing": "mean",
    "columns": {
        "age": {"type": "number", "range": [0, 120]},
        "platelets": {"type": "number", "range": [0, 2000]},
        "sex": {"type": "category", "values": ["f", "m"]},
    },
}
ROWS = {"age": [40, 999, 51, -1], "platelets": [999, 300, -1, 250], "sex": ["f", "9", "m", "f"]}
MAPPING = {"missing": [-1], "columns": {"age": {"missing": 999}, "sex": {"missing": ["9", "x"]}}}
EXPECTED = [[40, 999, 1, 0], [np.nan, 300, np.nan, np.nan], [51, np.nan, 0, 1], [np.nan, 250, 1, 0]]


def in_file(folder, form):
    table = pa.table(ROWS)
    path = folder / f"rows.{form}"
    if form == "csv":
        pd.DataFrame(ROWS).to_csv(path, index=False)
    elif form == "parquet":
        parquet.write_table(table.set_column(0, "age", pa.array(map(Decimal, ROWS["age"]), pa.decimal128(5, 1))), path)
    else:
        feather.write_feather(table.set_column(0, "age", pa.array(ROWS["age"], pa.float32())), str(path))
    return File(path, path.name)


def in_database(folder):
    with closing(sqlite3.connect(folder / "rows.db")) as database, database:
        pd.DataFrame(ROWS).to_sql("visits", database, index=False)
    return Query.of("sql+sqlite:///rows.db", "SELECT * FROM visits ORDER BY rowid", folder).file()


@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "feather", "database", "pandas", "polars", "pyarrow"])
def test_a_code_of_one_column_is_a_value_in_the_others(tmp_path, form):
    frames = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    schema = tmp_path / "schema.yaml"
    schema.write_text(json.dumps(SCHEMA))
    if form in frames:
        table = flareclust.read_table(frames[form](ROWS), schema, mapping=MAPPING)
    else:
        file = in_database(tmp_path) if form == "database" else in_file(tmp_path, form)
        table = Typed(TableSchema(**SCHEMA), TableMapping(**MAPPING)).read([file])
    np.testing.assert_array_equal(table.X, EXPECTED)
    assert table.missing == {"age": 2, "platelets": 1, "sex": 1}


def test_ids_weights_outcomes_and_known_classes_have_codes_of_their_own(tmp_path):
    (tmp_path / "a.csv").write_text("patient,age,n,days,died,class\np1,1,2,30,1,x\np2,2,1,-9,-9,?\n")
    columns = {"patient": "id", "age": "number", "days": "number", "died": "number"}
    schema = TableSchema(columns=columns, outcome={"time": "days", "event": "died", "until": 90.0})
    mapping = TableMapping(columns={name: {"missing": "-9"} for name in ("days", "died")})
    table = Typed(schema, mapping).read([File(tmp_path / "a.csv", "a.csv")])
    np.testing.assert_array_equal(table.outcomes, [[30, 1], [np.nan, np.nan]])
    weighted = TableSchema(columns={"patient": "id", "age": "number", "n": "weight"})
    for column, code in {"patient": "p2", "n": "1"}.items():
        mapping = TableMapping(columns={column: {"missing": code}})
        with pytest.raises(UserError, match=f"{column}: 1 cell is missing, first in row 2"):
            Typed(weighted, mapping).read([File(tmp_path / "a.csv", "a.csv")])


def test_a_draft_takes_the_codes_of_each_column(tmp_path):
    pd.DataFrame({name: [*range(20, 60), *range(30, 40), 99, 99] for name in ("Alter", "n")}).to_csv(
        tmp_path / "a.csv", index=False
    )
    mapping = TableMapping(columns={"age": {"from": "Alter", "missing": 99}})
    age, n = draft(tmp_path / "a.csv", mapping).text.splitlines()[-2:]
    assert "4 % of the cells are missing" in age
    assert "of the cells are missing" not in n


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"missing": [False]}, "missing: YAML reads yes, no, on and off as true and false; put them in quotes"),
        ({"columns": {"sex": {"missing": True}}}, "column 'sex': missing: YAML reads"),
        ({"columns": {"sex": {"missing": {"a": 1}}}}, "column 'sex': missing"),
    ],
)
def test_what_is_no_spelling(mapping, words):
    with pytest.raises(UserError) as error:
        TableMapping(**mapping)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "keys",
    [{"missing": [999]}, {"missing": 999}, {"columns": {"age": {"type": "number", "missing": ["999"]}}}],
    ids=repr,
)
def test_a_schema_with_spellings_says_where_they_belong(keys):
    with pytest.raises(UserError, match="each site says under missing: in its mapping, of all columns or of one"):
        TableSchema(**{"columns": {"age": "number"}, **keys})
