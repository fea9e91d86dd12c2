"""A schema reads data frames as it reads files: the same rows, ids, classes and results, bit for bit."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import TableFaults

SOUTH = {"decimal": ",", "columns": {"age": "Alter", "size": {"factor": 10}, "sex": {"values": {"w": "f"}}}}


def of_pandas(file):
    return pd.read_csv(file, sep=None, engine="python", float_precision=None, dtype={"Alter": str, "size": str})


def of_polars(file):
    text = file.read_text()
    return pl.read_csv(text.encode(), separator=";" if ";" in text else ",", infer_schema=False)


def of_arrow(file):
    return pa.Table.from_pandas(of_pandas(file), preserve_index=False)


def frames(hospitals, read):
    data = hospitals / "data"
    south = flareclust.read_table(read(data / "south.csv"), hospitals / "schema.yaml", mapping=SOUTH)
    return {"south": south, "north": read(data / "north.csv")}


@pytest.mark.parametrize("read", [of_pandas, of_polars, of_arrow])
def test_a_run_of_data_frames_is_the_run_of_their_files(hospitals, read):
    about = {"k": 2, "schema": hospitals / "schema.yaml"}
    expected = flareclust.run("pooled", hospitals / "data", partition="none", out=hospitals / "files", **about)
    found = flareclust.run("pooled", frames(hospitals, read), out=hospitals / "frames", **about)
    assert found.params == expected.params
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.warnings == expected.warnings
    assert found.columns == expected.columns
    labels = [(hospitals / folder / "labels.csv").read_text() for folder in ("files", "frames")]
    assert labels[0] == labels[1]


def test_known_classes_and_ids_are_columns_of_data_frames_as_of_files(hospitals):
    data = hospitals / "data"
    (data / "south.csv").unlink()
    (data / "south.mapping.yaml").unlink()
    frame = of_pandas(data / "north.csv")
    about = {"k": 2, "schema": hospitals / "schema.yaml", "truth": "sex"}
    expected = flareclust.run("pooled", data, partition="none", **about)
    for given in ({"north": frame}, {"north": data / "north.csv"}, {"north": str(data / "north.csv")}):
        found = flareclust.run("pooled", given, **about)
        assert found.metrics == expected.metrics
        assert "ari" in found.metrics
        np.testing.assert_array_equal(found.centroids, expected.centroids)
    split = flareclust.run("pooled", data / "north.csv", n_sites=2, **about)
    again = flareclust.run("pooled", frame, n_sites=2, **about)
    np.testing.assert_array_equal(again.centroids, split.centroids)
    assert again.metrics == split.metrics


def test_without_a_schema_frames_have_columns_of_ids_and_classes(tmp_path):
    rng = np.random.default_rng(0)
    numbers = {"x": rng.normal(size=40), "y": rng.normal(size=40)}
    frame = pd.DataFrame({"name": [f"p{i}" for i in range(40)], **numbers, "kind": ["a", "b"] * 20})
    frame.to_parquet(tmp_path / "a.parquet")
    about = {"k": 2, "id_column": "name", "truth": "kind"}
    expected = flareclust.run("pooled", tmp_path, partition="none", **about)
    found = flareclust.run("pooled", {"a": frame}, **about)
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    assert found.metrics == expected.metrics
    with pytest.raises(UserError, match="a has no column 'kinds'"):
        flareclust.run("pooled", {"a": frame}, k=2, truth="kinds")


def test_cells_of_every_type_are_read_as_from_a_file(tmp_path):
    (tmp_path / "schema.yaml").write_text(
        "columns:\n  id: id\n  n: number\n  d: date\n  c: {type: category, values: ['1', '2', x], missing: as-category}\n"
    )
    columns = {
        "id": [101, 102, 103, 104],
        "n": [Decimal("0.1"), Decimal(12), 2**70, 1.5],
        "d": [date(2024, 1, 31), pd.Timestamp("2024-02-01 23:59"), date(2024, 1, 1), date(1970, 1, 2)],
        "c": [1, "2", None, "x"],
    }
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    frame.to_csv(tmp_path / "a.csv", index=False)
    read = flareclust.read_table(frame, tmp_path / "schema.yaml")
    expected = flareclust.read_table(tmp_path / "a.csv", tmp_path / "schema.yaml")
    np.testing.assert_array_equal(read.X, expected.X)
    assert list(read.ids) == list(expected.ids) == ["101", "102", "103", "104"]
    typed = pl.DataFrame(
        {"id": columns["id"], "n": [1, 2, 3, 4], "d": [date(2024, 1, 1)] * 4, "c": ["1", "2", "x", ""]}
    )
    categories = typed.with_columns(pl.col("c").cast(pl.Categorical), pl.col("n").cast(pl.Decimal(10, 2)))
    for one in (categories, typed.to_pandas().astype({"c": "category"})):
        found = flareclust.read_table(one, tmp_path / "schema.yaml")
        np.testing.assert_array_equal(found.X[:, 0], [1, 2, 3, 4])
        np.testing.assert_array_equal(found.X[:, 2:], np.eye(4))


def test_faults_of_all_data_frames_are_in_one_error_without_values(hospitals):
    frame = of_pandas(hospitals / "data" / "north.csv")
    odd = frame.assign(size=["secret"] * len(frame))
    given = {"north": odd, "south": frame.drop(columns="age")}
    with pytest.raises(TableFaults) as caught:
        flareclust.run("pooled", given, k=2, schema=hospitals / "schema.yaml")
    text = str(caught.value)
    assert "north does not fit the schema: size: 30 cells are no number, first in row 1" in text
    assert "south does not fit the schema: age: no such column" in text
    assert "secret" not in text


def test_what_a_schema_cannot_read_is_refused(hospitals):
    frame = of_pandas(hospitals / "data" / "north.csv")
    read = flareclust.read_table(frame, hospitals / "schema.yaml")
    schema = {"k": 2, "schema": hospitals / "schema.yaml"}
    with pytest.raises(UserError, match="a data frame or the path of a file for each site"):
        flareclust.run("pooled", {"north": frame, "south": np.ones((3, 4))}, **schema)
    with pytest.raises(UserError, match="leave out truth"):
        flareclust.run("pooled", {"north": frame, "south": read}, truth="sex", **schema)
    (hospitals / "other.yaml").write_text("columns: {age: number}")
    other = flareclust.read_table(frame, hospitals / "other.yaml")
    with pytest.raises(UserError, match="read by another schema"):
        flareclust.run("pooled", {"north": frame, "south": other}, **schema)
