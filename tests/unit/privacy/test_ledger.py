"""The ledger: what was spent is kept in one file, limits hold, and a spoilt file refuses."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp import ledger
from flareclust.privacy.dp.ledger import Ledger, Overspent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "privacy" / "ledger.db"


def test_spendings_add_up_by_job_and_in_all(path):
    ledger = Ledger(path)
    for job, rho in (("a", 0.1), ("b", 0.3), ("a", 0.2)):
        ledger.spend(job, "cells", rho, 1.0, 1.0)
    assert ledger.spent().jobs == {"a": pytest.approx(0.3), "b": 0.3}
    assert list(ledger.spent().jobs) == ["a", "b"]
    assert Ledger(path).spent().total == pytest.approx(0.6), "another process sees the same"


def test_limits_hold_and_what_they_refuse_is_not_written(path):
    ledger = Ledger(path)
    ledger.spend("a", "x", 0.5, 0.5, 1.0)
    with pytest.raises(Overspent) as job:
        ledger.spend("a", "x", 1e-12, 0.5, 1.0)
    assert (job.value.of_job, job.value.spent) == (True, 0.5)
    ledger.spend("b", "x", 0.25, 0.5, 1.0)
    with pytest.raises(Overspent) as total:
        ledger.spend("c", "x", 0.3, 0.5, 1.0)
    assert (total.value.of_job, total.value.spent) == (False, 0.75)
    assert ledger.spent().total == 0.75


def test_a_lowered_budget_counts_what_was_spent_before(path):
    Ledger(path).spend("a", "x", 0.9, 1.0, 1.0)
    with pytest.raises(Overspent):
        Ledger(path).spend("b", "x", 0.1, 0.5, 0.5)
    Ledger(path).spend("b", "x", 0.1, 0.5, 1.0)


def test_nothing_is_spent_and_no_file_made_by_asking(path):
    assert Ledger(path).spent().total == 0
    assert not path.exists()


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf")])
def test_a_spending_is_a_number_above_zero(path, rho):
    with pytest.raises(ValueError, match="rho"):
        Ledger(path).spend("a", "x", rho, 1.0, 1.0)


def test_only_the_site_reads_its_ledger_and_nothing_else_is_left_in_the_folder(path):
    old = os.umask(0)
    try:
        Ledger(path).spend("a", "x", 0.1, 1.0, 1.0)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]


def test_a_commit_waits_for_the_disk(path):
    Ledger(path).spend("a", "x", 0.1, 1.0, 1.0)
    connection = ledger._connect(path, 1.0)
    [mode], [level] = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous"))
    connection.close()
    # Of a rollback journal FULL does not sync the folder from which the journal goes; EXTRA (3) does.
    assert (mode, level) == ("delete", 3)


# What is wrong with the file
def spoil(path: Path, how: str) -> None:
    Ledger(path).spend("a", "x", 0.1, 1.0, 1.0)
    data = path.read_bytes()
    if how == "emptied":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "overwritten":
        path.write_bytes(data[:100] + b"\xff" * (len(data) - 100))
    elif how == "text":
        path.write_text("spent nothing\n" * 400)
    elif how == "another program's":
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE spending (rho REAL)")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 9")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("emptied", "something else in the place of its privacy ledger"),
        ("cut", "damaged"),
        ("overwritten", "damaged"),
        ("text", "damaged"),
        ("another program's", "something else in the place of its privacy ledger"),
        ("of a later version", "another version of flareclust"),
    ],
)
def test_a_spoilt_ledger_refuses_and_is_left_as_it_is(path, how, words):
    spoil(path, how)
    before = path.read_bytes()
    for use in (lambda: Ledger(path).spend("a", "x", 0.1, 1.0, 1.0), lambda: Ledger(path).spent()):
        with pytest.raises(Refusal, match=words) as caught:
            use()
        assert str(path.parent) not in str(caught.value)
        assert "ledger.db" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_ledger_in_use_is_waited_for_and_then_refused(path):
    Ledger(path).spend("a", "x", 0.1, 1.0, 1.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Refusal, match="another process has held"):
        Ledger(path, patience=0.05).spend("a", "x", 0.1, 1.0, 1.0)
    other.execute("ROLLBACK")
    other.close()
    Ledger(path, patience=0.05).spend("a", "x", 0.1, 1.0, 1.0)


def test_a_folder_that_cannot_be_made_refuses_without_its_name(tmp_path):
    (tmp_path / "kit").write_text("a file")
    with pytest.raises(Refusal, match="cannot write its privacy ledger") as caught:
        Ledger(tmp_path / "kit" / "ledger.db").spend("a", "x", 0.1, 1.0, 1.0)
    assert "kit" not in str(caught.value)


def test_a_folder_in_the_place_of_the_file_refuses(path):
    path.mkdir(parents=True)
    with pytest.raises(Refusal, match="ledger"):
        Ledger(path).spend("a", "x", 0.1, 1.0, 1.0)
