"""Nothing that a user computes changes by accident: results and messages of every algorithm, bit for bit as recorded.

`python -m tests.contracts.test_recorded` writes tests/contracts/recorded.json anew, where a change is meant, after
`REVISION` in flareclust/_foundation/version.py was raised; say in the commit what changed.
Other processors add floating-point numbers in another order. There, steps, shapes and types are compared, and no bits. A case that
was recorded on another processor than the rest names it.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal, UserError
from flareclust._foundation.version import REVISION
from flareclust.data.datasets import load
from flareclust.data.partition import partition as split
from flareclust.engines.inprocess import SimulatedSite, answered
from flareclust.engines.options import JobOptions
from flareclust.engines.pooled import run_pooled
from flareclust.federation import FederationOptions, run_federation
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import Algorithm, algorithms, get
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName, Task
from flareclust.testing.promised import overlapping_sites
from flareclust.testing.tools import GRANTED

RECORDS = Path(__file__).with_name("recorded.json")
#: The rows of a case by site, and its number of clusters.
Sites = tuple[Mapping[str, Any], int]
#: How the sites of a case are held.
POLICIES: dict[str, dict[str, Any]] = {"plain": {}, "policy": {"policy": Policy()}, "secure sums": {"secure": True}}


def _split(name: str, partition: str, k: int) -> Sites:
    data = load(name)
    parts = split(partition, data.X, data.y, 6, np.random.default_rng(0))
    return {site: data.X[rows] for site, rows in parts.items()}, k


@cache
def case(name: str) -> Sites:
    """Return the rows of a case: well separated clusters, skewed sites in many columns, or sites with different columns."""
    made: dict[str, Callable[[], Sites]] = {
        "s1": lambda: _split("s1", "iid", 15),
        "digits": lambda: _split("digits", "dirichlet:0.5", 10),
        "partial": lambda: (overlapping_sites()[0], 4),
    }
    return made[name]()


def cases() -> Iterator[tuple[str, str, str]]:
    """Give algorithm, data and policy of all that is recorded; torch chooses kernels by processor, so networks are not."""
    for algorithm in algorithms().values():
        if "embeds" in algorithm.promises:
            continue
        for data in ("partial",) if algorithm.partial else ("s1", "digits"):
            for policy in POLICIES if algorithm.federated else ("plain",):
                yield algorithm.name, data, policy


def digest(arrays: Mapping[str, Any]) -> str:
    """Return what is the same for equal names, shapes, types and bits only."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {value.dtype.str} {value.shape}".encode())
        found.update(json.dumps(value.tolist()).encode() if value.dtype.kind in "OUS" else value.tobytes())
    return found.hexdigest()[:16]


def shape_of(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return type and shape of each array."""
    return {name: f"{np.asarray(value).dtype.str}{np.shape(value)}" for name, value in sorted(arrays.items())}


class Messages:
    """All messages of a job by step: how many there were, and one digest of them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, Any]] = {}

    def add(self, step: str, *messages: Mapping[str, Any]) -> None:
        count, found = self._found.get(step, (0, hashlib.sha256()))
        for message in messages:
            found.update(digest({name: value for name, value in message.items() if name != SECONDS}).encode())
        self._found[step] = (count + 1, found)

    def summary(self, bits: bool) -> dict[str, list[Any]]:
        return {step: [count, found.hexdigest()[:16] if bits else ""] for step, (count, found) in self._found.items()}


def run(algorithm: Algorithm, data: str, policy: Policy | None = None, secure: bool = False) -> dict[str, Any]:
    """Run a case and return what is compared; with noise or masks, messages have no bits that come again."""
    sites, k = case(data)
    options = JobOptions(k=k, seed=3, secure_sums=secure)
    if not algorithm.federated:
        outcome = run_pooled(algorithm, {}, sites, options)
        return _summary(outcome, Messages(), private=False, secure=False)
    executor, aggregator = algorithm.build(k, 3, {})
    private = executor.private
    if private:
        policy = GRANTED if policy is None else replace(policy, dp=GRANTED.dp)
    messages = Messages()
    labels: dict[str, Any] = {}
    held = {} if policy is None else {site: SimulatedSite.of(policy.among(list(sites)), algorithm) for site in sites}
    sums = options.among(list(sites)).sums()
    executor.hold_to(sums)

    def ask(step: str, round_: int, arrays: Mapping[str, Any], asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = {}
        for site in asked:
            task = Task(step, round_, {name: value.copy() for name, value in arrays.items()}, site)
            try:
                answer = answered(executor, task, sites[site], held.get(site))
            except (Refusal, BadMessage) as reason:
                messages.add(f"{step} refused", arrays)
                replies[site] = SiteReply(problem=str(reason))
                continue
            messages.add(step, arrays, answer.arrays)
            replies[site] = SiteReply(answer.arrays)
            if step == StepName.ASSESS and answer.labels is not None:
                labels[site] = answer.labels
        return replies

    try:
        outcome = run_federation(
            aggregator,
            ask,
            list(sites),
            FederationOptions(secure_sums=secure, secure_min_sites=None if sums is None else sums.min_sites),
        )
    except (JobFailed, UserError) as error:
        return {"failed": type(error).__name__, "messages": messages.summary(bits=not (private or secure))}
    outcome.labels.update(labels)
    return _summary(outcome, messages, private=private, secure=secure)


def _summary(outcome: Any, messages: Messages, *, private: bool, secure: bool) -> dict[str, Any]:
    found = {
        "messages": messages.summary(bits=not (private or secure)),
        "shapes": {} if private else shape_of(outcome.arrays),
        "warnings": len(outcome.warnings),
    }
    if private:  # its noise follows from no seed, and so do warnings of it
        return {name: value for name, value in found.items() if name != "warnings"}
    bits = {
        "arrays": digest(outcome.arrays),
        "labels": digest(outcome.labels),
        "metrics": digest({name: np.array(value, dtype=float) for name, value in outcome.metrics.items()}),
    }
    return found | {"bits": bits}


def processor() -> str:
    """Return what decides the order in which floating-point numbers are added."""
    blas = sorted(
        {
            f"{one['internal_api']} {one.get('architecture', '')}"
            for one in threadpool_info()
            if one["user_api"] == "blas"
        }
    )
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}, {'; '.join(blas)}, numpy {np.__version__}"


def without_bits(recorded: Any) -> Any:
    """Return what is the same on every processor."""
    return {
        "messages": sorted(recorded["messages"]),
        "failed": "failed" in recorded,
        "types": sorted(recorded.get("shapes", {})),
    }


@pytest.fixture(scope="module")
def records() -> dict[str, Any]:
    return json.loads(RECORDS.read_text())


def takes_seconds(name: str, data: str, policy: str) -> bool:
    """Return whether OpenDP makes noise for covariances in 64 columns."""
    return (name, data) == ("dp-gmm", "digits")


CASES = [pytest.param(*one, marks=[pytest.mark.slow] * takes_seconds(*one)) for one in cases()]


@pytest.mark.parametrize(("name", "data", "policy"), CASES, ids=lambda value: value)
def test_as_recorded(name, data, policy, records, shared_data):
    found = json.loads(json.dumps(run(get(name), data, **POLICIES[policy])))
    recorded = dict(records["cases"][f"{name} {data} {policy}"])
    if recorded.pop("processor", records["processor"]) != processor():
        found, recorded = without_bits(found), without_bits(recorded)
    assert found == recorded


def changed(before: dict[str, Any], made: dict[str, Any]) -> list[str]:
    """Return the cases in both records that are not the same, if they are of the same processor."""
    different = []
    for name, found in made["cases"].items():
        recorded = dict(before["cases"].get(name, found))
        if recorded.pop("processor", before["processor"]) == made["processor"] and recorded != found:
            different.append(name)
    return different


def test_a_change_needs_another_revision(records):
    """Sites of two versions with one revision take part in one job, and find the same bits."""
    assert records["revision"] == REVISION, f"python -m {__spec__.name}"
    name = next(iter(records["cases"]))
    other = {**records, "cases": {**records["cases"], name: {}, "one more": {}}}
    assert changed(records, other) == [name]
    assert not changed({**records, "processor": "another"}, other)
    elsewhere = {**records["cases"][name], "processor": "another"}
    assert not changed({**records, "cases": {**records["cases"], name: elsewhere}}, other)


def main() -> None:
    """Write the record anew; end where results have changed and the revision has not."""
    made: dict[str, Any] = {"processor": processor(), "revision": REVISION, "cases": {}}
    for name, data, policy in cases():
        print(name, data, policy, file=sys.stderr)
        made["cases"][f"{name} {data} {policy}"] = run(get(name), data, **POLICIES[policy])
    made = json.loads(json.dumps(made))
    before = json.loads(RECORDS.read_text())
    if before["revision"] == REVISION and (different := changed(before, made)):
        sys.exit(
            f"{', '.join(different)}: results changed under the revision {REVISION}; raise it in flareclust/_foundation/version.py first"
        )
    RECORDS.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
