"""The account of privacy belongs to a table: renewed, second and copied kits share it, and none gets a fresh one instead."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal
from flareclust.cli.main import main
from flareclust.privacy.dp.ledger import Entry, Ledger
from flareclust.privacy.policy import Policy
from flareclust.sites import account as module
from flareclust.sites.account import MEMORY, accounts, open_account
from flareclust.sites.budget import budget_of
from flareclust.sites.config import CONFIG_FILE, write_site
from flareclust.sites.policy_file import session_of, write_policy
from flareclust.sites.takeover import OLD

PRIVATE = {"min_count": 2, "differential_privacy": {"bounds": [-9, 9], "epsilon": 1, "delta": 1e-5, "budget": 5}}


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def rows(tmp_path, state) -> Path:
    """A file with rows, outside of every kit."""
    file = tmp_path / "secure" / "rows.npy"
    file.parent.mkdir()
    np.save(file, np.random.default_rng(0).normal(size=(30, 2)))
    return file


def kit_of(tmp_path: Path, name: str, rows: Path | str, **said: object) -> Path:
    """Make a kit as provisioning does, with rows and a policy of differential privacy; return its folder `local`."""
    local = tmp_path / name / "local"
    local.mkdir(parents=True)
    (local.parent / "startup").mkdir()
    write_site(local, str(rows))
    configure(local, **said)
    write_policy(local, Policy.of(PRIVATE))
    return local


def configure(local: Path, **said: object) -> None:
    with (local / CONFIG_FILE).open("a") as file:
        file.writelines(f"{key}: {value}\n" for key, value in said.items())


def renewed(local: Path, folder: Path) -> Path:
    """Renew a kit as documented: a new one, with the folder `local` of the old one, which is gone."""
    (folder / "startup").mkdir(parents=True)
    shutil.copytree(local, folder / "local")
    shutil.rmtree(local.parent)
    return folder / "local"


def spend(local: Path, job: str, rho: float = 0.25, site: str = "north") -> float:
    """Spend as a job of that id does; return what the table has spent until then."""
    terms = session_of(local, site, job, private=True)
    assert terms is not None
    assert terms.ledger is not None
    before = terms.ledger.spent().total
    terms.ledger.spend(job, "cells", rho, 10.0, 10.0)
    return before


def old_ledger(local: Path, *spendings: tuple[str, float]) -> Path:
    """Make the ledger that an older version kept in a kit."""
    file = local.parent / OLD
    file.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "CREATE TABLE spending (number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, job TEXT NOT NULL, "
            "what TEXT NOT NULL, rho REAL NOT NULL CHECK (rho > 0))"
        )
        for job, rho in spendings:
            connection.execute(
                "INSERT INTO spending (at, job, what, rho) VALUES (?, ?, ?, ?)",
                ("2026-01-01T00:00:00+00:00", job, "cells", rho),
            )
        connection.execute(f"PRAGMA application_id = {0x666C6C67}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    return file


# Who shares an account


def test_a_kit_renewed_as_documented_goes_on_with_what_was_spent(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    assert spend(renewed(local, tmp_path / "kits-2028" / "north"), "b") == 0.25


def test_a_second_kit_a_copied_kit_and_a_link_share_the_account_of_the_table(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    assert spend(kit_of(tmp_path, "other", rows), "b", site="other") == 0.25
    shutil.copytree(local.parent, tmp_path / "copy")
    assert spend(tmp_path / "copy" / "local", "c") == 0.5
    (tmp_path / "link.npy").symlink_to(rows)
    assert spend(kit_of(tmp_path, "linked", tmp_path / "link.npy"), "d") == 0.75
    (tmp_path / "folder").symlink_to(rows.parent)
    assert spend(kit_of(tmp_path, "linked-folder", tmp_path / "folder" / "rows.npy"), "e") == 1.0
    assert len(list(accounts().iterdir())) == 1


def test_new_rows_in_the_same_place_do_not_reset_the_account(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    np.save(rows, np.zeros((99, 2)))
    assert spend(local, "b") == 0.25


def test_a_file_that_another_table_has_is_not_spent_from_twice(tmp_path, rows):
    spend(kit_of(tmp_path, "north", rows), "a")
    [folder] = accounts().iterdir()
    pattern = kit_of(tmp_path, "pattern", rows.parent / "*.npy")
    hard = tmp_path / "hard.npy"
    os.link(rows, hard)
    for local in (pattern, kit_of(tmp_path, "hard", hard)):
        with pytest.raises(Refusal, match="belong to another privacy account as well") as caught:
            spend(local, "b")
        assert str(tmp_path) not in str(caught.value)
        assert str(folder) in caught.value.here
        configure(local, account=folder)
        assert spend(local, "b") >= 0.25


def test_a_copy_of_the_rows_elsewhere_is_another_table(tmp_path, rows):
    spend(kit_of(tmp_path, "north", rows), "a")
    shutil.copy(rows, tmp_path / "copied.npy")
    assert spend(kit_of(tmp_path, "other", tmp_path / "copied.npy"), "b") == 0


def test_an_account_that_two_tables_name_is_shared(tmp_path, rows):
    day = rows.with_name("tuesday.npy")
    np.save(day, np.ones((9, 2)))
    spend(kit_of(tmp_path, "north", rows, account="cohort"), "a")
    assert spend(kit_of(tmp_path, "south", day, account="cohort"), "b", site="south") == 0.25
    assert spend(kit_of(tmp_path, "unnamed", rows), "c") == 0.5, (
        "a kit that names none finds it by the place of its rows"
    )


def test_only_the_owner_reads_an_account(tmp_path, rows, state):
    old = os.umask(0)
    try:
        local = kit_of(tmp_path, "north", rows)
        spend(local, "a")
    finally:
        os.umask(old)
    [folder] = accounts().iterdir()
    for path in (state, state / "flareclust", accounts(), folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for path in (*folder.iterdir(), local / MEMORY):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


# What must not get a fresh account


def gone(local: Path, how: str, state: Path) -> None:
    [folder] = accounts().iterdir()
    if how == "file":
        (folder / "ledger.db").unlink()
    elif how == "folder":
        shutil.rmtree(folder)
    elif how == "another":
        (folder / "ledger.db").unlink()
        Ledger(folder / "ledger.db").make()
    else:
        shutil.move(state, state.with_name("elsewhere"))


@pytest.mark.parametrize("how", ["file", "folder", "state", "another"])
@pytest.mark.parametrize("kit", ["same", "renewed"])
def test_a_lost_account_is_refused_until_it_is_back(tmp_path, rows, state, how, kit):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    shutil.copytree(state, tmp_path / "backup")
    if kit == "renewed":
        local = renewed(local, tmp_path / "new" / "north")
    gone(local, how, state)
    for _ in range(2):
        with pytest.raises(Refusal, match=r"privacy (ledger|account)") as caught:
            spend(local, "b")
        assert str(tmp_path) not in str(caught.value)
    assert budget_of(local, "north").trouble is not None
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(tmp_path / "backup", state)
    assert spend(local, "b") == 0.25


def test_a_ledger_that_is_lost_while_a_job_runs_is_not_made_anew(tmp_path, rows):
    terms = session_of(kit_of(tmp_path, "north", rows), "north", "a", private=True)
    assert terms is not None
    assert terms.ledger is not None
    terms.ledger.spend("a", "cells", 0.25, 1.0, 1.0)
    [folder] = accounts().iterdir()
    (folder / "ledger.db").unlink()
    for use in (lambda: terms.ledger.spend("a", "cells", 0.25, 1.0, 1.0), terms.ledger.spent):
        with pytest.raises(Refusal, match="has no privacy ledger"):
            use()
    assert not (folder / "ledger.db").exists()


def test_rows_that_moved_need_the_word_of_the_operator(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    moved = rows.rename(rows.with_name("moved.npy"))
    (local / CONFIG_FILE).write_text(f"path: {moved}\n")
    with pytest.raises(Refusal, match="its operator must name the account") as caught:
        spend(local, "b")
    assert str(folder) in caught.value.here
    configure(local, account=folder)
    assert spend(local, "b") == 0.25
    (local / CONFIG_FILE).write_text(f"path: {moved}\naccount: fresh\n")
    with pytest.raises(Refusal, match="privacy ledger"):
        spend(local, "c")


def test_an_account_may_be_moved_and_named(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    shutil.move(folder, tmp_path / "safe")
    configure(local, account=tmp_path / "safe")
    assert spend(local, "b") == 0.25
    assert spend(kit_of(tmp_path, "unnamed", rows), "c") == 0.5


def test_a_kit_whose_local_cannot_be_written_must_name_its_account(tmp_path, rows, monkeypatch):
    def refuse(file, *args, **kwargs):
        raise module.UserError(f"{file} cannot be written: Read-only file system")

    monkeypatch.setattr(module, "write_json", refuse)
    local = kit_of(tmp_path, "north", rows)
    with pytest.raises(Refusal, match="must name one as account"):
        spend(local, "a")
    configure(local, account=tmp_path / "volume" / "account")
    assert spend(local, "a") == 0
    shutil.copytree(tmp_path / "volume", tmp_path / "backup")
    (tmp_path / "volume" / "account" / "ledger.db").unlink()
    with pytest.raises(Refusal, match="has no privacy ledger"):
        spend(local, "b")


@pytest.mark.parametrize("name", ["../privacy", "..", ".hidden", "[1]"])
def test_odd_accounts_are_refused(tmp_path, rows, name):
    local = kit_of(tmp_path, "north", rows, account=name)
    with pytest.raises(Refusal, match="account is"):
        spend(local, "a")


def test_a_spoilt_memory_refuses(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    (local / MEMORY).write_text("{")
    with pytest.raises(Refusal, match="cannot tell which privacy account"):
        spend(local, "b")


# What an older version kept in the kit


def test_an_old_ledger_is_taken_over_once_whatever_is_copied(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    old_ledger(local, ("x", 0.5), ("x", 0.5), ("y", 1.0))
    shutil.copytree(local.parent, tmp_path / "copy")
    assert spend(local, "a") == 2.0
    assert spend(local, "b") == 2.25
    assert spend(tmp_path / "copy" / "local", "c") == 2.5
    ledger = open_account(local, "north")
    assert [entry.job for entry in ledger.entries()] == ["x", "x", "y", "a", "b", "c"]
    assert spend(renewed(local, tmp_path / "new" / "north"), "d") == 2.75


def test_ledgers_of_two_sites_over_one_table_add_up(tmp_path, rows):
    """Both took part in one job: what they wrote is the same to the letter, and was spent twice."""
    locals_ = [kit_of(tmp_path, name, rows) for name in ("north", "south")]
    for local in locals_:
        old_ledger(local, ("x", 0.5))
    assert [spend(local, "a", site=name) for local, name in zip(locals_, ("north", "south"), strict=True)] == [
        0.5,
        1.25,
    ]


def test_what_an_older_version_still_spends_is_added_and_it_spends_no_more_afterwards(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    file = old_ledger(local, ("x", 0.5))
    spend(local, "a")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,), "an older version would go on spending"
        connection.execute("INSERT INTO spending (at, job, what, rho) VALUES ('2026', 'late', 'cells', 1.0)")
        connection.commit()
    assert budget_of(local, "north").waiting == 1
    assert spend(local, "b") == 1.75
    assert budget_of(local, "north").waiting == 0


def test_an_old_ledger_whose_taker_is_lost_is_no_fresh_start(tmp_path, rows, state):
    local = kit_of(tmp_path, "north", rows)
    old_ledger(local, ("x", 0.5))
    spend(local, "a")
    shutil.rmtree(state)
    (local / MEMORY).unlink()
    with pytest.raises(Refusal, match="has no privacy ledger"):
        spend(local, "b")


def test_a_damaged_old_ledger_refuses(tmp_path, rows):
    local = kit_of(tmp_path, "north", rows)
    old_ledger(local, ("x", 0.5)).write_bytes(b"")
    with pytest.raises(Refusal, match="something else in the place of its privacy ledger"):
        spend(local, "a")


#: Jobs that begin and spend, each a process of its own, which kills itself before or after a step of opening the account.
JOBS = """
import json, os, sys
from pathlib import Path
from flareclust.privacy.dp import ledger_file
from flareclust.sites import account, policy_file as site_file, takeover
from flareclust.privacy.dp.ledger import Ledger

def job(local, where):
    def watched(owner, name):
        inner = getattr(owner, name)
        def outer(*args, **kwargs):
            if where == "before " + name:
                os.kill(os.getpid(), 9)
            result = inner(*args, **kwargs)
            if where == "after " + name:
                os.kill(os.getpid(), 9)
            return result
        setattr(owner, name, outer)

    for owner, names in STEPS:
        for name in names:
            watched(owner, name)
    site_file.session_of(Path(local), "north", "a", private=True)

STEPS = (
    (ledger_file, ["make", "set_up"]), (account, ["_sign", "take_over", "_remember", "write_json"]),
    (takeover, ["_entries", "_mark"]), (Ledger, ["make", "merge", "note"]),
)
for case in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            job(*case)
            status = 0
        finally:
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

STEPS = ["make", "set_up", "_sign", "take_over", "_remember", "write_json", "_entries", "_mark", "merge", "note"]


@pytest.mark.timeout(120)
def test_a_takeover_killed_at_any_step_is_done_by_the_next_job_exactly_once(tmp_path, rows, state):
    cases = []
    for number, where in enumerate(f"{when} {step}" for step in STEPS for when in ("before", "after")):
        file = rows.with_name(f"{number}.npy")
        shutil.copy(rows, file)
        local = kit_of(tmp_path, f"kit-{number}", file)
        old_ledger(local, ("x", 0.5), ("y", 0.25))
        cases.append((str(local), where))
    done = subprocess.run(
        [sys.executable, "-c", JOBS, json.dumps(cases)], capture_output=True, text=True, timeout=100, check=False
    )
    codes = dict(zip([where for _, where in cases], map(int, done.stdout.split()), strict=True))
    assert codes == dict.fromkeys(codes, -signal.SIGKILL), done.stderr
    for name, where in cases:
        local = Path(name)
        told = budget_of(local, "north")
        assert [line.job for line in told.lines] == ["x", "y"], f"killed {where}: lost or counted twice"
        ledger = session_of(local, "north", "b", private=True).ledger
        assert ledger.spent().total == 0.75, f"killed {where}"
        assert spend(local, "c") == 0.75
        shutil.rmtree(accounts() / Path(json.loads((local / MEMORY).read_text())[str(told.place)]["folder"]))
        with pytest.raises(Refusal):
            spend(local, "d")


SPENDER = """
import sys
from pathlib import Path
from flareclust.privacy.dp.ledger import Overspent
from flareclust.sites.policy_file import session_of
spent = 0
print("ready", flush=True)
sys.stdin.readline()
ledger = session_of(Path(sys.argv[1]), sys.argv[2], sys.argv[2], private=True).ledger
for _ in range(40):
    try:
        ledger.spend(sys.argv[2], "x", 1 / 64, 1.0, 1.0)
        spent += 1
    except Overspent:
        pass
print(spent)
"""


@pytest.mark.timeout(120)
def test_two_kits_whose_first_jobs_begin_at_once_share_one_budget(tmp_path, rows):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(kit_of(tmp_path, name, rows)), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for name in ("north", "south")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    spent = [int(process.communicate(timeout=90)[0]) for process in processes]
    assert sum(spent) == 64, spent
    told = budget_of(tmp_path / "north" / "local")
    assert [line.site for line in told.lines].count("north") == spent[0]
    assert told.others == [f"south in {tmp_path / 'south'}"]


# What the operator sees


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    return int(ended.value.code or 0)


def test_check_show_and_budget_say_whose_budget_it_is(tmp_path, rows, capsys):
    kit = kit_of(tmp_path, "north", rows).parent
    assert call("site", "check", kit) == 0
    shown = capsys.readouterr().out
    assert f"budget of: the rows in {rows}" in shown
    assert "made by the first job" in shown
    spend(kit / "local", "job-1", 0.01)
    spend(kit_of(tmp_path, "south", rows), "job-2", 0.02, site="south")
    [folder] = accounts().iterdir()
    for words in (("check", kit), ("policy", kit, "--show")):
        assert call("site", *words) == 0
        shown = capsys.readouterr().out
        assert f"ledger: {folder / 'ledger.db'}" in shown
        assert f"shared with: south in {tmp_path / 'south'}" in shown
        assert "of 5 in 2 jobs" in shown
    assert call("site", "budget", kit) == 0
    shown = capsys.readouterr().out
    assert [word in shown for word in ("job-1", "job-2", "cells", str(rows))] == [True] * 4
    assert call("site", "budget", kit, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(line["job"], line["site"]) for line in told["spendings"]] == [("job-1", "north"), ("job-2", "south")]
    assert (
        told["spendings"][0]["epsilon"]
        == told["spendings"][0]["total"]
        < told["spendings"][1]["total"]
        == told["spent"]
    )


def test_init_says_that_the_rows_have_a_budget_already(tmp_path, rows, capsys):
    new = tmp_path / "new"
    for folder in ("startup", "local"):
        (new / folder).mkdir(parents=True)
    assert call("site", "init", new, "--rows", rows) == 0
    assert "budget" not in capsys.readouterr().out
    spend(kit_of(tmp_path, "north", rows), "a")
    (new / "local" / CONFIG_FILE).unlink()
    assert call("site", "init", new, "--rows", rows) == 0
    assert f"used by north in {tmp_path / 'north'}" in capsys.readouterr().out


def test_nothing_is_written_by_looking(tmp_path, rows, state):
    kit = kit_of(tmp_path, "north", rows).parent
    old_ledger(kit / "local", ("x", 0.5))
    for words in (("check", kit), ("policy", kit, "--show"), ("budget", kit)):
        assert call("site", *words) == 0
    assert not state.exists()
    assert not (kit / "local" / MEMORY).exists()
    assert budget_of(kit / "local").waiting == 1


def test_a_lost_account_is_an_error_of_check_with_its_place(tmp_path, rows, capsys):
    local = kit_of(tmp_path, "north", rows)
    spend(local, "a")
    [folder] = accounts().iterdir()
    shutil.rmtree(folder)
    assert call("site", "check", local.parent) == 2
    assert str(folder) in capsys.readouterr().err
    assert call("site", "budget", local.parent) == 0
    assert "no job may spend from it" in capsys.readouterr().out


def test_a_site_without_differential_privacy_has_no_budget(tmp_path, rows, capsys):
    local = kit_of(tmp_path, "north", rows)
    write_policy(local, Policy())
    assert call("site", "budget", local.parent) == 2
    assert "no differential_privacy" in capsys.readouterr().err
    assert Entry._fields == ("at", "job", "site", "what", "rho")
