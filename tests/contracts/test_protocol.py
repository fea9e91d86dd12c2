"""Versions with the same number send the same messages: every step of every algorithm, what its reply holds, and settings, as recorded.

`python -m tests.contracts.test_protocol` writes tests/contracts/protocol.json anew. Where messages change, it first wants another
number in flareclust/_foundation/version.py: the next one of development, since sites compare numbers and not messages.
"""

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

from flareclust._foundation.version import __version__
from flareclust.federation.executor import ClusteringExecutor
from flareclust.personal.executor import FedAvgExecutor, IFCAExecutor
from flareclust.protocol.registry import BUILT_IN
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step

RECORD = Path(__file__).with_name("protocol.json")


#: The algorithms of jobs, by name.
EXECUTORS: dict[str, type[ClusteringExecutor]] = {
    **{algorithm.name: algorithm.executor_class() for algorithm in BUILT_IN if algorithm.federated},
    "fedavg": FedAvgExecutor,
    "ifca": IFCAExecutor,
}


def written(step: Step) -> str:
    """Return the hash of what a step asks for and of what its reply holds; names of methods are nobody else's business."""
    asked = step.summed, step.jobs, step.as_is, step.counted, step.public, step.counts
    reply = sorted((name, repr(field)) for name, field in step.schema.fields.items())
    return _hash(asked, reply, step.schema.may_be_empty)


def _hash(*about: object) -> str:
    return hashlib.sha256(repr(about).encode()).hexdigest()[:12]


def settings(executor: type[ClusteringExecutor]) -> str:
    """Return the hash of the names and defaults of an algorithm's settings, which a job states for both sides."""
    fields = executor.params_class().model_fields
    return _hash(sorted((name, repr(field.get_default(call_default_factory=True))) for name, field in fields.items()))


def current() -> dict[str, dict[str, str]]:
    """Return the hashes by algorithm and step; steps that all algorithms have stand under "all"."""
    of_all = {name: written(step) for name, step in sorted(ClusteringExecutor.job_steps().items())}
    found = {"all": of_all}
    for name, executor in EXECUTORS.items():
        own = {step: written(one) for step, one in sorted(executor.job_steps().items())}
        found[name] = {"settings": settings(executor)} | {
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


def test_a_change_of_any_part_of_a_step_is_noticed() -> None:
    before, step = current(), EXECUTORS["lloyd"].job_steps()["update"]
    assert changed(before, {**before, "lloyd": {**before["lloyd"], "update": "other"}}) == ["lloyd.update"]
    assert changed(before, {name: own for name, own in before.items() if name != "kfed"})[0].startswith("kfed.")
    others = [
        replace(step, summed=not step.summed),
        replace(step, counted=not step.counted),
        replace(step, schema=Schema()),
    ]
    assert written(step) not in {written(other) for other in others}


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
