"""What the checks of `flareclust.testing` are made of: small federations, and a look at what leaves their sites."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import BadMessage, JobFailed, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.data.tables import Rows, Table
from flareclust.engines.inprocess import SimulatedSite, answered, run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import computed, rows_shown, shown, site_stages
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.stages import SiteExchange
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task


class ContractViolation(AssertionError):
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


#: The policy of the sites of algorithms under differential privacy, which answer to nobody else.
GRANTED = Policy(dp=DifferentialPrivacy(bounds=(-1000.0, 1000.0), epsilon=20.0, delta=1e-4, budget=20.0))


def run(algorithm: Algorithm, sites: Mapping[str, Rows], k: int, seed: int = 0, **params: Any) -> Outcome:
    """Run a federation in-process."""
    params = _short(algorithm) | params
    return run_inprocess(algorithm, params, sites, JobOptions(k=k, seed=seed), policy=_needed(algorithm))


def embeds(algorithm: Algorithm) -> bool:
    """Return whether clusters are in a space of the algorithm's own, and not in that of the rows."""
    return "embeds" in algorithm.promises


def seen_by(algorithm: Algorithm, task: Task, rows: FloatArray) -> FloatArray:
    """Return rows (n, d) as the algorithm sees them where clusters are: embedded, or as they are."""
    if not embeds(algorithm):
        return rows
    executor, _ = algorithm.build(len(task.arrays.get("centroids", [None])))
    return rows if executor.step(task.step).as_is else rows_shown(executor, task, Table(rows)).X


def step_reply(executor: ClusteringExecutor, task: Task, table: Table, context: SiteContext) -> Message:
    """Return what a step computes of rows under a site's conditions, without what decides whether the site takes part."""
    rows = SiteRows(table, stream(executor.params.seed, task.round, task.site), never_abort, context)
    exchange = SiteExchange(task, executor.step(task.step), table, rows)
    return computed(executor, exchange if exchange.step.as_is else shown(exchange, site_stages(executor, None)[1]))


def step_of(algorithm: Algorithm, name: str) -> Step:
    """Return a step of an algorithm's jobs."""
    return algorithm.build(1)[0].step(name)


def _short(algorithm: Algorithm) -> dict[str, Any]:
    """Return settings with which a check of an algorithm that trains networks does not take minutes."""
    return {"rounds": 2} if embeds(algorithm) else {}


def _needed(algorithm: Algorithm) -> Policy | None:
    return GRANTED if algorithm.executor_class().private else None


class Exchange(NamedTuple):
    """What a site was asked and what it sent, without the seconds."""

    task: Task
    arrays: Message


def exchanges(
    algorithm: Algorithm,
    sites: Mapping[str, FloatArray | Table],
    k: int,
    seed: int = 0,
    policy: Policy | None = None,
    *,
    assess: bool = False,
    refused: dict[str, list[str]] | None = None,
    **params: Any,
) -> list[Exchange]:
    """Run a federation with the algorithm's `params`, and return everything that left a site; none where it could not run.

    Args:
        policy: of every site; None for none, or for `GRANTED` where the algorithm needs one.
        assess: whether the assessment, the profiles of the clusters and the outcomes that tables have are part of it.
        refused: gets what each site answered instead, if anything.
    """
    executor, aggregator = algorithm.build(k, seed, _short(algorithm) | params)
    seen: list[Exchange] = []
    policy = policy or _needed(algorithm)
    enforcers = {} if policy is None else {site: SimulatedSite.of(policy, algorithm) for site in sites}

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = {}
        for site in asked:
            task = Task(step, round_, {name: value.copy() for name, value in arrays.items()}, site)
            try:
                answer = answered(executor, task, sites[site], enforcers.get(site))
            except (Refusal, BadMessage) as reason:
                replies[site] = SiteReply(problem=str(reason))
                if refused is not None:
                    refused.setdefault(site, []).append(str(reason))
                continue
            seen.append(Exchange(task, {name: value for name, value in answer.arrays.items() if name != SECONDS}))
            replies[site] = SiteReply(answer.arrays)
        return replies

    forms = (rows.outcome_form for rows in sites.values() if isinstance(rows, Table))
    outcomes = next((form for form in forms if form is not None), None)
    with suppress(JobFailed):
        run_federation(
            aggregator, ask, list(sites), FederationOptions(assess=assess, profile=assess, outcomes=outcomes)
        )
    return seen


def ensure(condition: bool, algorithm: Algorithm, text: str) -> None:
    """Raise ContractViolation unless the condition holds."""
    if not condition:
        raise ContractViolation(f"{algorithm.name}: {text}")


def ensure_no_row(algorithm: Algorithm, name: str, value: FloatArray, rows: FloatArray) -> None:
    """Ensure that none of the vectors (..., d) that a site sends under a name is one of its rows (n, d)."""
    gap = np.abs(value.reshape(-1, 1, rows.shape[1]) - rows[None]).max(axis=2).min(initial=np.inf)
    ensure(bool(gap > 1e-12), algorithm, f"{name} holds a row of the site's data")


def replies_to(algorithm: Algorithm, tasks: Sequence[Task], rows: FloatArray, k: int, **params: Any) -> list[Message]:
    """Return what another site, with rows (n, d) of its own, sends to the same tasks, without the seconds; nothing to those that it refuses."""
    executor, policy = algorithm.build(k, 0, _short(algorithm) | params)[0], _needed(algorithm)
    site, found = None if policy is None else SimulatedSite.of(policy, algorithm), []
    for task in tasks:
        with suppress(Refusal, BadMessage):
            sent = answered(executor, task, rows, site).arrays
            found.append({name: value for name, value in sent.items() if name != SECONDS})
    return found
