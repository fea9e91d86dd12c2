"""The account of rows where processes are killed at any step of opening it, or begin at once."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from flareclust._foundation.errors import Refusal
from flareclust.sites.account import _MEMORY, accounts, budget_of, session_of
from tests.forked import run_at_once, run_each
from tests.unit.sites.account_cases import kit_of, spend

#: Jobs that begin and spend, each a process of its own, which kills itself before or after a step of opening the account.
JOBS = """
import os
from pathlib import Path
from flareclust.privacy.dp import ledger
from flareclust.sites import account
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
    account.session_of(Path(local), "north", "a", private=True)

STEPS = (
    (ledger, ["_make", "_set_up"]), (account, ["_sign", "_remember", "write_json"]), (Ledger, ["make", "note"]),
)
"""


STEPS = ["_make", "_set_up", "_sign", "_remember", "write_json", "make", "note"]


def test_an_account_whose_first_job_is_killed_at_any_step_is_opened_by_the_next_one(tmp_path, rows, state):
    cases = []
    for number, where in enumerate(f"{when} {step}" for step in STEPS for when in ("before", "after")):
        file = rows.with_name(f"{number}.npy")
        shutil.copy(rows, file)
        local = kit_of(tmp_path, f"kit-{number}", file)
        cases.append((str(local), where))
    codes = dict(zip([where for _, where in cases], run_each(JOBS, cases), strict=True))
    assert codes == dict.fromkeys(codes, -signal.SIGKILL)
    for name, where in cases:
        local = Path(name)
        assert session_of(local, "north", "b", private=True).ledger.spent().total == 0, f"killed {where}"
        assert spend(local, "b") == 0
        assert spend(local, "c") == 0.25
        reported = budget_of(local, "north")
        shutil.rmtree(accounts() / Path(json.loads((local / _MEMORY).read_text())[str(reported.place)]["folder"]))
        with pytest.raises(Refusal):
            spend(local, "d")


SPENDER = """
import sys
from pathlib import Path
from flareclust.privacy.dp.ledger import Overspent
from flareclust.sites.account import session_of
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
