"""A site's rows are what a query of its database gives: SQLite here, PostgreSQL in tests/integration/federation."""

import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.data import sql_tables
from flareclust.data.sql_tables import Query
from flareclust.sites import account
from flareclust.sites.check import check
from tests.unit.sites.site_cases import refusal, site

SCHEMA = """columns:
  patient: id
  seen: date
  age: {type: number, unit: years, range: [0, 120]}
  crp: {type: number, missing: mean}
  sex: {type: category, values: [f, m]}
"""
ROWS = [(f"p{i:02}", f"2024-01-{1 + i % 28:02}", 20 + i, None if i == 4 else i / 10, "fm"[i % 2]) for i in range(40)]
NAMES = ("patient", "seen", "age", "crp", "sex")
QUERY = "SELECT patient, seen, age, crp, sex FROM visits ORDER BY patient"


@pytest.fixture
def kit(tmp_path):
    """A kit beside a database."""
    kit = tmp_path / "north"
    for name in ("startup", "local"):
        (kit / name).mkdir(parents=True)
    (kit / "local" / "schema.yaml").write_text(SCHEMA)
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as database, database:
        database.execute("CREATE TABLE visits (patient TEXT, seen TEXT, age INTEGER, crp REAL, sex TEXT)")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", ROWS)
    return kit


def asked(kit, query=QUERY, **keys):
    return site(kit / "local", path="sql+sqlite:///../../clinic.db", query=query, **keys)


def test_a_query_gives_the_rows_of_a_file(kit):
    file = kit.parent / "north.csv"
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in (NAMES, *ROWS)]
    file.write_text("\n".join(lines))
    expected = site(kit / "local", path=str(file), schema="schema.yaml").table()
    found = asked(kit, schema="schema.yaml").table()
    np.testing.assert_array_equal(found.X, expected.X)
    assert (found.columns, list(found.ids)) == (expected.columns, list(expected.ids))
    assert (found.schema, found.missing) == (expected.schema, expected.missing)


def test_columns_come_in_the_order_of_the_query_or_of_the_configuration(kit):
    data = asked(kit, "SELECT patient, age, crp, 1.5 AS x FROM visits WHERE crp > 1 ORDER BY age", id="patient")
    table = data.table()
    assert (table.columns, table.ids[0]) == (("age", "crp", "x"), "p11")
    np.testing.assert_array_equal(table.X[0], [31, 1.1, 1.5])
    chosen = asked(kit, "SELECT * FROM visits ORDER BY age", columns=["crp", "age"], min_rows=3).table(gaps=True)
    np.testing.assert_array_equal(chosen.X[3:6], [[0.3, 23], [np.nan, 24], [0.5, 25]])


def test_a_query_may_be_in_a_file_and_hold_what_drivers_take_for_parameters(kit):
    (kit / "local" / "cohort.sql").write_text(
        "-- who\nSELECT age FROM visits\nWHERE sex LIKE 'f%' AND sex <> ':x %s'\n"
    )
    assert len(asked(kit, "cohort.sql").table()) == 20
    with pytest.raises(Refusal, match="query names a file that cannot be read"):
        asked(kit, "gone.sql")


def test_rows_beyond_the_memory_are_put_on_disk(kit, monkeypatch):
    monkeypatch.setattr("flareclust.data.sql_tables._ROWS", 7)
    small = asked(kit, "SELECT age, age * 2 AS twice FROM visits ORDER BY age", memory=300).table(scratch=kit)
    assert isinstance(small.X, np.memmap)
    np.testing.assert_array_equal(small.X, [(20 + i, 40 + 2 * i) for i in range(40)])


@pytest.mark.parametrize(
    ("query", "here", "there"),
    [
        ("SELECT age, sex FROM visits", "'sex' is not numeric .*row 1;", "'sex' is not numeric .*row #"),
        ("SELECT age FROM visits WHERE age > 99", "there are no rows", "there are no rows"),
        ("SELECT age, age FROM visits", "hold 'age' more than once", "hold 'age' more than once"),
        ("SELECT agee FROM visits", "refuses the query: no such column: agee", ""),
        ("SELECT age FRM visits", 'refuses the query: near "visits"', ""),
        ("DELETE FROM visits", "refuses the query: attempt to write a readonly database", ""),
        ("PRAGMA user_version = 3", "refuses the query: attempt to write|gives no rows", ""),
        ("SELECT CAST(x'ff' AS TEXT) AS secret", "refuses the query: OperationalError; run the query", ""),
    ],
)
def test_what_is_wrong_with_a_query_is_said_and_nothing_of_the_database_leaves(kit, query, here, there):
    data = asked(kit, query)
    with pytest.raises(Refusal, match=here) as refused:
        data.table(reader_owns_them=True)
    assert "\ufffd" not in str(refused.value)
    text = refusal(data)
    with pytest.raises(Refusal, match=there or "^cannot use its database; why is in the site's own log"):
        data.table()
    assert "clinic" not in text
    assert there or "visits" not in text
    with closing(sqlite3.connect(kit.parent / "clinic.db")) as database:
        assert database.execute("SELECT COUNT(*) FROM visits").fetchone() == (40,)


def test_a_database_that_is_not_there_or_none_is_named_to_the_site_alone(kit, caplog):
    (kit.parent / "clinic.db").rename(kit.parent / "moved.db")
    with pytest.raises(Refusal, match=r"there is no SQLite database .*clinic\.db; correct its address"):
        asked(kit).table(reader_owns_them=True)
    assert "clinic" not in refusal(asked(kit))
    assert "clinic.db" in caplog.text
    assert not (kit.parent / "clinic.db").exists()
    (kit.parent / "clinic.db").write_text("no database" * 100)
    with pytest.raises(Refusal, match="the file is no SQLite database"):
        asked(kit).table(reader_owns_them=True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"path": "sql+postgresql://me:secret@db/x", "query": "SELECT 1"},
            "whose address holds a password; take it out",
        ),
        ({"path": "sql+postgresql://me@db/x?sslpassword=secret", "query": "SELECT 1"}, "address holds a password"),
        ({"path": "sql+sqlite://", "query": "SELECT 1"}, "address names no SQLite database"),
        ({"path": "sql+::", "query": "SELECT 1"}, "address is none such as sql"),
        ({"path": "sql+sqlite:///x.db"}, "names a database without a query"),
        ({"path": {"a": "sql+sqlite:///x.db", "b": "x.csv"}, "query": "SELECT 1"}, "a database without a query"),
        ({"path": "x.csv", "query": "SELECT secret"}, "query or password is there without a database"),
        ({"path": "sql+sqlite:///x.db", "query": "SELECT 1", "root": "secret"}, "root is for files"),
        ({"path": "sql+sqlite:///x.db", "query": "SELECT 1", "password": "secret"}, "neither env:NAME nor file:PATH"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_without_its_values(kit, keys, words):
    with pytest.raises(Refusal, match=words) as refused:
        site(kit / "local", name="a", **keys)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "module", "words"),
    [
        (
            "sql+mysql://db/x",
            "MySQLdb",
            r"no driver for mysql .*; install it .* PyMySQL, and begin the address with sql\+mysql\+pymysql://",
        ),
        ("sql+none://db/x", "none", "no driver for none"),
    ],
)
def test_a_driver_that_is_missing_is_named(kit, monkeypatch, address, module, words):
    monkeypatch.setitem(sys.modules, module, None)
    data = site(kit / "local", path=address, query="SELECT 1")
    with pytest.raises(Refusal, match=words):
        data.table(reader_owns_them=True)
    monkeypatch.setattr("flareclust._foundation.extras.find_spec", lambda name: None)
    with pytest.raises(Refusal, match=r"needs sqlalchemy; install the extra: .*flareclust\[sql\]"):
        site(kit / "local", path=address, query="SELECT 1")


def test_a_password_is_read_when_it_is_needed_and_is_in_no_text(kit, monkeypatch):
    about = {"path": "sql+mysql://me@db/x", "query": "SELECT 1"}
    for place, words in (
        ("env:CLINIC_PASSWORD", "CLINIC_PASSWORD, which has"),
        ("file:secret.txt", "secret.txt, which"),
    ):
        data = site(kit / "local", password=place, **about)
        with pytest.raises(Refusal, match=words):
            data.table(reader_owns_them=True)
    monkeypatch.setenv("CLINIC_PASSWORD", "hunter2")
    (kit / "local" / "secret.txt").write_text("hunter2\n")
    for place in ("env:CLINIC_PASSWORD", "file:secret.txt"):
        data = site(kit / "local", password=place, **about)
        assert data.query.password() == "hunter2"
        assert "hunter2" not in repr(data)
        assert "SELECT" not in repr(data)


def test_a_check_says_what_was_read_and_that_order_matters(kit):
    asked(kit, schema="schema.yaml")
    checked = check(kit)
    assert checked.errors == []
    assert (checked.rows.number, str(checked.rows.file)) == (40, "what the query gives of clinic.db")
    first = checked.facts["query"]
    assert first == check(kit).facts["query"]
    assert not [hint for hint in checked.hints if "ORDER BY" in hint]
    asked(kit, "SELECT age FROM visits ORDER\nBY age DESC")
    assert check(kit).facts["query"] != first
    asked(kit, "SELECT age FROM visits")
    (hint,) = [hint for hint in check(kit).hints if "ORDER BY" in hint]
    assert "nobody can tell which row has which label" in hint
    asked(kit, "SELECT agee FROM visits")
    assert check(kit).errors == ["north cannot use its rows: the database refuses the query: no such column: agee"]


def test_all_queries_of_a_database_spend_from_one_account(kit, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked(kit)
    one = account._Account.of(kit / "local", "north")
    asked(kit, "SELECT age FROM visits")
    assert account._Account.of(kit / "local", "north") == one
    places = [
        Query(f"sql+postgresql://{where}", "SELECT 1", kit).place
        for where in ("a@DB:5432/x", "b@db:5432/x?sslmode=require", "db:5432/y")
    ]
    assert places[0] == places[1] != places[2]


def test_a_duckdb_database_is_a_file_that_no_query_writes_to(kit):
    duckdb = pytest.importorskip("duckdb", reason="rows in DuckDB need the packages duckdb and duckdb-engine")
    pytest.importorskip("duckdb_engine", reason="rows in DuckDB need the packages duckdb and duckdb-engine")
    with closing(duckdb.connect(str(kit.parent / "clinic.duckdb"))) as database:
        database.execute("CREATE TABLE visits AS SELECT x AS age, x / 2 AS crp FROM range(40) AS all_of(x)")
    path = "sql+duckdb:///../../clinic.duckdb"
    data = site(kit / "local", path=path, query="SELECT * FROM visits ORDER BY age")
    np.testing.assert_array_equal(data.table().X, [(i, i / 2) for i in range(40)])
    for query, words in (
        ("DELETE FROM visits", "refuses the query: Invalid Input Error: Cannot execute statement of type"),
        ("SELECT agee FROM visits", 'refuses the query: Binder Error: Referenced column "agee" not found'),
        ("SELECT CAST('Miller' AS INTEGER) AS x", "refuses the query: ConversionException; run the query"),
    ):
        with pytest.raises(Refusal, match=words):
            site(kit / "local", path=path, query=query).table(reader_owns_them=True)
    with pytest.raises(Refusal, match=r"there is no DuckDB database .*gone\.duckdb"):
        site(kit / "local", path="sql+duckdb:///gone.duckdb", query="SELECT 1").table(reader_owns_them=True)


def test_what_mysql_and_mariadb_say_of_a_query_is_shown_and_what_they_say_of_cells_is_not():
    class ProgrammingError(Exception):
        """As the drivers raise it: a number and a text."""

    assert sql_tables._said(ProgrammingError(1146, "Table 'clinic.visit' doesn't exist")) == (
        "Table 'clinic.visit' doesn't exist"
    )
    assert sql_tables._said(ProgrammingError(1292, "Truncated incorrect INTEGER value: 'Miller'")) == (
        "ProgrammingError; run the query in the database's own client, which says more"
    )
