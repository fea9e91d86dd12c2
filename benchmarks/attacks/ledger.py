"""Attempts to spend a budget of differential privacy twice, with kits as operators have them, in this process."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.attacks.case import IN_PROCESS, Case, Found
from flareclust._foundation.errors import FlareclustError
from flareclust._foundation.typing import never_abort
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task
from flareclust.sites.account import session_of
from flareclust.sites.config import write_site
from flareclust.sites.policy_file import write_policy

_PRIVATE = {"differential_privacy": {"bounds": [-9, 9], "epsilon": 1.0, "delta": 1e-5, "budget": 1.0}}


def kit(folder: Path, rows: Path) -> Path:
    """Make a kit with a budget for one job; return it."""
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    write_site(folder / "local", str(rows))
    write_policy(folder / "local", Policy.of(_PRIVATE))
    return folder


def answers(at: Path, job: str) -> bool:
    """Return whether a site with this kit answers a job that spends all of the budget."""
    executor, _ = get("dp-oneshot").build(2, 0, {"epsilon": 1.0})
    try:
        terms = session_of(at / "local", "north", job, private=True)
        executor.answer(Task(StepName.CLUSTER, 0, {}, "north"), np.load(at.parent / "rows.npy"), never_abort, terms)
    except FlareclustError:
        return False
    return True


def _renewed(first: Path) -> Path:
    new = first.parent / "renewed"
    (new / "startup").mkdir(parents=True)
    shutil.copytree(first / "local", new / "local")
    shutil.rmtree(first)
    return new


def _second(first: Path) -> Path:
    return kit(first.parent / "second", first.parent / "rows.npy")


def _copied(first: Path) -> Path:
    return Path(shutil.copytree(first, first.parent / "copy"))


def _linked(first: Path) -> Path:
    link = first.parent / "link.npy"
    link.symlink_to(first.parent / "rows.npy")
    return kit(first.parent / "linked", link)


_WAYS: dict[str, Callable[[Path], Path]] = {
    "a renewed kit": _renewed,
    "a second kit": _second,
    "a copied kit": _copied,
    "a second kit over a link": _linked,
}


@contextmanager
def _own_state(folder: Path) -> Iterator[None]:
    """Keep accounts in a folder of their own."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


def _spent_twice(fast: bool) -> list[Found]:
    found = []
    for way, make in _WAYS.items():
        with tempfile.TemporaryDirectory() as folder, _own_state(Path(folder) / "state"):
            rows = np.random.default_rng(0).normal(size=(300, 2))
            np.save(Path(folder) / "rows.npy", rows)
            first = kit(Path(folder) / "first", Path(folder) / "rows.npy")
            if not answers(first, "a"):
                raise RuntimeError("a fresh kit does not answer a job that its budget allows")
            twice = answers(make(first), "b")
            found.append(Found(way, int(twice), 1, "2 jobs of the whole budget", unit="budget beyond the first"))
    return found


CASES = [
    Case("ledger", "the budget of a table under differential privacy is spent again", "lead", IN_PROCESS, "spent twice",
         "the account belongs to the table, outside of the kit", _spent_twice),
]  # fmt: skip
