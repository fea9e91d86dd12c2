"""Rows that a site has withdrawn by their ids: no job has them, whatever holds the table, and the list stays at the site."""

import json
import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.cli.main import main
from flareclust.core.chunks import is_mapped
from flareclust.data.ids import Withdrawn
from flareclust.privacy.policy import Policy
from flareclust.sites import held_rows, withdrawn
from flareclust.sites.check import check
from flareclust.sites.held_rows import held, keep_rows
from flareclust.sites.job_log import JOBS_FILE, note_came, read_log
from flareclust.sites.policy_file import write_policy
from flareclust.sites.rows import SiteData
from tests.unit.sites.site_cases import site

N = 40
IDS = [f"p{i}" for i in range(N)]
GONE = ["p3", "p17", "p39"]
LEFT = [one for one in IDS if one not in GONE]
X = np.arange(2.0 * N).reshape(N, 2)


def frame():
    return pd.DataFrame({"patient": IDS, "a": X[:, 0], "b": X[:, 1]})


def write(folder, suffix):
    """Write the table in a format; return the keys of the configuration."""
    file = folder / f"rows.{suffix}"
    if suffix == "csv":
        frame().to_csv(file, index=False)
    elif suffix == "npz":
        np.savez(file, X=X, columns=np.array(["a", "b"]), patient=np.array(IDS))
    elif suffix == "parquet":
        pa.parquet.write_table(pa.Table.from_pandas(frame()), file)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame()), str(file))
    return {"path": str(file), "id": "patient"}


@pytest.mark.parametrize("memory", [None, 64])
@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet", "arrow", "feather"])
def test_jobs_have_the_other_rows_in_every_format(local, suffix, memory, caplog):
    import pyarrow.feather  # noqa: F401

    caplog.set_level(logging.INFO)
    withdrawn.withdraw(local, [*GONE, "nobody"])
    table = site(local, **write(local, suffix), **({} if memory is None else {"memory": memory})).table(scratch=local)
    np.testing.assert_array_equal(table.X, X[[int(one[1:]) for one in LEFT]])
    assert list(table.ids) == list(table.ids_used) == LEFT
    assert (table.rows_read.withdrawn, table.rows_kept, sorted(table.not_found)) == (3, N - 3, ["nobody"])
    assert is_mapped(table.X) == (memory is not None)
    assert "3 of 40 rows were left out, since their ids are withdrawn" in caplog.text
    assert not any(one in f"{caplog.text}{table!r}" for one in (*GONE, "nobody"))


def test_parts_of_a_table_and_images_are_left_out_alike(local):
    for number, part in enumerate(np.array_split(np.arange(N), 3)):
        (local / "parts").mkdir(exist_ok=True)
        pa.parquet.write_table(pa.Table.from_pandas(frame().iloc[part]), local / "parts" / f"part.{number}.parquet")
    withdrawn.withdraw(local, GONE)
    assert list(site(local, path="parts", id="patient").table().ids) == LEFT
    image = pytest.importorskip("PIL.Image")
    (local / "scans").mkdir()
    for name in "abc":
        image.fromarray(np.full((4, 4), ord(name), np.uint8)).save(local / "scans" / f"{name}.png")
    withdrawn.withdraw(local, ["b.png"])
    assert list(site(local, path="scans").table().ids) == ["a.png", "c.png"]


SCHEMA = "duplicates: {}\nmissing: drop-rows\ncolumns: {{patient: id, a: {{type: number}}, w: {{type: weight}}}}"


@pytest.mark.parametrize(
    ("duplicates", "marked", "rows", "read"),
    [
        ("keep", False, [1, 1, 3], (6, 1, 1, 2)),
        ("first", False, [1, 1, 3], (6, 1, 1, 1)),
        ("last", True, [1, 1, 4, 3], (6, 1, 1, 1)),
    ],
)
def test_rows_by_a_schema_with_weights_gaps_and_repeated_ids(local, duplicates, marked, rows, read):
    (local / "schema.yaml").write_text(SCHEMA.format(duplicates))
    (local / "rows.csv").write_text("patient,a,w\np1,1,2\np2,2,3\np3,,1\np2,4,1\np4,3,1\np5,,1\n")
    withdrawn.withdraw(local, ["p2"])
    table = site(local, path="rows.csv", schema="schema.yaml").table(marked=marked)
    found = table.rows_read
    assert table.X[:, 0].tolist() == rows
    assert (found.of, found.repeated, found.withdrawn) == (read[0], read[2], read[3])
    assert len(list(table.ids_used)) == len(rows) - marked


def test_a_site_with_a_policy_reads_them_for_its_groups_alone(local):
    withdrawn.withdraw(local, GONE)
    table = site(local, **write(local, "csv")).table(marked=True)
    assert table.X.shape == (N, 2)
    assert [IDS[i] for i in np.flatnonzero(table.withdrawn)] == GONE
    assert (list(table.ids_used), table.rows_kept) == (LEFT, N - 3)


@pytest.mark.parametrize("keys", [{"path": "rows.npy"}, {"path": "rows.csv"}])
def test_a_table_without_ids_is_refused(local, keys):
    np.save(local / "rows.npy", X)
    frame()[["a", "b"]].to_csv(local / "rows.csv", index=False)
    withdrawn.withdraw(local, GONE)
    with pytest.raises(Refusal, match="leaves out rows by their ids, and its rows have none; name the column"):
        site(local, **keys).table()


def test_a_site_whose_rows_are_all_withdrawn_is_refused(local):
    withdrawn.withdraw(local, IDS)
    with pytest.raises(Refusal, match=r"all rows.* are left out"):
        site(local, **write(local, "csv")).table()


def test_min_rows_is_of_the_rows_that_are_left(local):
    keys = write(local, "csv")
    assert len(site(local, min_rows=N, **keys).table()) == N
    withdrawn.withdraw(local, GONE)
    for marked in (False, True):
        with pytest.raises(Refusal, match="min_rows"):
            site(local, min_rows=N, **keys).table(marked=marked)


@pytest.mark.parametrize("text", ["{", '{"ids": ["p1"]}', '{"ids": {"p1": 1, "p1": 2}}'])
def test_a_list_that_cannot_be_read_stops_all_jobs_and_discloses_nothing(local, text):
    keys = write(local, "csv")
    (local / withdrawn.WITHDRAWN_FILE).write_text(text)
    with pytest.raises(Refusal, match=r"flareclust_withdrawn\.json that cannot be read") as refused:
        site(local, **keys)
    assert "p1" not in str(refused.value)


# --- the command ---
@pytest.fixture
def clinic(kit):
    (kit / "local" / "flareclust.yaml").write_text(json.dumps(write(kit.parent, "csv")))
    (kit.parent / "gone.txt").write_text("p3\n\n p17 \np39\nnobody\n")
    return kit


def said(capsys, *words, code=0):
    with pytest.raises(SystemExit) as ended:
        main(["site", "withdraw", *map(str, words)])
    assert ended.value.code in ((None, 0) if code == 0 else (code,))
    found = capsys.readouterr()
    return found.out if code == 0 else found.err


def test_withdraw_counts_rows_names_unknown_ids_and_is_undone(clinic, capsys):
    file = clinic.parent / "gone.txt"
    assert said(capsys, clinic, "--ids", file).splitlines() == [
        f"4 ids withdrawn; 4 in {file}",
        "withdrawn: 4 ids, 3 rows left out of every job from the next one on",
        "hint: 1 withdrawn id is in no row: nobody",
    ]
    kept = clinic / "local" / withdrawn.WITHDRAWN_FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    checked = check(clinic)
    assert (checked.facts["withdrawn"], checked.rows.number) == ("4 ids, 3 rows left out of every job", N - 3)
    assert "1 withdrawn id is in no row: nobody" in checked.hints
    (clinic.parent / "back.txt").write_text("p3\nnever\n")
    assert "1 id taken off the list; 2 in" in said(capsys, clinic, "--ids", clinic.parent / "back.txt", "--undo")
    assert "withdrawn: 3 ids, 2 rows" in said(capsys, clinic)
    said(capsys, clinic, "--ids", file, "--undo")
    assert said(capsys, clinic) == "nothing is withdrawn at this site\n"
    assert len(SiteData.of(clinic / "local", "north").table()) == N


def test_the_command_of_the_kits_folder_is_the_same(clinic, capsys, monkeypatch):
    monkeypatch.chdir(clinic)
    with pytest.raises(SystemExit):
        main(["withdraw", "--ids", "../gone.txt"])
    assert "4 ids withdrawn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--undo"], "name them with --ids FILE"),
        (["--ids", "no-such-file"], "cannot be read"),
        (["--ids", "EMPTY"], "has no ids; expected one a line"),
        (["--ids", "LATIN"], "expected a text file with one id a line"),
        (
            ["--ids", "SEMICOLONS"],
            "SEMICOLONS: line 2 has a semicolon, as between the fields of a table; expected one id a line",
        ),
        (["--ids", "COMMAS"], "COMMAS: line 1 has a comma"),
        (["--ids", "TABS"], "TABS: line 1 has a tab"),
        (["--ids", "BARS"], "BARS: line 1 has '|'"),
        (
            ["--ids", "SHEET"],
            "SHEET is not text in UTF-8; expected a text file with one id a line; save a spreadsheet as csv (UTF-8)",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(clinic, capsys, words, text):
    (clinic.parent / "EMPTY").write_text("\n \n")
    (clinic.parent / "LATIN").write_bytes("ö\n".encode("latin-1"))
    (clinic.parent / "SEMICOLONS").write_text("p3\np17;secret;2024-05-01\n")
    (clinic.parent / "COMMAS").write_text("patient,seen_on\np17,2024-05-01\n")
    (clinic.parent / "TABS").write_text("p17\tsecret\n")
    (clinic.parent / "SHEET").write_bytes(b"PK\x03\x04\x14\xff")
    (clinic.parent / "BARS").write_text("p17|secret\n")
    words = [clinic.parent / word if word.isupper() else word for word in words]
    found = said(capsys, clinic, *words, code=2)
    assert text in found
    assert "secret" not in found
    assert not (clinic / "local" / withdrawn.WITHDRAWN_FILE).exists()


def test_an_id_in_double_quotes_is_what_is_between_them(tmp_path):
    (tmp_path / "ids").write_text('"a;b"\n"p3"\n "say ""c"", d" \nplain "e"\n"f\n')
    assert withdrawn.ids_in(tmp_path / "ids") == ["a;b", "p3", 'say "c", d', 'plain "e"', '"f']


def test_a_list_for_a_table_without_ids_is_kept_and_said_to_stop_jobs(clinic, capsys):
    (clinic / "local" / "flareclust.yaml").write_text(
        json.dumps({"path": str(clinic.parent / "rows.csv"), "columns": ["a"]})
    )
    text = said(capsys, clinic, "--ids", clinic.parent / "gone.txt", code=2)
    assert "the list is kept, and no job runs before this is mended" in text
    assert len(withdrawn.withdrawn_ids(clinic / "local")) == 4


@pytest.mark.parametrize("command", ["check", "withdraw", "log"])
def test_a_list_that_cannot_be_read_is_named_to_its_owner_with_the_reason(clinic, capsys, command):
    (clinic / "local" / withdrawn.WITHDRAWN_FILE).write_text("{")
    with pytest.raises(SystemExit, match="2"):
        main(["site", command, str(clinic)])
    text = capsys.readouterr().err
    assert f"{withdrawn.WITHDRAWN_FILE} is not JSON" in text
    assert "write the list anew with flareclust site withdraw" in text
    assert "site check says why" not in text


def test_an_id_whose_row_is_left_out_anyway_is_told_from_one_in_no_row(clinic, capsys):
    rows = clinic.parent / "rows.csv"
    rows.write_text(rows.read_text() + "p40,1.0,\np41,,\np3,2.0,\n")
    (clinic / "local" / "schema.yaml").write_text("missing: drop-rows\ncolumns: {patient: id, a: number, b: number}")
    (clinic / "local" / "flareclust.yaml").write_text(json.dumps({"path": str(rows), "schema": "schema.yaml"}))
    (clinic.parent / "gone.txt").write_text("p3\np41\np40\nnobody\n")
    hints = [
        "1 withdrawn id is in no row: nobody",
        "2 withdrawn ids are only in rows that are left out anyway, since a cell is missing: p40, p41",
    ]
    text = said(capsys, clinic, "--ids", clinic.parent / "gone.txt").splitlines()
    assert text[1:] == [
        "withdrawn: 4 ids, 1 row left out of every job from the next one on",
        *(f"hint: {x}" for x in hints),
    ]
    assert set(hints) <= set(check(clinic).hints)


@pytest.mark.parametrize("command", ["check", "withdraw"])
def test_the_commands_print_no_lines_of_a_log(clinic, capsys, caplog, command):
    caplog.set_level(logging.INFO)
    rows = clinic.parent / "rows.csv"
    rows.write_text(rows.read_text() + "p3,1.0,\np5,2.0,3.0\n")
    (clinic / "local" / "schema.yaml").write_text(
        "missing: drop-rows\nduplicates: first\ncolumns: {patient: id, a: number, b: number}"
    )
    (clinic / "local" / "flareclust.yaml").write_text(json.dumps({"path": str(rows), "schema": "schema.yaml"}))
    withdrawn.withdraw(clinic / "local", GONE)
    with pytest.raises(SystemExit):
        main(["site", command, str(clinic)])
    assert "3 rows left out of every job" in capsys.readouterr().out
    assert not [record for record in caplog.records if record.name.startswith("flareclust")]


def test_a_kit_without_rows_such_as_the_servers_gets_no_list(clinic, capsys):
    (clinic / "local" / "flareclust.yaml").unlink()
    text = said(capsys, clinic, "--ids", clinic.parent / "gone.txt", code=2)
    assert "nothing was written" in text
    assert "names no rows" in text
    assert not (clinic / "local" / withdrawn.WITHDRAWN_FILE).exists()


def test_a_policy_is_named_with_what_it_leaves_out_as_well(clinic, capsys):
    write_policy(clinic / "local", Policy(min_count=10))
    text = said(capsys, clinic, "--ids", clinic.parent / "gone.txt")
    assert "policy: with each row goes its group, up to 18 others, not counted above" in text


# --- which jobs had them ---
def ran(kit, job, ids, out=0):
    note_came(kit, job, "night", "lead@hub.org", "lloyd", "")
    keep_rows(kit, job, ids, out)


def test_the_log_says_which_jobs_had_rows_of_which_ids(clinic, capsys):
    ran(clinic, "job-1", IDS)
    ran(clinic, "job-2", IDS[:10])
    ran(clinic, "job-3", LEFT, out=3)
    ran(clinic, "job-4", None)
    note_came(clinic, "job-5", "night", "lead@hub.org", "", "not authorized")
    assert held(clinic, read_log(clinic), GONE) == [3, 1, 0, None, 0]
    text = said(capsys, clinic, "--ids", clinic.parent / "gone.txt")
    assert "2 earlier jobs had rows of the withdrawn ids, the last one job-2 night" in text
    assert "of 1 earlier jobs it is not known" in text
    assert "job-1 has no end yet" in text
    with pytest.raises(SystemExit):
        main(["site", "log", str(clinic)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("no end  ")[2] for line in lines[:4]] == [
        "had rows of 3 of the withdrawn ids",
        "had rows of 1 of the withdrawn ids",
        "3 rows left out",
        "not known which rows it had",
    ]
    (clinic.parent / "one.txt").write_text("p5\n")
    with pytest.raises(SystemExit):
        main(["site", "log", str(clinic), "--ids", str(clinic.parent / "one.txt"), "--json"])
    assert [json.loads(line)["held"] for line in capsys.readouterr().out.splitlines()] == [1, 1, 1, None, 0]


def test_what_is_kept_has_no_ids_is_the_accounts_own_and_bounded(clinic, monkeypatch):
    folder = clinic / held_rows._ROWS_FOLDER
    for number in range(3):
        ran(clinic, f"same-{number}", reversed(IDS) if number else IDS)
    (first,) = folder.glob("*.ids")
    assert first.stat().st_size == 8 * N
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert b"p17" not in file.read_bytes()
    assert folder.stat().st_mode & 0o077 == 0
    assert "p17" not in (clinic / JOBS_FILE).read_text()
    monkeypatch.setattr(held_rows, "_MOST", 8 * (2 * N - 3))
    ran(clinic, "other", LEFT)
    assert held(clinic, read_log(clinic), GONE) == [3, 3, 3, 0]
    ran(clinic, "third", IDS[:5])
    assert held(clinic, read_log(clinic), ["p1"]) == [None, None, None, 1, 1]


def test_a_kit_without_a_log_of_jobs_and_one_that_cannot_be_written_keep_nothing(clinic, caplog):
    keep_rows(clinic, "job-1", IDS, 0)
    assert not (clinic / held_rows._ROWS_FOLDER).exists()
    (clinic / held_rows._ROWS_FOLDER).write_text("a file")
    ran(clinic, "job-1", IDS)
    assert "the log of jobs (flareclust site log) cannot be written" in caplog.text
    assert held(clinic, read_log(clinic), GONE) == [None]


def test_ids_do_not_show_in_what_python_prints():
    assert "p3" not in repr(Withdrawn(frozenset(GONE)))
