"""A site whose configuration names the federation's schema: its rows, and what a refusal may say."""

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.sites.check import check
from flareclust.sites.rows import SiteData
from tests.unit.sites.site_cases import site

SCHEMA = "columns: {patient: id, age: {type: number, range: [0, 120]}, sex: {type: category, values: [f, m]}}"


@pytest.fixture
def local(tmp_path):
    folder = tmp_path / "north" / "local"
    folder.mkdir(parents=True)
    (folder / "schema.yaml").write_text(SCHEMA)
    (folder / "rows.csv").write_text("patient,Alter,sex\np1,40,w\np2,51,m\n")
    return folder


MAPPING = {"columns": {"age": "Alter", "sex": {"values": {"w": "f"}}}}


def test_rows_by_the_schema(local):
    data = site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING)
    table = data.table()
    np.testing.assert_array_equal(table.X, [[40, 1, 0], [51, 0, 1]])
    assert table.columns == ("age", "sex=f", "sex=m")
    assert (data.id, list(table.ids)) == ("patient", ["p1", "p2"])


def test_a_refusal_names_encodings(local):
    (local / "rows.csv").write_bytes("patient,Alter,sex\nö,40,w\n".encode("latin-1"))
    with pytest.raises(Refusal, match=r"is no utf-8 text, first in line #; .* with `encoding: latin-1` or cp1252"):
        site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING).table()


def test_rows_that_are_dropped_are_in_the_sites_own_log(local, caplog):
    (local / "schema.yaml").write_text(SCHEMA.replace("columns:", "missing: drop-rows\ncolumns:"))
    (local / "rows.csv").write_text("patient,Alter,sex\np1,40,w\np2,,m\n")
    table = site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING).table()
    assert (len(table), table.rows_read[:2]) == (1, (2, 1))
    assert "1 of 2 rows was left out, since a cell is missing (missing: drop-rows)" in caplog.text


@pytest.mark.parametrize(
    ("duplicates", "ages", "said"),
    [
        ("keep", [40, 51, 42], "1 of 3 rows was kept beside an earlier one with the same id"),
        ("first", [40, 51], "1 of 3 rows was left out, since an earlier one has the same id (duplicates: first)"),
        ("last", [51, 42], "1 of 3 rows was left out, since a later one has the same id (duplicates: last)"),
    ],
)
def test_repeated_ids_are_in_the_sites_own_log_and_check(local, caplog, duplicates, ages, said):
    (local / "schema.yaml").write_text(f"duplicates: {duplicates}\n{SCHEMA}")
    (local / "rows.csv").write_text("patient,Alter,sex\np1,40,w\np2,51,m\np1,42,w\n")
    table = site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING).table()
    assert table.X[:, 0].tolist() == ages
    assert said in caplog.text
    (local.parent / "startup").mkdir()
    assert [hint for hint in check(local.parent).hints if said in hint]


def test_a_site_that_refuses_repeated_ids_tells_others_no_number(local):
    (local / "schema.yaml").write_text(f"duplicates: refuse\n{SCHEMA}")
    (local / "rows.csv").write_text("patient,Alter,sex\np1,40,w\np2,51,m\np1,42,w\n")
    data = site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING)
    with pytest.raises(Refusal, match=r"patient: # row has the id of an earlier row, first in row # \(duplicates"):
        data.table()
    with pytest.raises(Refusal, match=r"patient: 1 row has the id of an earlier row, first in row 3"):
        data.table(reader_owns_them=True)


def test_a_refusal_holds_no_value_and_no_number(local):
    data = site(local, path="rows.csv", schema="schema.yaml", mapping={"columns": {"age": "Alter"}})
    with pytest.raises(Refusal) as refused:
        data.table()
    text = str(refused.value)
    assert "sex: # cell is none of the schema's values, first in row #" in text
    with pytest.raises(Refusal, match="first in row 1"):
        data.table(reader_owns_them=True)


def test_hidden_columns_are_features(local):
    data = site(local, path="rows.csv", schema="schema.yaml", mapping=MAPPING, hide=["sex=f"], salt="x" * 16)
    assert data.table().hidden == {"sex=f"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"schema": "schema.yaml", "columns": ["age"]}, "columns are beside a schema"),
        ({"schema": "schema.yaml", "id": "patient", "agreement": "exact"}, "id and agreement are beside a schema"),
        ({"mapping": {}}, "mapping has no schema to map to"),
        ({"schema": "schema.yaml", "mapping": "rows"}, "mapping is of the wrong kind"),
        ({"schema": 3}, "whose schema is no text"),
        ({"schema": "gone.yaml"}, "schema or mapping cannot be used; flareclust site check says why"),
        ({"schema": "schema.yaml", "mapping": {3: 4}}, "schema or mapping cannot be used"),
        ({"schema": "schema.yaml", "mapping": {"columns": {"secret": "Alter"}}}, "schema or mapping cannot be used"),
    ],
)
def test_configurations_that_cannot_be(local, keys, words):
    with pytest.raises(Refusal) as refused:
        site(local, path="rows.csv", **keys)
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_owner_is_told_why(local):
    with pytest.raises(Refusal):
        site(local, path="rows.csv", schema="schema.yaml", mapping={"columns": {"aeg": "Alter"}})
    with pytest.raises(Refusal, match=r"the schema has no column 'aeg' \(did you mean 'age'"):
        SiteData.of(local, "site-1", reader_owns_them=True)


TIMED = """columns: {age: number, days: {type: number, unit: d}, died: number}
outcome: {time: days, event: died, every: 10, until: 40}
"""


def test_the_check_says_what_outcome_rows_have(local):
    kit, lines = local.parent, ["40,5,1", "51,,0", "62,41,1"]
    (kit / "startup").mkdir()
    (local / "schema.yaml").write_text(TIMED)
    (local / "rows.csv").write_text("\n".join(["age,days,died", *lines, ""]))
    site(local, path="rows.csv", schema="schema.yaml")
    found = check(kit).facts["outcome"]
    assert found == (
        "time (days) to died, in 4 intervals of 10 d until 40; 2 of 3 rows have it: 1 with the event by then, 1 there for longer"
    )
    (local / "schema.yaml").write_text("missing: mean\n" + TIMED.partition("outcome")[0] + "outcome: {value: died}\n")
    assert any(hint.startswith("column 'days': by the name known with the outcome") for hint in check(kit).hints)


def test_odd_outcomes_are_shown_as_other_cells_are(local):
    kit, lines = local.parent, ["40,-5,1", "51,7,2", "62,1e80,no"]
    (kit / "startup").mkdir()
    (local / "schema.yaml").write_text(TIMED)
    (local / "rows.csv").write_text("\n".join(["age,days,died", *lines, ""]))
    data = site(local, path="rows.csv", schema="schema.yaml")
    (error,) = [text for text in check(kit).errors if "cannot use its rows" in text]
    assert "days: 1 cell is below 0, where times begin, first in row 1 (correct them, or leave the cell empty" in error
    assert "days: 1 cell is beyond 1e+59, where squares cannot be added up, first in row 3" in error
    assert "died: 1 cell is neither 0 nor 1, first in row 2 (1 with the event, 0 without" in error
    assert "died: 1 cell is no number, first in row 3" in error
    shown = {(cell.column, cell.row, cell.value) for cell in data.odd_cells()}
    assert shown == {("days", 1, "-5"), ("died", 2, "2"), ("days", 3, "1e80"), ("died", 3, "no")}
