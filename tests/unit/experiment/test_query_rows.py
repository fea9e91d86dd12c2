"""The rows of a run in simulated sites are what a query of a database gives: those of the same table in a file."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import TableFaults, UserError
from flareclust.cli.main import main

QUERY = "SELECT patient, age, crp, sex FROM visits ORDER BY patient"
DATA = "sql+sqlite:///clinic.db"
SCHEMA = """columns:
  patient: id
  age: {type: number, unit: years, range: [0, 120]}
  crp: {type: number, missing: mean}
  sex: {type: category, values: [f, m]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a database, the same table as csv, a query and a schema."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [
        (f"p{i:03}", *np.round(rng.normal([30, 5] if i % 2 else [70, 1]), 2).tolist(), "fm"[i % 2]) for i in range(120)
    ]
    with closing(sqlite3.connect("clinic.db")) as database, database:
        database.execute("CREATE TABLE visits (patient TEXT, age REAL, crp REAL, sex TEXT)")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
    lines = ["patient,age,crp,sex", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "clinic.csv").write_text("\n".join(lines))
    (tmp_path / "cohort.sql").write_text(f"{QUERY}\n")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return tmp_path


def check_same(found, expected):
    np.testing.assert_array_equal(found.centroids, expected.centroids)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.metrics == expected.metrics
    assert found.columns == expected.columns


@pytest.mark.parametrize("partition", ["iid", "power:1.2"])
@pytest.mark.parametrize("query", [QUERY, "cohort.sql"])
def test_by_a_schema_the_result_is_that_of_the_table_in_a_file(query, partition):
    settings = {"k": 2, "schema": "schema.yaml", "n_sites": 3, "partition": partition}
    found = flareclust.run("lloyd", DATA, query=query, **settings)
    check_same(found, flareclust.run("lloyd", "clinic.csv", **settings))


def test_numbers_are_read_without_a_schema_and_ids_by_their_name(folder):
    settings = {"k": 2, "n_sites": 3}
    found = flareclust.run("lloyd", DATA, query="SELECT age, crp FROM visits ORDER BY patient", **settings)
    cells = [line.split(",")[1:3] for line in (folder / "clinic.csv").read_text().splitlines()]
    (folder / "numbers.csv").write_text("\n".join(map(",".join, cells)))
    check_same(found, flareclust.run("lloyd", "numbers.csv", **settings))
    chosen = flareclust.run("lloyd", DATA, query=QUERY, columns=["age", "crp"], **settings)
    np.testing.assert_array_equal(chosen.centroids, found.centroids)
    ids = flareclust.run(
        "lloyd", DATA, query=QUERY.replace(", sex", ""), id_column="patient", out="with-ids", **settings
    )
    np.testing.assert_array_equal(ids.centroids, found.centroids)
    assert "p119" in (folder / "with-ids" / "labels.csv").read_text()


def test_the_report_has_the_command_that_repeats_it(folder, capsys):
    words = ["run", "lloyd", "--k", "2", "--engine", "inprocess", "--no-track", "--n-sites", "3", "--json"]
    words += ["--schema", "schema.yaml", "--data", DATA, "--query", "cohort.sql", "--out"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "one"])
    assert not ended.value.code, capsys.readouterr()
    report = (folder / "one" / "report.html").read_text()
    assert f"--data {DATA}" in report
    assert "--query cohort.sql" in report


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "a database needs a query"),
        ({"data": "clinic.csv", "query": QUERY}, "--query and --password are for a database"),
        ({"query": "gone.sql"}, "the database's query names a file that cannot be read"),
        ({"query": "SELECT agee FROM visits"}, "refuses the query: no such column: agee"),
        ({"query": "SELECT age FROM visit"}, "refuses the query: no such table: visit"),
        ({"query": "SELECT age FROM visits WHERE age > 999"}, "the query: there are no rows"),
        ({"query": "DELETE FROM visits"}, "refuses the query: attempt to write a readonly database"),
        ({"query": QUERY}, "column 'patient' is not numeric"),
        ({"query": QUERY, "partition": "none"}, "a query gives one table"),
        ({"query": QUERY, "engine": "production", "kit": "kit"}, "leave out (data|query)"),
        ({"data": "sql+sqlite:///gone.db", "query": QUERY}, "there is no SQLite database gone.db; correct its address"),
        ({"data": "sql+mysql://me:hunter2@db/x", "query": QUERY}, "the database's address holds a password"),
        ({"data": "sql+mysql://me@db/x", "query": QUERY, "password": "hunter2"}, "is neither env:NAME nor file:PATH"),
        ({"data": "sql+mysql://me@db/x", "query": QUERY, "password": "env:GONE"}, "variable GONE, .* is not set"),
        ({"data": "sql+none://me@db/x", "query": QUERY}, "there is no driver for none"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_has_no_password(settings, words):
    with pytest.raises(UserError, match=words) as refused:
        flareclust.run("lloyd", **{"data": DATA, "k": 2, "n_sites": 3, **settings})
    assert "hunter2" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_columns_of_other_types_than_the_schemas_are_all_named():
    query = "SELECT patient, sex AS age, crp, 'x' AS sex FROM visits"
    with pytest.raises(TableFaults, match=r"age: 120 cells are no number(.|\n)*sex: ") as refused:
        flareclust.run("lloyd", DATA, query=query, k=2, schema="schema.yaml")
    assert "the query does not fit the schema" in str(refused.value)


def test_a_schema_is_drafted_from_a_query_as_from_the_file(folder, capsys):
    for words in (["clinic.csv"], [DATA, "--query", "cohort.sql"]):
        with pytest.raises(SystemExit) as ended:
            main(["schema", "draft", *words])
        assert not ended.value.code
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]
    assert "patient: {type: id}" in text


def test_a_query_is_checked_against_the_schema_as_the_file_is(capsys):
    shown = []
    for words in (["clinic.csv"], [DATA, "--query", "cohort.sql"]):
        with pytest.raises(SystemExit) as ended:
            main(["schema", "check", *words, "--schema", "schema.yaml"])
        assert not ended.value.code
        first, *table = capsys.readouterr().out.splitlines()
        assert first.startswith("mapping: none")
        shown.append(" ".join(table).replace("clinic.csv", "clinic.db").split())
    assert shown[0] == shown[1]
    assert "120" in shown[1]
    with pytest.raises(SystemExit) as ended:
        main(["schema", "check", DATA, "--query", "SELECT patient, age, crp FROM visits", "--schema", "schema.yaml"])
    assert ended.value.code
    printed = capsys.readouterr().err
    assert "the query does not fit the schema" in printed
    assert "sex: no such column" in printed


def test_a_dry_run_reads_the_query_and_says_that_order_matters(capsys):
    words = ["run", "lloyd", "--k", "2", "--dry-run", "--data", DATA, "--query"]
    for query, hinted in ((QUERY, False), (QUERY.partition(" ORDER")[0], True)):
        with pytest.raises(SystemExit) as ended:
            main([*words, query, "--schema", "schema.yaml"])
        assert not ended.value.code
        printed = "".join(capsys.readouterr())
        assert "120" in printed
        assert ("the query has no ORDER BY" in printed) == hinted


def test_stability_takes_a_query_as_a_run_does(capsys):
    words = ["stability", "lloyd", "--k", "2", "--n-sites", "3", "--repeats", "2", "--json", "--data", DATA]
    with pytest.raises(SystemExit):
        main(words)
    assert "a database needs a query; give the SELECT" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main([*words, "--schema", "schema.yaml", "--query", "cohort.sql"])
    said = capsys.readouterr()
    assert not ended.value.code, said.err
    assert json.loads(said.out)["repeats"]["seeds"] == 2
