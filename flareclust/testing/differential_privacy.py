"""The promise of algorithms under differential privacy: what a row can change is what the noise is made for."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.federation.executor import ClusteringExecutor
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.budget import DPSession, bounds_of
from flareclust.privacy.dp.ledger import Ledger
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.rows import SiteContext
from flareclust.protocol.task import Task
from flareclust.testing.tools import GRANTED, ContractViolation, Exchange, ensure, exchanges, step_reply

#: The largest value within the bounds of sites that grant what is asked for.
_HIGH = 1000.0

#: Of the jobs that are looked at.
_EPSILON, _DELTA = 2.0, 1e-6

#: What a lying server sends instead of the numbers of an array: of squares that are 0 or infinite, and at every limit.
_EXTREMES = (
    *(0.0, 5e-324, 1e-200, 1.1e-100, 1e-89, 1e-9, 1e10, 1e139, -1e139, 1.1e140, 9e144, 1e149, 1e200, -1.7e308),
    *(float("nan"), float("inf")),
)


def check_differentially_private(algorithm: Algorithm) -> None:
    """One row more changes what is noised by its stated sensitivity at most, the noise is new each time, and its cost is counted."""
    executor = algorithm.executor_class()
    ensure(executor.private, algorithm, "its executor does not say that it is private")
    for d, k in ((1, 3), (2, 4), (7, 3)):
        sites = {f"site-{i}": _rows(d, seed=10 * d + i) for i in (1, 2)}
        job: dict[str, Any] = {"k": k, "assess": True, "epsilon": _EPSILON, "delta": _DELTA}
        sent, again = (exchanges(algorithm, sites, **job) for _ in range(2))
        ensure(bool(sent), algorithm, f"sent nothing of {d} columns to a policy that grants all")
        ensure(not _same_noise(sent, again), algorithm, "the same noise came twice")
        for one in sent:
            _ensure_refused_without_terms(algorithm, one, sites[one.task.site], k)
        mine = [one for one in sent if one.task.site == "site-1"]
        _ensure_paid(algorithm, mine, sites["site-1"], k)
        site = build(algorithm, k)
        for one, other in product(mine, _neighbours(sites["site-1"])):
            ensure_alike(algorithm, site, one.task, sites["site-1"], other)
        for one in {one.task.step: one for one in reversed(mine)}.values():  # the first of each step
            _ensure_answered(algorithm, site, one.task, sites["site-1"])
            for arrays, other in product(_hostile(one.task.arrays), _worst(sites["site-1"])):
                ensure_alike(algorithm, site, replace(one.task, arrays=arrays), sites["site-1"], other)


def _rows(d: int, seed: int) -> FloatArray:
    """Return rows of d columns in clusters, some beyond the bounds, some on top of each other."""
    rng = np.random.default_rng(seed)
    centers = 0.5 * _HIGH * rng.uniform(-1, 1, size=(4, d))
    rows = np.repeat(centers, 12, axis=0) + rng.normal(size=(48, d))
    return np.concatenate([rows, np.full((2, d), 5 * _HIGH), rows[:3]])


def _neighbours(rows: FloatArray) -> Iterator[FloatArray]:
    """Yield the rows without one, and with one more: ordinary ones, and such as change most."""
    d = rows.shape[1]
    corner = np.full((1, d), _HIGH)
    for i in (0, 20, 48):
        yield np.delete(rows, i, axis=0)
    for row in (corner, -corner, 1e6 * corner, np.zeros((1, d)), corner * np.where(np.arange(d) % 2, -1, 1)):
        yield np.concatenate([row, rows])


def _worst(rows: FloatArray) -> Iterator[FloatArray]:
    """Yield the rows without one, and with one more: as far away as numbers go, or at the lower bounds."""
    d = rows.shape[1]
    yield rows[1:]
    for row in (np.full((1, d), 1.7e308), np.full((1, d), -_HIGH)):
        yield np.concatenate([row, rows])


def _hostile(arrays: Message) -> Iterator[Message]:
    """Yield what a server might send instead: each array, all, or one entry of each, at an extreme, and boxes without room."""
    for name, value in product(arrays, _EXTREMES):
        if arrays[name].dtype == np.float64:
            yield arrays | {name: np.full_like(arrays[name], value)}
            mixed = arrays[name].copy()
            mixed.flat[0] = value
            yield arrays | {name: mixed}
    places = ("centroids",) if "centroids" in arrays else ()
    for (one, other), far in product(product(set(arrays) - set(places), repeat=2), _EXTREMES):
        if one <= other and arrays[one].dtype == arrays[other].dtype == np.float64:
            near = {name: np.full_like(arrays[name], value) for name, value in ((one, -far), (other, far))}
            yield arrays | near
            yield arrays | {name: np.full_like(arrays[name], 1e139) for name in places} | near
    for name in arrays:
        yield {other: value for other, value in arrays.items() if other != name}
        yield arrays | {name: arrays[name].ravel()[:0]}
    if "shape" in arrays:
        for cells in (0, -1, 1, 2, 10**7, 2**62):
            yield arrays | {"shape": np.full_like(arrays["shape"], cells)}


def _same_noise(sent: list[Exchange], again: list[Exchange]) -> bool:
    """Return whether an array of several numbers that a row can change came with the same bits in two runs."""
    return any(
        value.size > 1 and value.any() and np.array_equal(value, two.arrays[name])
        for one, two in zip(sent, again, strict=False)
        for name, value in one.arrays.items()
        if name not in ("low", "high")
    )


@dataclass(frozen=True)
class _Watched(DPSession):
    """Terms that write down what is to be noised, and answer with given values instead of noise."""

    seen: list[tuple[IntArray, float, float]] = field(default_factory=list)
    script: list[IntArray] = field(default_factory=list)

    def gaussian(self, values: IntArray, sensitivity: float, rho: float, what: str) -> IntArray:
        self.seen.append((values.copy(), sensitivity, rho))
        return self.script[len(self.seen) - 1] if len(self.script) >= len(self.seen) else values


def _answer(executor: ClusteringExecutor, task: Task, rows: FloatArray, script: list[IntArray]) -> tuple[_Watched, str]:
    """Return what was to be noised for a task, and what was answered instead, if the site refused."""
    dp = GRANTED.dp
    assert dp is not None
    bounds = bounds_of(dp.bounds, None, rows.shape[1])
    terms = _Watched(bounds, dp, "checks", Ledger.in_memory(), np.inf, seen=[], script=script)
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            step_reply(executor, task, Table(rows), SiteContext(executor.min_count, dp=terms))
    except (Refusal, BadMessage) as refused:
        return terms, str(refused)
    except ArithmeticError as error:
        raise ContractViolation(
            f"step {task.step}: what was sent led to numbers that are not finite: {error}"
        ) from None
    return terms, ""


def build(algorithm: Algorithm, k: int, **settings: object) -> ClusteringExecutor:
    """Return a site's side of a job that the policy of these checks grants."""
    return algorithm.build(k, 0, {"epsilon": _EPSILON, "delta": _DELTA, **settings})[0]


def ensure_alike(
    algorithm: Algorithm, executor: ClusteringExecutor, task: Task, rows: FloatArray, other: FloatArray
) -> None:
    """Ensure that two neighbours differ by the stated sensitivity at most, in each release given those before it.

    Where one is refused the other must be, too, in the same words. The executor is of `build`, the task as an honest or a lying
    server would send it; `other` are the rows (n, d) with one more or less.
    """
    here, why = _answer(executor, task, rows, [])
    there, why_other = _answer(executor, task, other, [values for values, _, _ in here.seen])
    step = f"step {task.step}"
    ensure(why == why_other, algorithm, f"{step}: a row changes what is refused: {why!r}, {why_other!r}")
    ensure(len(here.seen) == len(there.seen), algorithm, f"{step}: a row changes how often noise is drawn")
    for (a, stated, _), (b, same, _) in zip(here.seen, there.seen, strict=True):
        apart = float(np.sqrt(((a - b).astype(np.float64) ** 2).sum()))
        ensure(stated == same and apart <= stated, algorithm, f"{step}: a row changed sums by {apart} > {stated}")


def _ensure_answered(algorithm: Algorithm, executor: ClusteringExecutor, task: Task, rows: FloatArray) -> None:
    """Ensure that a site answers whatever its rows hold but NaN and infinity: a refusal would disclose it."""
    for other in _worst(rows):
        try:
            executor.answer(task, other, never_abort, SiteSession(GRANTED, "checks", Ledger.in_memory()))
        except (Refusal, BadMessage) as refused:
            ensure(False, algorithm, f"step {task.step}: a row changes whether a site answers: {refused}")


def _ensure_paid(algorithm: Algorithm, mine: list[Exchange], rows: FloatArray, k: int) -> None:
    """Ensure that all exchanges of a job together cost no more than it asks for."""
    executor = build(algorithm, k)
    spent = sum(rho for one in mine for _, _, rho in _answer(executor, one.task, rows, [])[0].seen)
    claimed = accounting.rho_of(_EPSILON, _DELTA)
    ensure(0 < spent <= claimed, algorithm, f"a job that asks for rho={claimed} spent {spent}")


def _ensure_refused_without_terms(algorithm: Algorithm, one: Exchange, rows: FloatArray, k: int) -> None:
    executor = build(algorithm, k)
    try:
        step_reply(executor, one.task, Table(rows), SiteContext(executor.min_count))
    except Refusal:
        return
    raise ContractViolation(f"{algorithm.name}: answered the step {one.task.step} to a site without terms")
