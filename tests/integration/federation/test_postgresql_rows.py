"""A site's rows in a real PostgreSQL: types, snapshots, batches, and what is said of it and to whom."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import yaml

from flareclust._foundation.errors import Refusal
from flareclust.data import sql_tables
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.rows import SiteData
from tests.paths import ROOT
from tests.postgresql import Database, postgresql

pytestmark = pytest.mark.slow

PASSWORD = "hunter2 is secret"
SCHEMA = """columns:
  patient: id
  seen: date
  at: date
  age: {type: number, range: [0, 120]}
  crp: {type: number, missing: mean}
  smokes: {type: category, values: ["true", "false"]}
  stage: {type: ordered, values: ["1", "2", "3"]}
"""
#: As text, in the form in which the same table comes from a csv file.
LINES = [
    (
        f"{1000 + i}",
        f"2024-01-{1 + i % 28:02}",
        f"2023-12-{1 + i % 28:02}",
        f"{20 + i}",
        "" if i == 4 else f"{i}.1",
        str(i % 3 == 0).lower(),
        str(1 + i % 3),
    )
    for i in range(60)
]
NAMES = ("patient", "seen", "at", "age", "crp", "smokes", "stage")


@pytest.fixture(scope="module")
def database():
    pytest.importorskip("psycopg2", reason="rows in PostgreSQL need the extras flareclust[sql,postgres]")
    with postgresql() as server:
        server.create("clinic")
        server.ask(
            "clinic",
            "CREATE TABLE visits (patient numeric(12, 0), seen date, at timestamptz, age smallint, crp numeric, smokes boolean, "
            "stage integer, note text, found jsonb)",
        )
        cells = ", ".join(
            f"({one[0]}, '{one[1]}', '{one[2]} 23:30+00', {one[3]}, {one[4] or 'NULL'}, {one[5]}, {one[6]}, 'x', '{{}}')"
            for one in LINES
        )
        server.ask("clinic", f"INSERT INTO visits VALUES {cells}")
        server.demand("reader", PASSWORD)
        yield server


def site(local: Path, database: Database, query: str, **keys: object) -> SiteData:
    (local / "schema.yaml").write_text(SCHEMA)
    (local / "password").write_text(f"{PASSWORD}\n")
    path = f"sql+postgresql://{database.address.replace('flareclust@', 'reader@')}/clinic?options=-ctimezone%3DUTC"
    about = {"path": path, "query": query, "password": "file:password"}
    (local / CONFIG_FILE).write_text(yaml.safe_dump(about | keys))
    return SiteData.of(local, "north")


def test_types_are_those_of_the_same_table_in_a_file(database, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(",".join(line) for line in (NAMES, *LINES)))
    (tmp_path / CONFIG_FILE).write_text("{path: rows.csv, schema: schema.yaml}")
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    expected = SiteData.of(tmp_path, "north").table()
    found = site(tmp_path, database, "SELECT * FROM visits ORDER BY patient", schema="schema.yaml").table()
    np.testing.assert_array_equal(found.X, expected.X)
    assert list(found.ids or ()) == list(expected.ids or ())
    assert found.unread == ("note", "found")
    numbers = site(tmp_path, database, "SELECT patient, crp, smokes, age FROM visits ORDER BY 1 DESC", id="patient")
    table = numbers.table(gaps=True)
    np.testing.assert_array_equal(table.X[0], [59.1, 0, 79])
    assert (table.columns, table.ids[0], int(np.isnan(table.X).sum())) == (("crp", "smokes", "age"), "1059", 1)


def test_rows_are_those_of_one_moment_and_come_through_a_cursor_at_the_server(database, tmp_path, monkeypatch):
    monkeypatch.setattr(sql_tables, "_ROWS", 7)
    database.ask("clinic", "CREATE TABLE numbers AS SELECT x FROM generate_series(1, 100) AS all_of(x)")
    part, cursors = sql_tables._Columns._part, []

    def changed_meanwhile(self, rows):
        name = cursors[0] if cursors else self._result.cursor.name
        found = part(self, rows)
        if not cursors:
            database.ask("clinic", "UPDATE numbers SET x = -x; DELETE FROM numbers WHERE x < -50")
        cursors.append(name)
        return found

    monkeypatch.setattr(sql_tables._Columns, "_part", changed_meanwhile)
    table = site(tmp_path, database, "SELECT x FROM numbers ORDER BY x").table()
    np.testing.assert_array_equal(table.X[:, 0], np.arange(1, 101))
    assert len(cursors) == 16
    assert all(cursors)
    monkeypatch.undo()
    assert len(site(tmp_path, database, "SELECT x FROM numbers").table()) == 50


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT agee FROM visits", 'refuses the query: column "agee" does not exist'),
        ("SELECT age FROM visit", 'refuses the query: relation "visit" does not exist'),
        ("SELEC 1", "refuses the query: syntax error"),
        (
            "SELECT 'Miller'::integer AS x",
            "refuses the query: (InvalidTextRepresentation|DataError).* 22P02; run the query",
        ),
        (
            "WITH gone AS (DELETE FROM visits RETURNING age) SELECT age FROM gone",
            "refuses the query: .*(DECLARE|permission|read-only)",
        ),
        ("DROP TABLE visits", "refuses the query: "),
        ("SELECT age FROM visits WHERE age > 99", "there are no rows"),
        ("SELECT found FROM visits", "'found' is not numeric"),
        ("SELECT 'infinity'::date AS x", "the driver cannot read|is not numeric|refuses the query"),
    ],
)
def test_what_is_wrong_is_one_sentence_without_cells(database, tmp_path, query, words):
    with pytest.raises(Refusal, match=words) as refused:
        site(tmp_path, database, query).table(reader_owns_them=True)
    assert "Miller" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert database.ask("clinic", "SELECT COUNT(*) FROM visits") == ["60"]


def test_a_wrong_password_is_said_to_the_site_alone_and_without_it(database, tmp_path, caplog):
    data = site(tmp_path, database, "SELECT age FROM visits")
    assert len(data.table()) == 60
    (tmp_path / "password").write_text("quite another")
    with pytest.raises(
        Refusal, match=r"reader@.*cannot be reached, or refuses the account .*password authentication failed"
    ) as refused:
        data.table(reader_owns_them=True)
    with pytest.raises(Refusal, match=r"^cannot use its database; why is in the site's own log") as told:
        data.table()
    for text in (str(refused.value), str(told.value), caplog.text, repr(data)):
        assert "quite another" not in text
        assert PASSWORD not in text
    assert "127.0.0.1" not in str(told.value)
    nobody = site(
        tmp_path, database, "SELECT 1", path=f"sql+postgresql://reader@{database.address.partition('@')[2]}/gone"
    )
    (tmp_path / "password").write_text(PASSWORD)
    with pytest.raises(Refusal, match='database "gone" does not exist'):
        nobody.table(reader_owns_them=True)


def test_the_query_of_the_omop_example_gives_the_rows_of_sqlite(database, tmp_path):
    example = ROOT / "examples" / "omop"
    subprocess.run([sys.executable, example / "make.py", tmp_path], check=True, capture_output=True)
    database.create("omop")
    with closing(sqlite3.connect(tmp_path / "north.db")) as stored:
        script = ";".join(line for line in stored.iterdump() if line.startswith(("CREATE", "INSERT")))
    psycopg2 = pytest.importorskip("psycopg2")
    with closing(psycopg2.connect(f"postgresql://{database.address}/omop")) as connection:
        connection.cursor().execute(script)
        connection.commit()
    about = {"query": str(example / "cohort.sql"), "schema": str(example / "schema.yaml")}
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump({"path": "sql+sqlite:///north.db"} | about))
    expected = SiteData.of(tmp_path, "north").table()
    address = f"sql+postgresql://{database.address.replace('flareclust@', 'reader@')}/omop"
    found = site(tmp_path, database, path=address, **about).table()
    np.testing.assert_array_equal(found.X, expected.X)
    assert list(found.ids or ()) == list(expected.ids or ())
    assert len(found) > 200
