"""Ledgers of older versions are taken over once, also by processes that are killed or begin at once."""

import json
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flareclust._foundation.errors import Refusal
from flareclust.sites.account import MEMORY, accounts, open_account
from flareclust.sites.budget import budget_of
from flareclust.sites.policy_file import session_of
from tests.forked import run_at_once, run_each
from tests.unit.sites.account_cases import kit_of, old_ledger, renewed, spend


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
import os
from pathlib import Path
from flareclust.privacy.dp import ledger_file
from flareclust.sites import account, policy_file as site_file, takeover
from flareclust.privacy.dp.ledger import Ledger

def case(local, where):
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
"""


STEPS = ["make", "set_up", "_sign", "take_over", "_remember", "write_json", "_entries", "_mark", "merge", "note"]


def test_a_takeover_killed_at_any_step_is_done_by_the_next_job_exactly_once(tmp_path, rows, state):
    cases = []
    for number, where in enumerate(f"{when} {step}" for step in STEPS for when in ("before", "after")):
        file = rows.with_name(f"{number}.npy")
        shutil.copy(rows, file)
        local = kit_of(tmp_path, f"kit-{number}", file)
        old_ledger(local, ("x", 0.5), ("y", 0.25))
        cases.append((str(local), where))
    codes = dict(zip([where for _, where in cases], run_each(JOBS, cases), strict=True))
    assert codes == dict.fromkeys(codes, -signal.SIGKILL)
    for name, where in cases:
        local = Path(name)
        reported = budget_of(local, "north")
        assert [line.job for line in reported.lines] == ["x", "y"], f"killed {where}: lost or counted twice"
        ledger = session_of(local, "north", "b", private=True).ledger
        assert ledger.spent().total == 0.75, f"killed {where}"
        assert spend(local, "c") == 0.75
        shutil.rmtree(accounts() / Path(json.loads((local / MEMORY).read_text())[str(reported.place)]["folder"]))
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


def test_two_kits_whose_first_jobs_begin_at_once_share_one_budget(tmp_path, rows):
    spent = run_at_once(SPENDER, [(str(kit_of(tmp_path, name, rows)), name) for name in ("north", "south")])
    assert sum(spent) == 64, spent
    reported = budget_of(tmp_path / "north" / "local")
    assert [line.site for line in reported.lines].count("north") == spent[0]
    assert reported.others == [f"south in {tmp_path / 'south'}"]
