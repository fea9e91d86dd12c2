"""The ledger when processes are killed at any step or spend at once: never less than was drawn."""

import signal
from pathlib import Path

import pytest

from flareclust.privacy.dp.ledger import Ledger
from tests.forked import run_at_once, run_each

# What ends the process

#: Sites, each a process of its own. Each spends and draws through the real terms, and
#: writes down what it has drawn and sent. It kills itself at its `at`-th passage of the step `where`.
SITES = """
import os
import numpy as np
from flareclust.core.dp.box import Box
from flareclust.privacy.dp import ledger, mechanism
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.policy import DifferentialPrivacy
from flareclust.privacy.dp.budget import DPSession

def case(folder, where, at, job):
    passed = {}

    def say(what):
        with open(folder + "/events", "a") as out:
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

    for owner, name in ((ledger, "_make"), (ledger, "_set_up"), (Ledger, "_begin"), (Ledger, "_write"), (Ledger, "_commit")):
        watched(owner, name, name.strip("_"))
    draw = mechanism.gaussian
    mechanism.gaussian = drawn
    dp = DifferentialPrivacy((0.0, 1.0), 1.0, 1e-5, 1.0)
    terms = DPSession(Box(np.zeros(1), np.ones(1)), dp, job, Ledger(folder + "/ledger.db"), 1.0)
    for _ in range(3):
        terms.gaussian(np.zeros(2, np.int64), 1.0, 1e-3, "test")
        passing("before send")
        say("sent " + job)

mechanism._measurement(1.0, 1e-3)  # loads OpenDP once, and not in every site
"""


STEPS = [
    f"{when} {what}" for what in ("make", "set_up", "begin", "write", "commit", "draw") for when in ("before", "after")
]


ONCE = [step for step in STEPS if step.endswith(("make", "set_up"))]


def lines(events: Path) -> list[str]:
    return events.read_text().splitlines() if events.exists() else []


@pytest.mark.slow
def test_a_site_killed_at_any_step_never_counts_less_than_it_drew(tmp_path):
    killed, after = [], []
    for where in [*STEPS, "before send"]:
        for at in (1,) if where in ONCE else (1, 2):
            folder = tmp_path / f"{where} {at}"
            folder.mkdir()
            killed.append((str(folder), where, at, "a"))
            after.append((str(folder), "never", 0, "b"))
    assert run_each(SITES, killed) == [-signal.SIGKILL] * len(killed)
    for name, where, at, _ in killed:
        folder = Path(name)
        counted = round(Ledger(folder / "ledger.db").spent().jobs.get("a", 0.0) / 1e-3)
        drawn = lines(folder / "events").count("drawn a")
        begun = 0 if where in ONCE else at
        assert drawn <= counted <= begun, f"killed {where}, passage {at}: {drawn} drawn, {counted} counted"
        if where in ("after commit", "before draw"):
            assert (drawn, counted) == (at - 1, at), "the spending was not there before the noise"
        if where in ("before write", "after write", "before commit"):
            assert counted == at - 1
    assert run_each(SITES, after) == [0] * len(after), "the next job cannot go on"
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
def test_processes_at_once_share_one_budget(tmp_path):
    path = tmp_path / "ledger.db"  # which they make at once, too
    spent = run_at_once(SPENDER, [(str(path), job) for job in ("a", "b", "a")])
    assert sum(spent) == 64, f"{spent} of 64 that the budget has"
    reported = Ledger(path).spent()
    assert reported.total == 1.0
    assert (reported.jobs.get("a", 0) * 64, reported.jobs.get("b", 0) * 64) == (spent[0] + spent[2], spent[1])
