"""The ledger: what was spent is on the disk before noise is drawn, whatever ends the process; limits hold for all together."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp import ledger_file
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
    connection = ledger_file.connect(path, 1.0)
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


# What ends the process

#: Sites, each a process of its own, forked so that Python is started once. Each spends and draws through the real terms, and
#: writes down what it has drawn and sent. It kills itself at its `at`-th passage of the step `where`.
SITES = """
import json, os, sys
import numpy as np
from flareclust.privacy.dp import ledger_file, mechanism
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.policy import DifferentialPrivacy
from flareclust.privacy.dp.budget import DPSession

def site(folder, where, at, job):
    passed = {}

    def say(what):
        with open(folder + "/told", "a") as out:
            out.write(what + "\\n")
            out.flush()
            os.fsync(out.fileno())

    def passing(step):
        passed[step] = passed.get(step, 0) + 1
        if step == where and passed[step] == at:
            os.kill(os.getpid(), 9)

    def watched(owner, name, step):
        inner = getattr(owner, name)
        def outer(*args):
            passing("before " + step)
            result = inner(*args)
            passing("after " + step)
            return result
        setattr(owner, name, outer)

    def drawn(*args):
        passing("before draw")
        say("drawn " + job)
        noisy = draw(*args)
        passing("after draw")
        return noisy

    for owner, name in ((ledger_file, "make"), (ledger_file, "set_up"), (Ledger, "_begin"), (Ledger, "_write"), (Ledger, "_commit")):
        watched(owner, name, name.strip("_"))
    draw = mechanism.gaussian
    mechanism.gaussian = drawn
    dp = DifferentialPrivacy((0.0, 1.0), 1.0, 1e-5, 1.0)
    terms = DPSession(np.zeros(1), np.ones(1), dp, job, Ledger(folder + "/ledger.db"), 1.0)
    for _ in range(3):
        terms.gaussian(np.zeros(2, np.int64), 1.0, 1e-3, "test")
        passing("before send")
        say("sent " + job)

mechanism._measurement(1.0, 1e-3)  # loads OpenDP once, and not in every site
for case in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            site(*case)
            status = 0
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

STEPS = [
    f"{when} {what}" for what in ("make", "set_up", "begin", "write", "commit", "draw") for when in ("before", "after")
]
ONCE = [step for step in STEPS if step.endswith(("make", "set_up"))]


def run_sites(cases: list[tuple[str, str, int, str]]) -> list[int]:
    """Run sites one after the other; return their exit codes."""
    command = [sys.executable, "-c", SITES, json.dumps(cases)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    out, errors = process.communicate(timeout=100)
    codes = [int(line) for line in out.split()]
    assert len(codes) == len(cases), errors.decode()
    return codes


def lines(told: Path) -> list[str]:
    return told.read_text().splitlines() if told.exists() else []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_site_killed_at_any_step_never_counts_less_than_it_drew(tmp_path):
    killed, after = [], []
    for where in [*STEPS, "before send"]:
        for at in (1,) if where in ONCE else (1, 2):
            folder = tmp_path / f"{where} {at}"
            folder.mkdir()
            killed.append((str(folder), where, at, "a"))
            after.append((str(folder), "never", 0, "b"))
    assert run_sites(killed) == [-signal.SIGKILL] * len(killed)
    for name, where, at, _ in killed:
        folder = Path(name)
        counted = round(Ledger(folder / "ledger.db").spent().jobs.get("a", 0.0) / 1e-3)
        drawn = lines(folder / "told").count("drawn a")
        begun = 0 if where in ONCE else at
        assert drawn <= counted <= begun, f"killed {where}, passage {at}: {drawn} drawn, {counted} counted"
        if where in ("after commit", "before draw"):
            assert (drawn, counted) == (at - 1, at), "the spending was not there before the noise"
        if where in ("before write", "after write", "before commit"):
            assert counted == at - 1
    assert run_sites(after) == [0] * len(after), "the next job cannot go on"
    for name, *_ in after:
        assert Ledger(Path(name) / "ledger.db").spent().jobs["b"] == pytest.approx(3e-3)


SPENDER = """
import sys
from flareclust.privacy.dp.ledger import Ledger, Overspent
ledger, spent = Ledger(sys.argv[1]), 0
print("ready", flush=True)
sys.stdin.readline()
for _ in range(40):
    try:
        ledger.spend(sys.argv[2], "x", 1 / 64, 1.0, 1.0)
        spent += 1
    except Overspent:
        pass
print(spent)
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_processes_at_once_share_one_budget(tmp_path):
    path = tmp_path / "ledger.db"  # which they make at once, too
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(path), job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for job in ("a", "b", "a")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    spent = [int(process.communicate(timeout=90)[0]) for process in processes]
    assert sum(spent) == 64, f"{spent} of 64 that the budget has"
    told = Ledger(path).spent()
    assert told.total == 1.0
    assert (told.jobs.get("a", 0) * 64, told.jobs.get("b", 0) * 64) == (spent[0] + spent[2], spent[1])
