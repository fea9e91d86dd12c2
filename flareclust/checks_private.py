"""The promise of algorithms under differential privacy: what a row can change is what the noise is made for."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from flareclust.checks_tools import GRANTED, Exchange, PromiseBroken, ensure, exchanges
from flareclust.errors import Refusal
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.task import ASSESS
from flareclust.privacy.accounting import rho_of
from flareclust.privacy.ledger import Ledger
from flareclust.privacy.terms import Terms, bounds_of
from flareclust.registry import Algorithm
from flareclust.seeding import stream
from flareclust.typing import FloatArray, IntArray, never

#: The largest value within the bounds of sites that grant what is asked for.
_HIGH = 1000.0

#: Of the jobs that are looked at.
_EPSILON, _DELTA = 2.0, 1e-6


def check_differentially_private(algorithm: Algorithm) -> None:
    """One row more changes what is noised by its stated sensitivity at most, the noise is new each time, and its cost is counted."""
    executor = algorithm.executor_class()
    ensure(executor.private, algorithm, "its executor does not say that it is private")
    for d, k in ((1, 3), (2, 4), (7, 3)):
        sites = {f"site-{i}": _rows(d, seed=10 * d + i) for i in (1, 2)}
        sent, again = (_exchanges(algorithm, sites, k) for _ in range(2))
        ensure(bool(sent), algorithm, f"sent nothing of {d} columns to a policy that grants all")
        ensure(not _told_twice(sent, again), algorithm, "the same noise came twice")
        for one in sent:
            _ensure_refused_without_terms(algorithm, one, sites[one.task.site], k)
        mine = [one for one in sent if one.task.site == "site-1"]
        _ensure_paid(algorithm, mine, sites["site-1"], k)
        for one, other in product(mine, _neighbours(sites["site-1"])):
            _ensure_sensitivity(algorithm, one, sites["site-1"], other, k)


def _exchanges(algorithm: Algorithm, sites: dict[str, FloatArray], k: int) -> list[Exchange]:
    return exchanges(algorithm, sites, k=k, assess=True, epsilon=_EPSILON, delta=_DELTA)


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


def _told_twice(sent: list[Exchange], again: list[Exchange]) -> bool:
    """Return whether an array of several numbers that a row can change came with the same bits in two runs."""
    pairs = (
        (name, one.arrays[name], two.arrays[name]) for one, two in zip(sent, again, strict=False) for name in one.arrays
    )
    return any(
        np.array_equal(first, second)
        for name, first, second in pairs
        if name not in ("low", "high") and first.size > 1 and first.any()
    )


@dataclass(frozen=True)
class _Watched(Terms):
    """Terms that write down what is to be noised, and answer with what was said before instead of with noise."""

    seen: list[tuple[IntArray, float, float]] = field(default_factory=list)
    script: list[IntArray] = field(default_factory=list)

    def gaussian(self, values: IntArray, sensitivity: float, rho: float, what: str) -> IntArray:
        self.seen.append((values.copy(), sensitivity, rho))
        return self.script[len(self.seen) - 1] if len(self.script) >= len(self.seen) else values


def _watched(d: int, script: list[IntArray]) -> _Watched:
    dp = GRANTED.dp
    assert dp is not None
    return _Watched(*bounds_of(dp.bounds, None, d), dp, "checks", Ledger.in_memory(), np.inf, [], script)


def _answer(executor: ClusteringExecutor, one: Exchange, rows: FloatArray, script: list[IntArray]) -> _Watched:
    terms = _watched(rows.shape[1], script)
    task = replace(one.task, terms=terms)
    if task.step == ASSESS:
        executor.assess(task, rows)
    else:
        executor.local(task, rows, stream(0, task.round, task.site), never)
    return terms


def _build(algorithm: Algorithm, k: int) -> ClusteringExecutor:
    return algorithm.build(k, 0, {"epsilon": _EPSILON, "delta": _DELTA})[0]


def _ensure_sensitivity(algorithm: Algorithm, one: Exchange, rows: FloatArray, other: FloatArray, k: int) -> None:
    """Ensure that two neighbours differ by the stated sensitivity at most, in each release given those before it."""
    executor = _build(algorithm, k)
    here = _answer(executor, one, rows, [])
    there = _answer(executor, one, other, [values for values, _, _ in here.seen])
    ensure(
        len(here.seen) == len(there.seen), algorithm, f"step {one.task.step}: a row changes how often noise is drawn"
    )
    for (a, stated, _), (b, same, _) in zip(here.seen, there.seen, strict=True):
        apart = float(np.sqrt(((a - b).astype(np.float64) ** 2).sum()))
        ensure(
            stated == same and apart <= stated,
            algorithm,
            f"step {one.task.step}: a row changed sums by {apart} > {stated}",
        )


def _ensure_paid(algorithm: Algorithm, mine: list[Exchange], rows: FloatArray, k: int) -> None:
    """Ensure that all exchanges of a job together cost no more than it asks for."""
    executor = _build(algorithm, k)
    spent = sum(rho for one in mine for _, _, rho in _answer(executor, one, rows, []).seen)
    asked = rho_of(_EPSILON, _DELTA)
    ensure(0 < spent <= asked, algorithm, f"a job that asks for rho={asked} spent {spent}")


def _ensure_refused_without_terms(algorithm: Algorithm, one: Exchange, rows: FloatArray, k: int) -> None:
    try:
        executor = _build(algorithm, k)
        task = replace(one.task, terms=None)
        if task.step == ASSESS:
            executor.assess(task, rows)
        else:
            executor.local(task, rows, stream(0, task.round, task.site), never)
    except Refusal:
        return
    raise PromiseBroken(f"{algorithm.name}: answered the step {one.task.step} to a site without terms")
