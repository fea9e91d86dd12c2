"""What the checks of `flareclust.checks` are made of: small federations, and a look at what leaves their sites."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.errors import BadMessage, JobFailed, Refusal
from flareclust.executors.base import Task
from flareclust.federation import run_federation
from flareclust.message import SECONDS
from flareclust.outcome import Outcome
from flareclust.registry import Algorithm
from flareclust.replies import SiteReply
from flareclust.tables import Rows, Table
from flareclust.typing import FloatArray, Message, never


class PromiseBroken(AssertionError):
    """An algorithm does not do what it promises."""


def blobs(k: int, d: int, per_cluster: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return well separated round clusters: rows (k * per_cluster, d) in the clusters' order, centers (k, d)."""
    corners = np.array(list(product((-10.0, 10.0), repeat=d)))
    if k > len(corners):
        raise ValueError(f"at most {len(corners)} separated clusters in {d} dimensions")
    centers = corners[rng.permutation(len(corners))[:k]]
    rows = np.repeat(centers, per_cluster, axis=0)
    return rows + rng.normal(size=rows.shape), centers


def iid_sites(m: int = 4, k: int = 4, d: int = 3, seed: int = 0) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return m sites (n_i, d) that all see all k clusters, and the clusters' centers (k, d)."""
    rng = np.random.default_rng(seed)
    rows, centers = blobs(k, d, 60 * m, rng)
    order = rng.permutation(len(rows))
    return {f"site-{i + 1}": rows[part] for i, part in enumerate(np.array_split(order, m))}, centers


def run(algorithm: Algorithm, sites: Mapping[str, Rows], k: int, seed: int = 0, **params: Any) -> Outcome:
    """Run a federation in-process."""
    return run_inprocess(algorithm, params, sites, JobOptions(k=k, seed=seed))


class Exchange(NamedTuple):
    """What a site was asked and what it sent, without the seconds."""

    task: Task
    arrays: Message


def exchanges(
    algorithm: Algorithm, sites: Mapping[str, FloatArray | Table], k: int, seed: int = 0, **params: Any
) -> list[Exchange]:
    """Run a federation without its assessment and return everything that left a site; none where it could not run."""
    executor, aggregator = algorithm.build(k, seed, params)
    seen: list[Exchange] = []

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = {}
        for site in asked:
            task = Task(step, round_, {name: value.copy() for name, value in arrays.items()}, site)
            try:
                answer = executor.answer(task, sites[site], never)
            except (Refusal, BadMessage) as reason:
                replies[site] = SiteReply(problem=str(reason))
                continue
            seen.append(Exchange(task, {name: value for name, value in answer.arrays.items() if name != SECONDS}))
            replies[site] = SiteReply(answer.arrays)
        return replies

    with suppress(JobFailed):
        run_federation(aggregator, ask, list(sites), assess=False)
    return seen


def ensure(condition: bool, algorithm: Algorithm, text: str) -> None:
    """Raise PromiseBroken unless the condition holds."""
    if not condition:
        raise PromiseBroken(f"{algorithm.name}: {text}")
