"""The promises about a site's policy: it holds whatever the job asks, and nothing about the rows leaves beyond their groups, not even
by what is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal, UserError
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust._foundation.validation import LARGEST_VALUE, LEAST_VALUE
from flareclust.core.disclosure import rounded
from flareclust.core.lloyd import assign
from flareclust.core.microaggregation import microaggregate
from flareclust.data.tables import Table
from flareclust.federation.executor import ClusteringExecutor
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.session import SiteSession
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import StepName, Task
from flareclust.sites.rows import SiteData
from flareclust.testing.tools import Exchange, blobs, ensure, exchanges, seen_by, step_of

#: Clusters of the jobs that are looked at, and the policy of their sites.
_K, _FLOOR = 3, 10

#: What a server might send instead of the numbers of an array: the limits of rows, of numbers, of squares and of quotients.
_EXTREMES = (
    *(0.0, 5e-324, -5e-324, 1e-300, 1e-200, 1.1e-100, 1e-50, 1e-20),
    *(-1.0, 1e10, 9e58, 1e75, 9e139, -9e139, 1.1e140, 1e200),
    *(1.7e308, -1.7e308, float("nan"), float("inf")),
)
_WHOLE = (0, -1, 1, 2**40, -(2**62))

#: How often all arrays of a task are at extremes together, each at its own.
_DRAWS = 24


def check_answers_follow_the_groups(algorithm: Algorithm) -> None:
    """With a policy, replies, refusals and whether rows get labels follow from the microaggregated rows, whatever is sent."""
    sites = {site: Table(rows, tuple("abc")) for site, rows in _sites_of_groups().items()}
    if algorithm.partial:
        sites["site-4"] = Table(np.ascontiguousarray(sites["site-4"].X[:, :2]), ("a", "b"))
    policy = Policy(min_count=_FLOOR)
    for params in _settings(algorithm):
        honest = [one.task for one in exchanges(algorithm, sites, _K, policy=policy, assess=True, **params)]
        # What late sites are asked has the form of the assessment's task.
        honest += [replace(task, step=StepName.PLACE) for task in honest if task.step == StepName.ASSESS]
        terms = {site: _SameGroups(policy, "checks", table=table) for site, table in sites.items()}
        side = algorithm.executor_class()
        known = signature(side).parameters
        make = partial(side, k=_K, seed=0, **{name: value for name, value in params.items() if name in known})
        with np.errstate(all="ignore"):
            for site in sites:  # those with labels first, in case somebody remembers what they are of
                own = [one for one in honest if one.site == site]
                own.sort(key=lambda one: one.step not in (StepName.ASSESS, StepName.PLACE))
                _ensure_same(algorithm, make, own, terms[site], times=2)
            first = {one.step: one for one in sorted(honest, key=lambda one: (one.site == "site-4", -one.round))}
            for hostile in (replace(one, arrays=arrays) for one in first.values() for arrays in _hostile(one.arrays)):
                _ensure_same(algorithm, make, [hostile], terms[hostile.site], times=1)


def _sites_of_groups() -> dict[str, FloatArray]:
    """Return sites with clusters of 60 rows, one with four rows of the third cluster and two far away, one with 14 rows."""
    rng = np.random.default_rng(8)
    rows, _ = blobs(_K, 3, 60, rng)
    full = {f"site-{i}": rows + 0.1 * rng.normal(size=rows.shape) for i in (1, 2, 3)}
    far = 1e3 + rng.normal(size=(2, 3))
    full["site-4"] = np.concatenate([rows[:120] + 0.1 * rng.normal(size=(120, 3)), rows[120:124], far])
    return full | {"site-5": rng.normal(scale=8.0, size=(14, 3))}  # one group, in cells of fewer rows than it has


@dataclass
class _SameGroups(SiteSession):
    """Terms under which a site's jobs see the microaggregated rows of `table`, whatever its rows are."""

    table: Table = field(kw_only=True)

    def microaggregated(self, table: Table) -> Table:
        return super().microaggregated(self.table)


def _settings(algorithm: Algorithm) -> Iterator[dict[str, Any]]:
    """Yield settings of a job: the usual ones, for each switch of the site's side those with it thrown, and scaled columns."""
    known = algorithm.parameters()
    usual: dict[str, Any] = {name: 1 for name in ("min_count", "n_init") if name in known}
    yield usual
    for name in signature(algorithm.executor_class()).parameters:
        if isinstance(known.get(name), bool):
            thrown = usual | {name: not known[name]}
            try:
                algorithm.build(_K, 0, thrown)
            except UserError:  # it needs another setting beside it
                continue
            yield thrown
    if algorithm.partial and "scale" in known:
        yield usual | {"scale": "standard"}


def _others(rows: FloatArray) -> Iterator[FloatArray]:
    """Yield rows (n, d) that could be in the place of a site's: of all sizes, all zero, others, and tiny ones."""
    rng = np.random.default_rng(3)
    wild = rng.choice((-1.0, 1.0), rows.shape) * 10.0 ** rng.uniform(-139, 58, rows.shape)
    wild[0], wild[-1] = 0.99 * LARGEST_VALUE, -0.99 * LARGEST_VALUE
    yield wild
    yield np.zeros_like(rows)
    yield rng.normal(50.0, 20.0, rows.shape)
    yield 10 * LEAST_VALUE * rng.normal(size=rows.shape)


def _hostile(arrays: Message) -> Iterator[Message]:
    """Yield what a server might send instead: an array, an entry of it, or all arrays at extremes, left out, or without entries."""
    numbers = {name: _EXTREMES if value.dtype == np.float64 else _WHOLE for name, value in arrays.items()}
    for name, value in ((one, extreme) for one, extremes in numbers.items() for extreme in extremes):
        yield arrays | {name: np.full_like(arrays[name], value)}
        mixed = arrays[name].copy()
        mixed.flat[:1] = value
        yield arrays | {name: mixed}
    for name in arrays:
        yield {other: value for other, value in arrays.items() if other != name}
        yield arrays | {name: arrays[name][:0] if arrays[name].ndim else arrays[name].ravel()[:0]}
    rng, floats = np.random.default_rng(4), [name for name, value in arrays.items() if value.dtype == np.float64]
    for _, scale in product(range(_DRAWS if len(floats) > 1 else 0), (0.0, 1.0)):
        drawn = {name: rng.choice(_EXTREMES) + scale * arrays[name] for name in floats}
        yield arrays | drawn if scale else arrays | {name: np.full_like(arrays[name], drawn[name]) for name in floats}


@dataclass(frozen=True)
class _Outcome:
    """What leaves a site, and whether its rows got labels."""

    arrays: Message
    words: str = ""
    labelled: bool = False

    def differs(self, other: "_Outcome") -> str:
        """Return what is not the same in another outcome; nothing where all is."""
        if self.words != other.words:
            return f"what is refused ({self.words or 'nothing'!r} and {other.words or 'nothing'!r})"
        if self.labelled != other.labelled:
            return "whether rows get labels"
        arrays = self.arrays.items()
        return next((name for name, x in arrays if not np.array_equal(x, other.arrays[name], equal_nan=True)), "")


def _ensure_same(
    algorithm: Algorithm,
    make: Callable[[], ClusteringExecutor],
    tasks: Sequence[Task],
    terms: _SameGroups,
    *,
    times: int,
) -> None:
    """Ensure that each question to a site gets one answer, whatever rows the groups are in the place of.

    Each executor is asked as often as `times` says, so that nothing that it remembers counts either. Where that is once, rows
    of all sizes stand for all others.
    """
    usual: dict[int, _Outcome] = {}
    for rows in (terms.table.X, *islice(_others(terms.table.X), None if times > 1 else 1)):
        own, executor = replace(terms.table, X=rows), make()
        # What NVFlare's shell gives it: the rows and the site's terms.
        executor._rows, executor._site = (SiteData(Path("rows.csv")), own), terms
        for (number, task), time in product(enumerate(tasks), range(times)):
            found = _outcome(executor, task, own, terms)
            what = usual.setdefault(number, found).differs(found)
            ensure(
                not what,
                algorithm,
                f"step {task.step}: {what} changes with the rows, although the microaggregated rows are the same "
                f"({'second' if time else 'first'} time); compute replies from `data`, refuse for what `data` and the task "
                "hold, and keep nothing in the executor",
            )


def _outcome(executor: ClusteringExecutor, task: Task, own: Table, terms: SiteSession) -> _Outcome:
    """Return what a site with these rows lets out: of an unexpected error its type, as in NVFlare."""
    copied = replace(task, arrays={name: value.copy() for name, value in task.arrays.items()})
    try:
        answer = executor.answer(copied, own, never_abort, terms)
    except (Refusal, BadMessage) as reason:
        return _Outcome({}, f"{type(reason).__name__}: {reason}")
    except Exception as error:  # noqa: BLE001 - whatever it is, the server gets its name
        return _Outcome({}, f"raised {type(error).__name__}")
    arrays = {name: value for name, value in answer.arrays.items() if name != SECONDS}
    return _Outcome(arrays, labelled=answer.labels is not None)


#: Policies that every algorithm is run under, by what they are about.
_POLICIES: Mapping[str, Policy] = {
    "floor": Policy(min_count=_FLOOR),
    "rounded": Policy(min_count=_FLOOR, round_counts=8),
    "few centroids": Policy(max_centroids=_K - 1),
    "few rounds": Policy(max_rounds=2),
    "some arrays": Policy(arrays=("centroids", "counts")),
    "many rows": Policy(min_rows=130),
}


def check_policies_hold(algorithm: Algorithm) -> None:
    """A site's policy holds against jobs that ask for more: floor, rounding, sizes, exchanges, names, privacy."""
    sites = _sites_of_groups()
    settings: dict[str, Any] = {"min_count": 1} if "min_count" in algorithm.parameters() else {}
    for about, policy in _POLICIES.items():
        sent = exchanges(algorithm, sites, _K, policy=policy, assess=True, **settings)
        for one in sent:
            _ensure_within(algorithm, one, sites[one.task.site], policy, about)
        for site in sites:
            own = [one for one in sent if one.task.site == site]
            ensure(len(own) <= policy.max_rounds, algorithm, f"{about}: {site} answered {len(own)} times")
            enough = not own or len(sites[site]) >= policy.min_rows
            ensure(enough, algorithm, f"{about}: {site} has fewer rows, and sent")
    _ensure_hidden_cells_count_nowhere(algorithm)
    if "seeds" in algorithm.parameters():
        sent = exchanges(algorithm, sites, _K, policy=Policy(), seeds="rows")
        ensure(not sent, algorithm, "sent rows as seeds although the site has a policy")
    if not algorithm.executor_class().private:
        dp = DifferentialPrivacy(bounds=(-100.0, 100.0), epsilon=1.0, delta=1e-6, budget=10.0)
        sent = exchanges(algorithm, sites, _K, policy=Policy(dp=dp), assess=True)
        ensure(not sent, algorithm, "sent numbers that are not differentially private to a policy that asks for such")


def _ensure_hidden_cells_count_nowhere(algorithm: Algorithm) -> None:
    """Ensure that what stands in the place of missing cells follows from no cell that the groups do not show."""
    if "missing" not in algorithm.parameters():
        return
    policy = Policy(min_count=_FLOOR)
    sent, again = (
        exchanges(algorithm, _sites_with_gaps(*hidden), _K, policy=policy, missing="mean", assess=True)
        for hidden in ((1e3, 0.5), (4e3, 0.7))
    )
    ensure(bool(sent) and len(sent) == len(again), algorithm, "gaps: other exchanges where no group shows another cell")
    for one, two in zip(sent, again, strict=True):
        same = all(np.array_equal(value, two.arrays[name], equal_nan=True) for name, value in one.arrays.items())
        ensure(same, algorithm, f"gaps, step {one.task.step}: sent what follows from cells that no group shows")


def _sites_with_gaps(far: float, alone: float) -> dict[str, FloatArray]:
    """Return sites of three groups in which three rows alone know a column, beside a row that is far from all.

    `far` is in all cells of the row that is in no group, `alone` in those of the three rows, and in one that the p % rule moves.
    """
    rng, tables = np.random.default_rng(9), {}
    centers = blobs(_K, 4, 1, rng)[1]
    for site in ("site-1", "site-2", "site-3"):
        rows = np.repeat(centers, 15, axis=0) + rng.normal(size=(15 * _K, 4))
        for i, group in enumerate(np.split(rows, _K)):
            group[:, i] = np.nan
            group[:3, i] = alone
        rows[:15, 3] = 0.0
        rows[7, 3] = alone
        tables[site] = np.concatenate([rows, np.full((1, 4), far)])
    return tables


def _ensure_within(algorithm: Algorithm, one: Exchange, rows: FloatArray, policy: Policy, about: str) -> None:
    """Ensure that what left a site with these rows is within its policy, without asking what enforces it."""
    what, allowed = f"{about}, step {one.task.step}: {one.task.site} sent", policy.arrays
    ensure(allowed is None or set(one.arrays) <= set(allowed), algorithm, f"{what} other arrays: {sorted(one.arrays)}")
    if (centroids := one.arrays.get("centroids")) is not None:
        ensure(len(centroids) <= policy.max_centroids, algorithm, f"{what} {len(centroids)} centroids")
        reach = np.abs(centroids).max(initial=0.0)
        ensure(bool(reach < 100), algorithm, f"{what} a centroid at {reach:.0f}, where it has two rows")
    fields = step_of(algorithm, one.task.step).schema.fields
    for name, value in ((name, one.arrays[name]) for name, entry in fields.items() if entry.rows):
        counts = value[value != 0]
        if value.dtype == np.int64:
            ensure(bool((counts >= policy.min_count).all()), algorithm, f"{what} {name} below {policy.min_count}")
        if policy.round_counts > 1:
            ensure(bool((counts % policy.round_counts == 0).all()), algorithm, f"{what} {name} that are not rounded")
    if one.task.step == StepName.ASSESS:
        _ensure_large_cells(algorithm, one, rows, policy, what)


def _ensure_large_cells(algorithm: Algorithm, one: Exchange, rows: FloatArray, policy: Policy, what: str) -> None:
    """Ensure that the assessment is of cells at or above the floor: numbers, distances and sums over all of them."""
    centroids = one.task.arrays["centroids"]
    rows = seen_by(algorithm, one.task, np.concatenate(list(microaggregate(rows, policy.min_count))))
    labels, squared = assign(rows, centroids)
    cells = np.bincount(labels, minlength=len(centroids))
    small = (cells > 0) & (cells < policy.min_count)
    kept = np.where(small, 0, cells)
    counts = rounded(kept, policy.round_counts, policy.min_count)
    by = counts / np.maximum(kept, 1)
    ensure(np.array_equal(one.arrays["counts"], counts), algorithm, f"{what} counts of other cells")
    for name, values in (("scatter", np.sqrt(squared)), ("sse", squared)):
        sums = np.bincount(labels, values, minlength=len(centroids)) * by
        right = np.allclose(one.arrays[name], sums if name == "scatter" else sums.sum(), rtol=1e-9, atol=1e-12)
        ensure(right, algorithm, f"{what} {name} of rows in small cells")
