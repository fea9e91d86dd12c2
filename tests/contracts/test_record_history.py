"""In the history of a checkout no record of messages or results changed without its number.

The commands that write the records refuse that, but a record can be written by hand, or from a merge.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import test_protocol, test_recorded

ROOT = Path(__file__).parents[2]


def earlier(file: Path, number: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the commits that changed a record, the last one first, with what it was, as long as it had the number of today."""
    place = str(file.relative_to(ROOT))
    current = json.loads(file.read_text(encoding="utf-8"))[number]
    for commit in git("log", "--format=%h", "--", place).split():
        record = json.loads(git("show", f"{commit}:{place}"))
        if record.get(number) != current:  # the oldest records have none
            return
        yield commit, record


def git(*words: str) -> str:
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no git checkout with its history")
    return found.stdout


def of_steps(record: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the steps of an earlier record that are others today; a step that was added disturbs no site without it."""
    return [one for one in test_protocol.changed(record["steps"], now["steps"]) if known(record["steps"], one)]


def known(steps: dict[str, dict[str, str]], one: str) -> bool:
    name, _, step = one.partition(".")
    return step in steps.get(name, {})


RECORDS: list[tuple[Path, str, Callable[[dict[str, Any], dict[str, Any]], list[str]]]] = [
    (test_protocol.RECORD, "version", of_steps),
    (test_recorded.RECORDS, "revision", test_recorded.changed),
]


@pytest.mark.parametrize(("file", "number", "changed"), RECORDS, ids=["messages", "results"])
def test_a_record_changed_with_its_number_only(file, number, changed):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    now = json.loads(file.read_text(encoding="utf-8"))
    found = {commit: changed(record, now) for commit, record in earlier(file, number)}
    assert not {commit: what for commit, what in found.items() if what}, (
        f"raise the {number}, then write {file.name} anew"
    )


def test_a_step_that_changed_is_found_and_one_that_was_added_is_none():
    before = {"steps": {"lloyd": {"update": "a"}}}
    assert of_steps(before, {"steps": {"lloyd": {"update": "b"}, "kfed": {"cluster": "c"}}}) == ["lloyd.update"]
    assert not of_steps(before, {"steps": {"lloyd": {"update": "a", "more": "d"}}})
    assert of_steps(before, {"steps": {"kfed": {"cluster": "c"}}}) == ["lloyd.update"]
