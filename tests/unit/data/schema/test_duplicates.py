"""Several rows with one id: counted in every format, and all, one or none of them kept, as the schema says."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust import UserError
from flareclust._foundation.errors import TableFaults
from flareclust.data.memory import RowStore
from flareclust.data.schema.columns import TableSchema
from flareclust.data.schema.draft import draft
from flareclust.data.schema.reading import Typed
from flareclust.data.tables import File, Numbers
from flareclust.experiment.tables.typed_rows import without
from tests.command_line import call
from tests.unit.data.pieces_cases import write

N = 100
#: Of 100 rows in pieces of 17, the ids of rows 0 to 9 come back in rows 40 to 49 and 90 to 99.
IDS = [f"p{i}" for i in range(N)]
IDS[40:50], IDS[90:] = IDS[:10], IDS[:10]
KEPT = {"keep": range(N), "first": [*range(40), *range(50, 90)], "last": [*range(10, 40), *range(50, N)]}
COLUMNS = {"patient": "id", "x": "number", "group": {"type": "category", "values": ["a", "b"]}}


def frame(**more):
    return pd.DataFrame(
        {"patient": IDS, "x": np.arange(N, dtype=float), "group": ["ab"[i % 2] for i in range(N)], **more}
    )


def parts_of(folder, suffix, table):
    """Write a table in two files, so that ids repeat in one and in the other."""
    halves = (table.iloc[:45], table.iloc[45:].reset_index(drop=True))
    return [write(folder, suffix, half, f"part-{j}") for j, half in enumerate(halves)]


@pytest.mark.parametrize(
    ("suffix", "memory", "duplicates"),
    list(itertools.product(("csv", "parquet", "feather", "arrow"), (None, 200), ("keep", "first", "last", "refuse"))),
)
def test_rows_with_one_id_across_pieces_and_files(tmp_path, suffix, memory, duplicates):
    files = parts_of(tmp_path, suffix, frame())
    schema = TableSchema(duplicates=duplicates, columns=COLUMNS)
    if duplicates == "refuse":
        with pytest.raises(TableFaults) as error:
            Typed(schema, truth="group").read(files, RowStore(memory, tmp_path))
        [[fault]] = error.value.faults.values()
        assert fault.startswith("patient: 20 rows have the id of an earlier row, first in row 41 (duplicates: first")
        assert "p0" not in fault
        return
    table = Typed(schema, truth="group").read(files, RowStore(memory, tmp_path))
    assert isinstance(table.X, np.memmap) == (memory is not None)
    kept = list(KEPT[duplicates])
    np.testing.assert_array_equal(table.X[:, 0], kept)
    assert list(table.ids) == [IDS[i] for i in kept]
    assert list(table.truth) == ["ab"[i % 2] for i in kept]
    assert (table.rows_kept, *table.rows_read) == (len(kept), N, 0, 20, duplicates, 0, 0)
    verb = "kept beside an earlier" if duplicates == "keep" else "left out, since a"
    assert table.rows_read.notes()["repeated"].startswith(f"20 of 100 rows were {verb}")


@pytest.mark.parametrize("memory", [None, 200])
def test_rows_on_disk_move_piece_by_piece(tmp_path, monkeypatch, memory):
    monkeypatch.setattr("flareclust.core.chunks.PIECE", 7 * 16)
    rng = np.random.default_rng(0)
    X, kept = rng.normal(size=(N, 2)), rng.random(N) < 0.6
    store = RowStore(memory, tmp_path)
    for start in range(0, N, 30):
        store.add(X[start : start + 30].copy())
    store.keep(kept)
    np.testing.assert_array_equal(store.rows(), X[kept])
    store.close()


def test_the_first_and_last_are_of_the_rows_without_missing_cells(tmp_path):
    table = frame()
    table.loc[[0, 95], "x"] = np.nan
    files = parts_of(tmp_path, "parquet", table)
    for duplicates, of_p0, of_p5 in (("first", 40, 5), ("last", 90, 45)):
        schema = TableSchema(missing="drop-rows", duplicates=duplicates, columns=COLUMNS)
        read = Typed(schema).read(files)
        rows = dict(zip(read.ids, read.X[:, 0], strict=True))
        assert (rows["p0"], rows["p5"]) == (of_p0, of_p5)
        assert (len(read), *read.rows_read[:3]) == (80, N, 2, 18)
        assert len(read.rows_read.notes()) == 2


def test_a_row_that_counts_as_several_repeats_no_id(tmp_path):
    weights = [1 + i % 3 for i in range(N)]
    files = parts_of(tmp_path, "csv", frame(times=weights))
    columns = {**COLUMNS, "times": "weight"}
    for duplicates, kept in KEPT.items():
        read = Typed(TableSchema(duplicates=duplicates, columns=columns)).read(files, RowStore(300, tmp_path))
        np.testing.assert_array_equal(read.X[:, 0], np.repeat(kept, [weights[i] for i in kept]))
        assert (read.rows_kept, read.rows_read.repeated) == (len(kept), 20)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "npz"])
def test_ids_of_tables_of_numbers_are_counted(tmp_path, suffix):
    if suffix == "npz":
        np.savez(tmp_path / "t.npz", X=np.eye(N), patient=np.array(IDS))
        file = File(tmp_path / "t.npz", "t.npz")
    else:
        file = write(tmp_path, suffix, frame()[["patient", "x"]])
    table = Numbers(id_name="patient").read([file], RowStore(200, tmp_path))
    assert (len(table), table.rows_read[:3]) == (N, (N, 0, 20))


def test_what_a_schema_may_say_of_them():
    with pytest.raises(UserError, match="duplicates: first is of rows with one id; give the column with ids type: id"):
        TableSchema(duplicates="first", columns={"x": "number"})
    with pytest.raises(UserError, match="duplicates must be one of refuse, first, last, keep"):
        TableSchema(duplicates="frist", columns=COLUMNS)
    plain, first = (TableSchema(duplicates=one, columns=COLUMNS) for one in ("keep", "first"))
    assert plain.fingerprint == TableSchema(columns=COLUMNS).fingerprint != first.fingerprint
    assert without(first, "group").duplicates == "first"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    rng = np.random.default_rng(0)
    for site in ("north", "south"):
        x = np.where(np.arange(N) % 2, 50.0, 0.0) + rng.normal(size=N)
        frame().assign(x=x).to_csv(tmp_path / "data" / f"{site}.csv", index=False)
    (tmp_path / "data" / "south.csv").write_text(
        "\n".join((tmp_path / "data" / "south.csv").read_text().splitlines()[:43])
    )
    return tmp_path


def clustered(duplicates, **settings):
    with open("schema.yaml", "w", encoding="utf-8") as file:
        file.write(f"duplicates: {duplicates}\ncolumns: {{patient: id, x: number}}\n")
    return flareclust.run("pooled", "data", 2, partition="none", schema="schema.yaml", **settings)


def test_results_and_labels_of_runs(folder):
    kept = clustered("keep")
    assert [note for note in kept.warnings if "same id" in note] == [
        "22 of 142 rows were kept beside an earlier one with the same id; duplicates: first or last in a schema keeps one row of each id: north 20 of 100, south 2 of 42"
    ]
    last = clustered("last", out=folder / "out")
    assert [note for note in last.warnings if "same id" in note] == [
        "22 of 142 rows were left out, since a later one has the same id (duplicates: last): north 20 of 100, south 2 of 42"
    ]
    assert list(last.ids["north"]) == [IDS[i] for i in KEPT["last"]]
    expected = kept.site_labels["north"][list(KEPT["last"])]
    assert len({*zip(last.site_labels["north"], expected, strict=True)}) == 2
    # Of a site under a policy with a floor of 3, two rows are not counted.
    counted, silent = clustered("last", policy={"min_count": 3}).warnings[-2:]
    assert "20 of 142 rows were left out" in counted
    assert silent.startswith(
        "whether rows of south repeat an id is not said, since the sites' policy lets out no number below 3; at the"
    )
    assert call("assign", folder / "out", "--data", "data/north.csv", "--schema", "schema.yaml", "--out", "late") == 0
    labels = pd.read_csv(folder / "late" / "labels.csv")
    assert labels.iloc[:, 1].tolist() == [IDS[i] for i in KEPT["last"]]
    np.testing.assert_array_equal(labels["label"], last.site_labels["north"])
    with pytest.raises(TableFaults, match="patient: 20 rows have the id of an earlier row"):
        clustered("refuse")


def test_a_policy_hides_how_few_rows_were_left_out_and_what_they_follow_from(folder):
    whole = pd.read_csv(folder / "data" / "north.csv")
    for site, gaps in (("north", 20), ("south", 2)):
        table = whole.assign(patient=[f"{site}{i}" for i in range(N)])
        table.loc[: gaps - 1, "x"] = np.nan
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    drops = "keep\nmissing: drop-rows"
    counted = (
        "22 of 200 rows were left out, since a cell is missing (missing: drop-rows): north 20 of 100, south 2 of 100"
    )
    assert counted in clustered(drops).warnings
    assert counted in clustered(drops, policy={"min_count": 2}).warnings
    policed = " ".join(clustered(drops, policy={"min_count": 3}).warnings)
    assert "rows were left out, since a cell is missing (missing: drop-rows); how many is not said" in policed
    assert "no number below 3, which south may have; flareclust schema check" in policed
    assert not re.search(r"\b(22|20|200|100|98)\b", policed)


@pytest.mark.parametrize("repeated", [0, 2])
def test_a_policy_that_hides_how_many_repeat_an_id_is_said_whether_any_does_or_not(folder, repeated):
    for site in ("north", "south"):
        table = frame().assign(patient=[f"p{i}" for i in range(N - repeated)] + [f"p{i}" for i in range(repeated)])
        table.to_csv(folder / "data" / f"{site}.csv", index=False)
    said = [note for note in clustered("keep", policy={"min_count": 3}).warnings if " id" in note]
    assert [note.partition(",")[0] for note in said] == ["whether rows of north"]
    assert said[0].startswith("whether rows of north, south repeat an id is not said")
    own = {"policy": {"min_count": 3}, "secure_sums": True, "row_name": "patients"}
    pd.read_csv(folder / "data" / "north.csv").to_csv(folder / "data" / "west.csv", index=False)
    hidden = [note for note in clustered("keep", **own).warnings if " id" in note]
    assert len(hidden) == 1
    assert hidden[0].startswith("whether patients of any site repeat an id is not said")
    if not repeated:
        assert not [note for note in clustered("refuse", policy={"min_count": 3}).warnings if " id" in note]


def test_draft_and_check_count_them(folder, capsys):
    table = pd.read_csv("data/north.csv").assign(patient=[f"p{i}" for i in range(N - 3)] + ["p0", "p0", "p1"])
    table.to_csv("data/north.csv", index=False)
    text = draft("data/north.csv").text
    assert "duplicates: keep  # or first, last, refuse" in text
    assert "3 % of the rows have the id of another" in text
    assert call("schema", "draft", "data/north.csv", "--out", "schema.yaml") == 0
    assert "from 100 rows, 3 of them with the id of an earlier one;" in capsys.readouterr().out
    assert call("schema", "check", "data/north.csv", "--schema", "schema.yaml") == 0
    assert "hint: north.csv: 3 of 100 rows were kept beside an earlier one with the same id" in capsys.readouterr().out
    table.assign(patient=range(N)).to_csv("data/north.csv", index=False)
    assert "duplicates" not in draft("data/north.csv").text
