"""Versions with the same number send the same messages: every step of every algorithm, what its reply holds, and settings, as recorded.

`python -m tests.contracts.test_protocol` writes tests/contracts/protocol.json anew. Where messages change, it first wants another
number in flareclust/_foundation/version.py, the next one of development: sites compare digests, but what they say names numbers.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flareclust._foundation.version import __version__
from flareclust.federation.executor import ClusteringExecutor
from flareclust.personal.executor import FedAvgExecutor, IFCAExecutor
from flareclust.protocol import digests
from flareclust.protocol.digests import job_digest, settings_digest, step_digest
from flareclust.protocol.registry import BUILT_IN
from flareclust.protocol.schema import Schema

RECORD = Path(__file__).with_name("protocol.json")


#: The algorithms of jobs, by name.
EXECUTORS: dict[str, type[ClusteringExecutor]] = {
    **{algorithm.name: algorithm.executor_class() for algorithm in BUILT_IN if algorithm.federated},
    "fedavg": FedAvgExecutor,
    "ifca": IFCAExecutor,
}


def current() -> dict[str, dict[str, str]]:
    """Return the hashes by algorithm and step; steps that all algorithms have stand under "all"."""
    of_all = {name: step_digest(step) for name, step in sorted(ClusteringExecutor.job_steps().items())}
    found = {"all": of_all}
    for name, executor in EXECUTORS.items():
        own = {step: step_digest(one) for step, one in sorted(executor.job_steps().items())}
        found[name] = {"settings": settings_digest(executor.params_class())} | {
            step: one for step, one in own.items() if of_all.get(step) != one
        }
    return found


def changed(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """Return the steps that are not the same, as ALGORITHM.STEP."""
    names = sorted({(name, step) for found in (before, now) for name, own in found.items() for step in own})
    return [f"{name}.{step}" for name, step in names if before.get(name, {}).get(step) != now.get(name, {}).get(step)]


def test_messages_change_with_the_version_only() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    different = changed(record["steps"], current())
    advice = "raise the number in flareclust/_foundation/version.py, then " if record["version"] == __version__ else ""
    assert not different, f"{advice}python -m {__spec__.name}"
    assert record["version"] == __version__, f"python -m {__spec__.name}"


def test_a_jobs_digest_follows_steps_settings_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    lloyd, kfed = EXECUTORS["lloyd"](k=2), EXECUTORS["kfed"](k=2)
    steps, params = dict(lloyd.job_steps()), lloyd.params_class()
    digest = job_digest([(steps, params)])
    assert lloyd.version() == f"{__version__}+{digest}"
    elsewhere = steps | {"update": replace(steps["update"], method="elsewhere", merge="elsewhere")}
    assert job_digest([(elsewhere, params)]) == digest
    found = {digest, kfed.version().partition("+")[2], job_digest([(steps | {"one_more": steps["update"]}, params)])}
    found |= {job_digest([(steps, kfed.params_class())]), job_digest([(steps, params), (steps, params)])}
    monkeypatch.setattr(digests, "REVISION", digests.REVISION + 1)
    found |= {job_digest([(steps, params)])}
    assert len(found) == 6


def test_a_change_of_any_part_of_a_step_is_noticed() -> None:
    before, step = current(), EXECUTORS["lloyd"].job_steps()["update"]
    assert changed(before, {**before, "lloyd": {**before["lloyd"], "update": "other"}}) == ["lloyd.update"]
    assert changed(before, {name: own for name, own in before.items() if name != "kfed"})[0].startswith("kfed.")
    others = [
        replace(step, summed=not step.summed),
        replace(step, counted=not step.counted),
        replace(step, schema=Schema()),
    ]
    assert step_digest(step) not in {step_digest(other) for other in others}


def main() -> None:
    """Write the record anew; end where messages have changed and the number has not."""
    if RECORD.exists():
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        if record["version"] == __version__ and (different := changed(record["steps"], current())):
            sys.exit(f"{', '.join(different)}: messages changed under the number {__version__}; raise it first")
    text = json.dumps({"version": __version__, "steps": current()}, indent=1)
    RECORD.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
