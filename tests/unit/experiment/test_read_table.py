"""`flareclust.read_table` reads one site's table as a run does, and runs and results take what it returns."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import TableFaults

COLUMNS = ("age", "size", "sex=f", "sex=m")


def tables(hospitals, **more):
    return {
        site: flareclust.read_table(hospitals / "data" / f"{site}.csv", hospitals / "schema.yaml", **more)
        for site in ("north", "south")
    }


def test_a_table_is_read_by_schema_and_mapping(hospitals):
    north, south = tables(hospitals).values()
    assert north.columns == south.columns == COLUMNS
    assert (north.shape, len(north.ids), south.shape) == ((29, 4), 29, (30, 4))
    assert np.asarray(south)[0].tolist() == south.X[0].tolist()
    assert south.X[:, 1].min() > 40  # mm, where the file has cm
    beside = hospitals / "data" / "south.mapping.yaml"
    moved = beside.rename(hospitals / "elsewhere.yaml")
    own = {"decimal": ",", "columns": {"age": "Alter", "size": {"factor": 10}, "sex": {"values": {"w": "f"}}}}
    for mapping in (moved, own):
        found = flareclust.read_table(hospitals / "data" / "south.csv", hospitals / "schema.yaml", mapping=mapping)
        np.testing.assert_array_equal(found.X, south.X)
    with pytest.raises(TableFaults, match="age: no such column"):
        tables(hospitals)


def test_a_run_of_such_tables_is_the_run_of_their_folder(hospitals):
    about = {"k": 2, "schema": hospitals / "schema.yaml"}
    expected = flareclust.run("pooled", hospitals / "data", partition="none", **about)
    found = flareclust.run("pooled", tables(hospitals), out=hospitals / "out", **about)
    assert found.params == expected.params
    assert found.params["scale"] == "standard"
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    with (hospitals / "out" / "labels.csv").open() as file:
        assert [line["id"] for line in csv.DictReader(file)][28:30] == ["n29", "s0"]


def test_results_take_such_tables_by_name(hospitals):
    north = tables(hospitals)["north"]
    result = flareclust.run("pooled", tables(hospitals), k=2)
    assert result.columns == COLUMNS
    np.testing.assert_array_equal(result.predict(north), result.site_labels["north"])
    assert result.placements(north)["cluster"].tolist() == result.site_labels["north"].tolist()
    masked = flareclust.run("masked", tables(hospitals), k=2, columns=["size", "age"])
    np.testing.assert_array_equal(masked.predict(north), masked.site_labels["north"])
    one = flareclust.run("pooled", north, k=2, n_sites=3)
    assert (one.columns, len(one.labels)) == (COLUMNS, 29)
    devices = flareclust.run("lloyd", tables(hospitals), k=2, engine="devices")
    assert devices.centroids.shape == (2, 4)


def test_a_table_of_numbers_needs_no_schema(tmp_path):
    (tmp_path / "plain.csv").write_text("id,x,y\na,1,2\nb,,4\n")
    found = flareclust.read_table(tmp_path / "plain.csv", columns=["y", "x"], id_column="id")
    np.testing.assert_array_equal(found.X, [[2, 1], [4, np.nan]])
    assert (found.columns, list(found.ids)) == (("y", "x"), ["a", "b"])
    np.save(tmp_path / "plain.npy", np.arange(24.0).reshape(12, 2))
    unnamed = flareclust.read_table(tmp_path / "plain.npy")
    result = flareclust.run("pooled", {"a": unnamed, "b": unnamed}, k=2)
    np.testing.assert_array_equal(result.predict(unnamed), result.site_labels["a"])


def test_weights_stay_with_their_site(hospitals):
    (hospitals / "weighted.yaml").write_text("columns: {x: number, n: weight}")
    lines = [f"{x},{1 + x % 3}" for x in range(30)]
    (hospitals / "weighted.csv").write_text("\n".join(["x,n", *lines]))
    table = flareclust.read_table(hospitals / "weighted.csv", hospitals / "weighted.yaml")
    with pytest.raises(flareclust.JobFailed, match="weights"):
        flareclust.run("lloyd", {"a": table, "b": table}, k=2, policy={"min_count": 3})
    with pytest.raises(UserError, match="is one site's"):
        flareclust.run("lloyd", table, k=2)
    with pytest.raises(UserError, match="the engine devices needs"):
        flareclust.run("lloyd", {"a": table, "b": table}, k=2, engine="devices")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mapping": {}}, "give the schema, too"),
        ({"schema": "schema.yaml", "columns": ["age"]}, "leave out columns$"),
        ({"schema": "schema.yaml", "mapping": {"colums": {}}}, "did you mean"),
        ({"schema": "schema.yaml", "mapping": {"columns": {"agee": "Alter"}}}, "no column 'agee'"),
    ],
)
def test_refused_arguments_of_read_table(hospitals, monkeypatch, settings, words):
    monkeypatch.chdir(hospitals)
    with pytest.raises(UserError, match=words):
        flareclust.read_table("data/north.csv", **settings)


@pytest.mark.parametrize("value", [np.ones((2, 1)), None, b"north.csv"])
def test_what_is_no_path_is_refused_with_what_to_do(hospitals, value):
    words = rf"^file: expected the path of a file, got {type(value).__name__}; run, predict .* data frames"
    with pytest.raises(UserError, match=words):
        flareclust.read_table(value, hospitals / "schema.yaml")
    if value is not None:
        with pytest.raises(UserError, match=r"^schema: expected the path"):
            flareclust.read_table(hospitals / "data" / "north.csv", value)
        with pytest.raises(UserError, match=r"^mapping: expected the path"):
            flareclust.read_table(hospitals / "data" / "north.csv", hospitals / "schema.yaml", mapping=value)
        with pytest.raises(UserError, match=r"^schema: expected the path"):
            flareclust.run("pooled", hospitals / "data", k=2, partition="none", schema=value)


def test_a_run_refuses_tables_of_another_schema(hospitals):
    read, schema = tables(hospitals), hospitals / "schema.yaml"
    schema.write_text(schema.read_text().replace("300", "301"))
    with pytest.raises(UserError, match="north, south: read by another schema"):
        flareclust.run("pooled", read, k=2, schema=schema)
    for data in (read["north"], {site: table.X for site, table in read.items()}):
        with pytest.raises(UserError, match="read_table"):
            flareclust.run("pooled", data, k=2, schema=schema)


def other_units(hospitals):
    """A schema with the columns of the other one, in cm."""
    file = hospitals / "cm.yaml"
    file.write_text((hospitals / "schema.yaml").read_text().replace("unit: mm, range: [0, 300]", "unit: cm"))
    return file


def test_results_refuse_tables_of_another_schema(hospitals):
    read, schema = tables(hospitals), hospitals / "schema.yaml"
    other = flareclust.read_table(hospitals / "data" / "north.csv", other_units(hospitals))
    result = flareclust.run("pooled", read, k=2, schema=schema, out=hospitals / "out")
    folder = flareclust.run("pooled", hospitals / "data", k=2, partition="none", schema=schema)
    split = flareclust.run("pooled", hospitals / "data" / "north.csv", k=2, n_sites=2, schema=schema)
    by_number = flareclust.run("pooled", read, k=2)
    loaded = flareclust.load_result(hospitals / "out")
    plain = replace(other, schema="")
    for one in (result, folder, split, by_number, loaded):
        assert len(one.predict(read["north"])) == len(one.predict(other.X)) == 29
        for use in (one.predict, one.placements):
            for table in (other, plain):
                with pytest.raises(UserError, match=r"^X: read by another schema than that of the run"):
                    use(table)
    fitted = flareclust.FederatedKMeans(n_clusters=2).fit(read)
    for use in (fitted.predict, fitted.transform):
        with pytest.raises(UserError, match=r"^X: read by another schema"):
            use(other)


def test_sites_of_one_run_are_read_by_one_schema(hospitals):
    read = tables(hospitals)
    mixed = {**read, "west": flareclust.read_table(hospitals / "data" / "north.csv", other_units(hospitals))}
    with pytest.raises(UserError, match=r"^west: read by another schema"):
        flareclust.run("pooled", mixed, k=2)
    (hospitals / "few.yaml").write_text("columns:\n  age: {type: number, unit: years, range: [0, 120]}\n")
    few = flareclust.read_table(hospitals / "data" / "north.csv", hospitals / "few.yaml")
    for data in (read, {**read, "west": few}):  # sites with different columns have different schemas
        masked = flareclust.run("masked", data, k=2)
        assert len(masked.predict(few)) == len(few)
    with pytest.raises(UserError, match=r"^X: read by another schema"):
        flareclust.run("masked", read, k=2).predict(mixed["west"])


def test_estimators_find_the_columns_of_a_table_by_name(hospitals):
    read = tables(hospitals)
    fitted = flareclust.FederatedKMeans(n_clusters=2).fit(read)
    table = read["north"]
    turned = replace(table, X=np.ascontiguousarray(table.X[:, ::-1]), columns=table.columns[::-1])
    np.testing.assert_array_equal(fitted.predict(turned), fitted.predict(table.X))
    np.testing.assert_array_equal(fitted.transform(turned), fitted.transform(table))
    with pytest.raises(UserError, match="has no column"):
        fitted.predict(replace(table, X=table.X[:, :1].copy(), columns=table.columns[:1]))


def test_a_data_frame_with_text_is_sent_to_read_table(hospitals):
    frame = pd.read_csv(hospitals / "data" / "north.csv")
    with pytest.raises(UserError, match=r"expected numbers in column 'patient', got .* read the file by a schema"):
        flareclust.run("pooled", {"north": frame}, k=2)
