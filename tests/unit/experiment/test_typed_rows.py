"""Runs on hospitals' tables: read by a schema before anything starts, with ids, known classes and mappings beside them."""

import csv
from dataclasses import replace

import numpy as np
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import TableFaults
from flareclust.data.schema.columns import read_schema
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.ended import Ended
from flareclust.protocol.registry import get


def run(hospitals, **settings):
    plain = {"k": 2, "partition": "none", "schema": hospitals / "schema.yaml"}
    return flareclust.run("pooled", data=hospitals / "data", **{**plain, **settings})


def test_tables_of_two_hospitals(hospitals):
    result = run(hospitals, truth="diagnosis", k=None, out=hospitals / "out")
    assert result.columns == ("age", "size", "sex=f", "sex=m")
    assert (result.k, result.metrics["ari"]) == (2, 1.0)
    assert {site: len(labels) for site, labels in result.site_labels.items()} == {"north": 29, "south": 30}
    np.testing.assert_allclose(sorted(result.centroids[:, 1]), [50, 200], atol=5)
    with (hospitals / "out" / "labels.csv").open() as file:
        ids = [line["id"] for line in csv.DictReader(file)]
    assert ids[3:5] == ["n3", "n5"]
    assert ids[29:31] == ["s0", "s1"]
    again = flareclust.load_result(hospitals / "out")
    np.testing.assert_array_equal(again.labels, result.labels)


def test_masked_and_an_algorithm_of_numbers_see_the_same_columns(hospitals):
    result = flareclust.run(
        "masked", data=hospitals / "data", k=2, partition="none", schema=hospitals / "schema.yaml", scale="standard"
    )
    assert set(result.columns) == {"age", "size", "sex=f", "sex=m"}


def test_one_table_is_split_like_any_data(hospitals):
    result = flareclust.run(
        "pooled", data=hospitals / "data" / "north.csv", schema=hospitals / "schema.yaml", truth="diagnosis", n_sites=3,
        out=hospitals / "out",
    )  # fmt: skip
    assert result.metrics["ari"] == 1.0
    assert sorted(text for ids in result.ids.values() for text in ids) == sorted(f"n{i}" for i in range(30) if i != 4)


def test_rows_that_were_dropped_are_counted_by_site(hospitals):
    said = "1 of 60 rows was left out, since a cell is missing (missing: drop-rows): north 1 of 30"
    result = run(hospitals, out=hospitals / "out")
    assert result.warnings == [said]
    assert said in (hospitals / "out" / "report.html").read_text()
    policed = " ".join(run(hospitals, policy={"min_count": 3}).warnings)
    assert "lets out no number below 3, which north, south may have" in policed
    assert "1 of" not in policed
    assert run(hospitals, truth="diagnosis").warnings == [said]
    read = {
        site: flareclust.read_table(hospitals / "data" / f"{site}.csv", hospitals / "schema.yaml")
        for site in ("north", "south")
    }
    assert flareclust.run("pooled", read, k=2, schema=hospitals / "schema.yaml").warnings == [said]


@pytest.mark.parametrize("missing", ["mean", "partial"])
def test_filling_cells_of_rows_that_the_schema_drops_is_refused(hospitals, missing):
    with pytest.raises(UserError, match=f"missing={missing} is without effect: the schema says missing: drop-rows of"):
        run(hospitals, missing=missing)


def test_dropped_rows_of_one_table_and_with_secure_sums(hospitals):
    alone = "1 of 30 rows was left out, since a cell is missing (missing: drop-rows)"
    one, schema = hospitals / "data" / "north.csv", hospitals / "schema.yaml"
    assert flareclust.run("pooled", one, k=2, n_sites=2, schema=schema).warnings == [alone]
    read = flareclust.read_table(one, schema)
    assert flareclust.run("pooled", read, k=2, n_sites=2, scale="standard").warnings == [alone]
    (hospitals / "data" / "west.csv").write_text(one.read_text())
    found = flareclust.run("lloyd", hospitals / "data", k=2, partition="none", schema=schema, secure_sums=True)
    assert "2 of 90 rows were left out, since a cell is missing (missing: drop-rows)" in found.warnings


def test_of_many_sites_those_with_most_dropped_rows_are_named(hospitals):
    lines = (hospitals / "data" / "north.csv").read_text().splitlines()
    for j in range(7):
        own = [lines[0], *lines[6:], *(f"m{i},50,,f,a" for i in range(j + 1))]
        (hospitals / "data" / f"ward-{j}.csv").write_text("\n".join(own))
    [said] = run(hospitals).warnings
    assert said.startswith("29 of 263 rows were left out")
    assert said.endswith(
        "ward-6 7 of 32, ward-5 6 of 31, ward-4 5 of 30, ward-3 4 of 29, ward-2 3 of 28 and 3 more sites"
    )


def test_ids_and_classes_without_a_schema(hospitals):
    file = hospitals / "plain.csv"
    file.write_text("patient,x,class\n" + "\n".join(f"p{i},{10 * (i % 2) + 0.01 * i},{'uv'[i % 2]}" for i in range(20)))
    result = flareclust.run("pooled", data=file, id_column="patient", truth="class", n_sites=2)
    assert (result.k, result.columns, result.metrics["ari"]) == (2, ("x",), 1.0)
    with pytest.raises(UserError, match=r"has no column 'clas' \(did you mean 'class'"):
        flareclust.run("pooled", data=file, truth="clas", n_sites=2)


def test_faults_of_all_tables_before_anything_runs(hospitals, monkeypatch):
    monkeypatch.setattr("flareclust.flows.run.submit", None)
    (hospitals / "data" / "south.mapping.yaml").unlink()
    (hospitals / "data" / "west.csv").write_bytes("patient,age\nö,1\n".encode("latin-1"))
    north = hospitals / "data" / "north.csv"
    north.write_text(north.read_text().replace("n7,", "n7,x"))
    with pytest.raises(TableFaults) as error:
        run(hospitals)
    places = [path.rpartition("/")[2] for path in error.value.faults]
    assert places == ["north.csv", "south.csv", "west.csv"]
    found = " ".join(fault for own in error.value.faults.values() for fault in own)
    assert "age: 1 cell is no number, first in row 8" in found
    assert "age: no such column" in found
    assert "no utf-8 text" in found


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "poc"}, "poc"),
        ({"engine": "production", "kit": "kits"}, "leave out"),
        ({"schema": "gone.yaml"}, "gone.yaml cannot be read"),
    ],
)
def test_settings_that_do_not_go_with_a_schema(hospitals, settings, words):
    with pytest.raises(UserError) as error:
        run(hospitals, **settings)
    assert words in str(error.value)


@pytest.mark.parametrize("given", [["columns"], ["id_column"], ["columns", "id_column"]], ids=str)
def test_what_is_given_beside_a_schema_is_named_and_nothing_else(hospitals, given):
    settings = {"columns": ["age"], "id_column": "patient"}
    with pytest.raises(UserError, match=f"leave out {' and '.join(given)}$"):
        run(hospitals, **{name: settings[name] for name in given})


def test_a_schema_is_for_columns_with_names(hospitals):
    with pytest.raises(UserError, match="need columns with names"):
        flareclust.run("pooled", data=np.eye(4), k=2, schema=hospitals / "schema.yaml")


def test_a_sweep_over_hospitals(hospitals):
    from flareclust.experiment.sweeps import sweep as sweep_settings
    from flareclust.experiment.sweeps import trials as study_trials

    (hospitals / "sweep.toml").write_text(
        'name = "h"\ndata = "data"\npartitions = "none"\nschema = "schema.yaml"\ntruth = "diagnosis"\nseeds = 1\n'
        'algorithms = ["pooled", "feca"]\n'
    )
    done = study_trials.run_plain(sweep_settings.trials(sweep_settings.read_sweep(hospitals / "sweep.toml")))
    assert [one.measured.final["ari"] for one in done] == [1.0, 1.0]


def test_a_folder_of_tables_without_a_schema_is_compared_too(tmp_path):
    rng = np.random.default_rng(0)
    for site in ("north", "south", "west"):
        X = rng.normal([50, 30], [10, 8], (60, 2)) * ([1, 0.1] if site == "south" else 1)
        np.savetxt(tmp_path / f"{site}.csv", X, delimiter=",", header="age,tumour", comments="")
    result = flareclust.run("pooled", data=tmp_path, k=2, partition="none")
    assert any(text.startswith("south: column 'tumour' is about 10 times smaller") for text in result.warnings)


def test_a_misspelt_column_of_classes_gets_one_suggestion_for_all_files(hospitals):
    """The schema's name, also of a file that has the column under another."""
    schema, beside = hospitals / "schema.yaml", hospitals / "data" / "south.mapping.yaml"
    schema.write_text(schema.read_text() + "  diagnosis: ignore\n")
    beside.write_text(beside.read_text() + "  diagnosis: Diagnose\n")
    table = hospitals / "data" / "south.csv"
    table.write_text(table.read_text().replace("diagnosis", "Diagnose"))
    assert run(hospitals, truth="diagnosis").metrics["ari"] == 1.0
    for misspelt in ("diagnos", "Diagnose"):
        with pytest.raises(TableFaults) as failed:
            run(hospitals, truth=misspelt)
        assert "(did you mean 'diagnosis'?)" in str(failed.value)
        assert "(did you mean 'Diagnose'?)" not in str(failed.value)


@pytest.mark.parametrize("secure", [False, True])
def test_sites_whose_tables_are_not_here_say_which_rows_took_no_part(hospitals, secure):
    file, data = hospitals / "schema.yaml", hospitals / "data"
    (data / "west.csv").write_text((data / "north.csv").read_text())
    schema = read_schema(file)
    tables = {site: flareclust.read_table(data / f"{site}.csv", file) for site in ("north", "south", "west")}
    params, options = {"table_schema": schema.fingerprint}, JobOptions(k=2, secure_sums=secure)
    outcome = run_inprocess(get("lloyd"), params, tables, options)
    assert outcome.arrays["rows_read"].tolist() == ([[88, 2]] if secure else [[29, 1], [30, 0], [29, 1]])
    asked = Experiment(
        algorithm="lloyd", engine="production", k=2, kit="kit", table_schema=str(file), secure_sums=secure
    )
    found = Ended(asked, Prepared(2, {}), replace(outcome, labels={})).warnings()
    at = "" if secure else ": north 1 of 30, west 1 of 30"
    floor = "; a site with a policy says multiples of the smallest number that it lets out"
    gone = replace(outcome, labels={}, refused={"west": "was lost"})
    if not secure:
        assert (
            f"1 of 60 rows was left out, since a cell is missing (missing: drop-rows): north 1 of 30{floor}"
            in Ended(asked, Prepared(2, {}), gone).warnings()
        )
    assert f"2 of 90 rows were left out, since a cell is missing (missing: drop-rows){at}{floor}" in found
