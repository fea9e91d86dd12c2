"""`flareclust site init` takes the mapping that belongs to the rows, and databases."""

import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import yaml

from flareclust.cli.main import main
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.rows import SiteData

SCHEMA = "columns:\n  patient: id\n  age: {type: number, unit: years}\n  sex: {type: category, values: [f, m]}\n"
MAPPING = "columns: {age: Alter, sex: {values: {w: f}}}\n"


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """A kit, and beside it rows with a mapping."""
    monkeypatch.chdir(tmp_path)
    for name in ("startup", "local"):
        (tmp_path / "north" / name).mkdir(parents=True)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rows.csv").write_text("patient,Alter,sex\n" + "".join(f"p{i},{i},{'wm'[i % 2]}\n" for i in range(9)))
    (tmp_path / "rows.mapping.yaml").write_text(MAPPING)
    return tmp_path / "north"


def call(*words):
    with pytest.raises(SystemExit) as ended:
        main(["site", "init", "north", *words])
    return ended.value.code


def written(kit):
    return yaml.safe_load((kit / "local" / CONFIG_FILE).read_text())


@pytest.mark.parametrize("named", [[], ["--mapping", "elsewhere.yaml"]])
def test_the_mapping_is_copied_and_said(kit, capsys, named):
    (kit.parent / "elsewhere.yaml").write_text(MAPPING)
    assert call("--rows", "rows.csv", "--schema", "schema.yaml", *named) == 0
    file = named[1] if named else "rows.mapping.yaml"
    assert f"mapping: copied from {file}; edit it in the new file" in capsys.readouterr().out
    assert written(kit)["mapping"] == yaml.safe_load(MAPPING)
    table = SiteData.of(kit / "local", "north").table()
    np.testing.assert_array_equal(table.X[:2], [[0, 1, 0], [1, 0, 1]])


def test_a_mapping_needs_a_schema_that_it_goes_with(kit, capsys):
    assert call("--rows", "rows.csv", "--mapping", "rows.mapping.yaml") == 2
    assert "name it, too: --schema" in capsys.readouterr().err
    (kit.parent / "rows.mapping.yaml").write_text("columns: {agee: Alter}\n")
    assert call("--rows", "rows.csv", "--schema", "schema.yaml") == 2
    assert "no column 'agee'" in capsys.readouterr().err
    assert not (kit / "local" / CONFIG_FILE).exists()
    assert call("--rows", "rows.csv") == 0
    assert "not used: rows.mapping.yaml, which maps to a schema" in capsys.readouterr().out
    assert "mapping" not in written(kit)


def test_a_database_is_named_by_full_paths(kit, capsys):
    with closing(sqlite3.connect("clinic.db")) as database, database:
        database.execute("CREATE TABLE visits (age INTEGER)")
        database.executemany("INSERT INTO visits VALUES (?)", [(i,) for i in range(9)])
    (kit.parent / "cohort.sql").write_text("SELECT age FROM visits ORDER BY age")
    assert call("--rows", "sql+sqlite:///clinic.db", "--query", "cohort.sql", "--password", "file:secret") == 0
    folder = kit.parent
    assert written(kit) == {
        "path": f"sql+sqlite:///{folder / 'clinic.db'}",
        "query": str(folder / "cohort.sql"),
        "password": f"file:{folder / 'secret'}",
    }
    (kit / "local" / CONFIG_FILE).unlink()
    (folder / "secret").write_text("unused")
    assert call("--rows", f"sql+sqlite:///{folder / 'clinic.db'}", "--query", "SELECT age FROM visits") == 0
    assert len(SiteData.of(kit / "local", "north").table()) == 9


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rows", "sql+sqlite:///clinic.db"], "nothing was written: the site .* a database without a query"),
        (["--rows", "rows.csv", "--query", "SELECT 1"], "there without a database"),
        (["--rows", "sql+sqlite:///clinic.db", "--query", "gone.sql"], "gone.sql, and there is no such file"),
        (["--rows", "sql+x://db", "--query", "SELECT 1", "--password", "hunter2"], "neither env:NAME nor file:PATH"),
    ],
)
def test_what_cannot_be_a_site_is_not_written(kit, capfd, words, why):
    assert call(*words) == 2
    error = " ".join(capfd.readouterr().err.split())
    assert re.search(why, error), error
    assert "hunter2" not in error
    assert not (kit / "local" / CONFIG_FILE).exists()
