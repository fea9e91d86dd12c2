"""The promises of all federated algorithms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import getattr_static, signature
from itertools import product
from typing import Any

import numpy as np

from flareclust._foundation.errors import Aborted
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, FloatArray, Message
from flareclust.data.tables import Table
from flareclust.evaluation import metrics
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.nvflare_executor import ExecutorShell
from flareclust.federation.server import ServerJob
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.schema import Schema, nbytes
from flareclust.protocol.sizes import reply_sizes
from flareclust.protocol.state import State
from flareclust.protocol.task import SPREAD, StepName, Task
from flareclust.testing.policies import check_answers_follow_the_groups, check_policies_hold
from flareclust.testing.processes import check_constructors_do_nothing, check_local_is_pure
from flareclust.testing.tools import (
    ContractViolation,
    embeds,
    ensure,
    ensure_no_row,
    exchanges,
    iid_sites,
    replies_to,
    run,
    seen_by,
    step_of,
)

# The promise that what NVFlare calls, and what holds a job to a site's policy, is ours in every algorithm.
#
# NVFlare does more with a component than to construct it: it notifies it of events, hands it tasks, copies it. At a site the
# shell of all executors answers these, and so it is what reads the rows and sees to the policy. An algorithm is `local`,
# `labels` and what else the base classes leave open.

#: What Python calls by itself, at any time.
_UNASKED = frozenset({"__getattr__", "__del__", "__copy__", "__deepcopy__", "__getstate__", "__setstate__", "__call__"})

#: What a class of every kind may say of itself.
_OPEN = frozenset({"__init__", "__doc__", "__module__", "__class__", "__repr__", "__str__", "__eq__", "__hash__"})

#: What makes an executor's reply what a site's policy lets out.
_POLICY = frozenset({"answer", "without_rows", "sender", "step", "job_steps"})


def check_nvflare_calls_ours(algorithm: Algorithm) -> None:
    """Neither side takes the place of what NVFlare calls, events among it, or of what holds a job to a site's policy."""
    executor, aggregator = algorithm.build(3)
    nvflares = next(one for one in ClusteringAggregator.__mro__ if one.__module__.startswith("nvflare."))
    sides = (
        (executor, ClusteringExecutor, _code(ExecutorShell) | _POLICY),
        (aggregator, ClusteringAggregator, _code(nvflares)),
    )
    for side, base, names in sides:
        kind = type(side)
        ensure(isinstance(side, base), algorithm, f"{kind.__name__} is no {base.__name__}")
        for name in sorted((names | _UNASKED) - _OPEN):
            own = name in vars(side) or getattr_static(kind, name, None) is not getattr_static(base, name, None)
            ensure(not own, algorithm, f"{kind.__name__} has its own {name} in the place of {base.__name__}'s")
        ensure(not vars(side).get("_event_handlers"), algorithm, f"{kind.__name__} listens to events")
    unheld = executor.private and "differentially-private" not in algorithm.promises
    ensure(not unheld, algorithm, "says that it is private, and does not promise to be differentially-private")


def _code(kind: type) -> set[str]:
    """Return the names of a class's functions and properties, and of those of the classes that it is made of."""
    members = [member for one in kind.__mro__ for member in vars(one).items()]
    return {
        name for name, value in members if callable(value) or isinstance(value, property | classmethod | staticmethod)
    }


def _check_arguments_survive(algorithm: Algorithm) -> None:
    """Constructor arguments are in `params`, and where NVFlare finds them; none has a name that it takes for its own."""
    for side in algorithm.build(3):
        for name in signature(type(side)).parameters:
            kept = hasattr(side.params, name) and f"_{name}" in vars(side)
            ensure(kept, algorithm, f"{type(side).__name__} does not keep its argument {name!r}")
            ensure(name not in ("name", "path", "class_path"), algorithm, f"an argument may not be called {name!r}")


def _check_both_sides_agree(algorithm: Algorithm) -> None:
    """Both sides use the same schemas, and what a site sends in every step fits them."""
    executor, aggregator = algorithm.build(4)
    ensure(aggregator.executor is type(executor), algorithm, "the aggregator's executor is another class")
    steps, owner = aggregator.executor.steps, type(aggregator).__name__
    for step in steps.values():
        ensure(callable(getattr(aggregator, step.merge, None)), algorithm, f"{owner} has no method {step.merge!r}")
    sites, _ = iid_sites()
    sent = exchanges(algorithm, sites, k=4)
    ensure(bool(sent), algorithm, "no site sent anything")
    for task, arrays in sent:
        d = seen_by(algorithm, task, sites[task.site]).shape[1]
        executor.step(task.step).schema.check(arrays, {"d": d})


def check_same_seed_same_centroids(algorithm: Algorithm) -> None:
    """The same seed gives the same bits, in whatever order the sites are listed."""
    rng = np.random.default_rng(0)  # without clusters, so that every random choice shows
    sites = {f"site-{i}": rng.normal(size=(80, 3)) for i in range(4)}
    first, again = run(algorithm, sites, k=4, seed=7), run(algorithm, dict(reversed(sites.items())), k=4, seed=7)
    ensure(np.array_equal(first.centroids, again.centroids), algorithm, "the order of the sites changed the result")


def _check_result_is_finite_and_at_most_k(algorithm: Algorithm) -> None:
    """There are 1 to k finite centroids with the data's columns."""
    sites, _ = iid_sites()
    for k in (1, 2, 4, 7):
        centroids = run(algorithm, sites, k=k).centroids
        shape = centroids.shape
        d = 3 if not embeds(algorithm) else shape[1]
        ensure(1 <= shape[0] <= k and shape[1] == d, algorithm, f"k={k} gave centroids of shape {shape}")
        ensure(bool(np.isfinite(centroids).all()), algorithm, f"k={k} gave NaN or infinite centroids")


def check_nothing_sent_is_a_row(algorithm: Algorithm) -> None:
    """No vector that leaves a site equals a row of its data, however odd the data are."""
    rng = np.random.default_rng(1)
    ordinary = rng.normal(size=(50, 3))
    lonely, repeated = np.concatenate([ordinary, 1e3 * np.eye(3)]), np.concatenate([ordinary, np.full((20, 3), 99.0)])
    # k-means stops on its tolerance here, just when a row has joined another one that was alone until then.
    crowd = np.random.default_rng(32).uniform(-3, 3, 1001)
    joined = np.tile(np.concatenate([crowd, [30.8, 60.0]])[:, None], 3)
    whole = np.repeat(np.arange(9.0)[:, None], 3, axis=1) + np.repeat([0.0, 90.0, 900.0], 3)[:, None]
    odd = (ordinary, lonely, repeated, repeated[-20:], ordinary[:5], joined, whole)
    for rows, min_count, k in product(odd, (1, 2), (3, 5)):
        _ensure_no_row(algorithm, {"site-1": rows}, k, min_count=min_count)
    # In many rounds of two sites: means that are likely to be rows, rows that come often, rows that are alone.
    rng = np.random.default_rng(5)
    blocks = [rng.integers(0, 4, (60, 2)), rng.normal(20, 5, (60, 2)), np.full((9, 2), -30.0), 90 * np.eye(2)]
    rows, known = np.concatenate(blocks), algorithm.parameters()
    many: dict[str, Any] = {name: n for name, n in (("rounds", 10), ("polish", 3)) if name in known}
    for k in (3, 8, 14):
        _ensure_no_row(algorithm, {"site-1": rows, "site-2": rows[::2] + 0.25}, k, **many)


def _ensure_no_row(algorithm: Algorithm, sites: Mapping[str, FloatArray], k: int, **params: Any) -> None:
    """Ensure that no vector sent in any step is a row of the site that sends it."""
    for task, arrays in exchanges(algorithm, sites, k=k, **params):
        rows = seen_by(algorithm, task, sites[task.site])
        for name, field in step_of(algorithm, task.step).schema.fields.items():
            # Squares are in another unit; those of small integers equal a row by chance.
            if field.axes[-1:] == ("d",) and name != SPREAD:
                ensure_no_row(algorithm, name, arrays[name], rows)


def check_small_clusters_stay(algorithm: Algorithm) -> None:
    """Clusters below min_count never leave a site."""
    rng = np.random.default_rng(2)
    far = 1e4 + rng.normal(size=(4, 3))
    rows = np.concatenate([rng.normal(size=(60, 3)), far])
    for task, arrays in exchanges(algorithm, {"site-1": rows}, k=3, min_count=5):
        if "counts" in arrays and task.step not in StepName.SCORING:
            ensure(bool((arrays["counts"] >= 5).all()), algorithm, "a cluster below min_count=5 was sent")
        if "centroids" in arrays:
            reach = np.abs(arrays["centroids"]).max(initial=0)
            ensure(bool(reach < 5e3), algorithm, "the centroid of four rows was sent although min_count=5")


def check_size_does_not_grow_with_rows(algorithm: Algorithm) -> None:
    """A reply of ten times as many rows to the same questions is not longer than k allows, or the setting `max_groups`."""
    rows = np.random.default_rng(3).normal(size=(1000, 3))
    bound: dict[str, Any] = {"max_groups": 4} if "max_groups" in algorithm.parameters() else {}
    sent = exchanges(algorithm, {"site-1": rows}, k=4, **bound)
    of_few = replies_to(algorithm, [one.task for one in sent], rows[:100], k=4, **bound)
    few, many = max(map(nbytes, of_few), default=0), max(nbytes(one.arrays) for one in sent)
    ensure(many <= 2 * few, algorithm, f"100 rows sent {few} bytes, 1000 rows {many}")


def _check_bad_site_is_left_out(algorithm: Algorithm) -> None:
    """A site with NaN is named and changes nothing for the others."""
    sites, _ = iid_sites(m=5)
    without = run(algorithm, {site: rows for site, rows in sites.items() if site != "site-3"}, k=4)
    broken = sites["site-3"].copy()
    broken[4, 1] = np.nan
    outcome = run(algorithm, sites | {"site-3": broken}, k=4)
    ensure(list(outcome.refused) == ["site-3"], algorithm, f"refused {outcome.refused} instead of site-3 alone")
    same = np.array_equal(outcome.centroids, without.centroids)
    ensure(same, algorithm, "a refused site changed the others' result")


def _check_bad_replies_are_named(algorithm: Algorithm) -> None:
    """A reply with missing, extra, mistyped, misshapen or infinite arrays is refused by the site's name, in every step."""
    sites, _ = iid_sites(m=2)
    sent = exchanges(algorithm, sites, k=4)
    good = {task.step: arrays for task, arrays in sent if all(array.size for array in arrays.values())}
    for step, arrays in good.items():
        schema = step_of(algorithm, step).schema
        for name, mutant in _mutants(arrays):
            named, problems = _names_the_second(schema, arrays, mutant)
            ensure(named, algorithm, f"a spoilt {name!r} was not refused in step {step}: {problems}")


def _names_the_second(schema: Schema, good: Message, bad: Any, *bounds: Any) -> tuple[bool, Mapping[str, str]]:
    """Return whether of two sites' replies only the second is refused, and what is refused by site."""
    answers = {"site-1": SiteReply(good), "site-2": SiteReply(bad)}
    replies, problems, _ = accept(schema, answers, list(answers), *bounds)
    return list(replies) == ["site-1"] and list(problems) == ["site-2"], problems


def _mutants(good: Message) -> Iterator[tuple[str, Any]]:
    """Yield the name of an array and a reply in which it is spoilt."""
    for name, value in good.items():
        spoilt = value.astype(np.float64)
        spoilt.flat[0] = np.nan
        yield name, {other: array for other, array in good.items() if other != name}
        yield name, good | {"rows_of_mine": np.zeros(3)}
        yield name, good | {name: value.astype(np.complex128)}
        yield name, good | {name: value[..., None]}
        yield name, good | {name: spoilt}
        yield name, good | {name: value.tolist()}
        yield name, good | {name: [[1.0], [1.0, 2.0]]}
        yield name, good | {1: value}
        yield name, good | {name: np.full(value.shape, 1e200)}


def _check_too_many_entries_are_refused(algorithm: Algorithm) -> None:
    """Every axis of a reply is bounded, and a reply of more entries is refused by the site's name."""
    sites, _ = iid_sites(m=2)
    job, sent = ServerJob(algorithm.build(4)[1]), exchanges(algorithm, sites, k=4)
    good = {task.step: (task, arrays) for task, arrays in sent if all(array.size for array in arrays.values())}
    for step, (task, arrays) in good.items():
        now: Round[State] = Round(task.arrays, step=step)
        schema, sizes, limits = job.schema(step), reply_sizes(now.step, now.task), job.limits(now)
        for axis in {axis for field in schema.fields.values() for axis in field.axes} - set(sizes):
            if axis not in limits:  # then what the reply says elsewhere must bound it
                limits = {**limits, axis: 10**6}
            most = limits[axis]
            mutant = {name: _longer(arrays[name], field.axes, axis, most + 1) for name, field in schema.fields.items()}
            named, _ = _names_the_second(schema, arrays, mutant, sizes, None, job.limits(now))
            ensure(named, algorithm, f"{most + 1} entries along {axis} were not refused in step {step}")


def _longer(value: Array, axes: Sequence[str], long: str, size: int) -> Array:
    """Return an array of zeros that has `size` entries along the axes of one name, and is made without memory for them."""
    return np.zeros([size if axis == long else n for n, axis in zip(value.shape, axes, strict=True)], value.dtype)


def _check_degenerate_sites(algorithm: Algorithm) -> None:
    """One row, repeated rows, a constant column, fewer rows than k: a defined reply or a refusal, and never NaN."""
    rng = np.random.default_rng(4)
    sites, _ = iid_sites(m=4)
    flat = rng.normal(size=(40, 3))
    flat[:, 1] = 5.0
    odd = {
        "one row": rng.normal(size=(1, 3)),
        "no rows": np.empty((0, 3)),
        "one row repeated": np.full((30, 3), 2.5),
        "two rows repeated": np.repeat(rng.normal(size=(2, 3)), 15, axis=0),
        "a constant column": flat,
        "fewer rows than k": rng.normal(size=(3, 3)),
        "huge values": 1e150 * rng.normal(size=(40, 3)),
        "tiny values": 1e-150 * rng.normal(size=(40, 3)),
    }
    for what, rows in odd.items():
        outcome = run(algorithm, sites | {"site-odd": rows}, k=4)
        finite = bool(np.isfinite(outcome.centroids).all())
        ensure(finite, algorithm, f"a site with {what} led to centroids that are not finite")
        others = set(outcome.refused) - {"site-odd"}
        ensure(not others, algorithm, f"a site with {what} led to the refusal of {others}")


def check_abort_stops(algorithm: Algorithm) -> None:
    """A site stops when the abort signal comes."""
    sites, _ = iid_sites()
    executor, aggregator = algorithm.build(4)
    task = Task(StepName.CLUSTER, 0, dict(aggregator.begin().task), "site-1")
    if embeds(algorithm):  # whose `local` is not the first step
        own = {name for name, step in executor.steps.items() if step.method == "local"}
        task = next(one.task for one in exchanges(algorithm, sites, k=4) if one.task.step in own)
    try:
        rng, context = stream(0, 0, "site-1"), SiteContext(executor.min_count)
        executor.local(task, SiteRows(Table(sites["site-1"]), rng, lambda: True, context))
    except Aborted:
        return
    raise ContractViolation(f"{algorithm.name}: local() went on to the end although aborted() was true")


def _check_no_equations_for_a_row(algorithm: Algorithm) -> None:
    """Scores come from sites only whose rows have more values than the job's exchanges of scores and sums hold numbers."""
    rng = np.random.default_rng(5)
    sites = {"site-1": rng.normal(size=(200, 2)), "site-2": rng.normal(size=(4, 2))}
    for task, arrays in exchanges(algorithm, sites, k=3):
        if task.step in StepName.SCORING and task.site == "site-2":
            disclosed = [name for name, value in arrays.items() if value.any()]
            ensure(not disclosed, algorithm, f"a site of four rows sent the scores {disclosed}")


def _check_assessment_equals_pooled(algorithm: Algorithm) -> None:
    """Inertia, simplified silhouette and Davies-Bouldin equal those of the pooled rows to 1e-9."""
    sites, _ = iid_sites()
    outcome = run(algorithm, sites, k=4)
    final = Task(StepName.ASSESS, 0, outcome.arrays, "site-1")
    pooled = seen_by(algorithm, final, np.concatenate(list(sites.values())))
    for name, value in metrics.pooled_label_free(pooled, outcome.centroids).items():
        found = outcome.metrics[name]
        equal = found is value is None or bool(np.isclose(found, value, rtol=1e-9, atol=0))  # type: ignore[arg-type]
        ensure(equal, algorithm, f"{name} is {found} from the sites' sums and {value} on the pooled rows")


ALWAYS: tuple[Callable[[Algorithm], None], ...] = (
    _check_arguments_survive,
    check_constructors_do_nothing,
    check_nvflare_calls_ours,
    _check_both_sides_agree,
    check_same_seed_same_centroids,
    check_local_is_pure,
    _check_result_is_finite_and_at_most_k,
    check_nothing_sent_is_a_row,
    check_small_clusters_stay,
    check_size_does_not_grow_with_rows,
    _check_bad_site_is_left_out,
    _check_bad_replies_are_named,
    _check_too_many_entries_are_refused,
    _check_degenerate_sites,
    check_abort_stops,
    _check_no_equations_for_a_row,
    _check_assessment_equals_pooled,
    check_policies_hold,
    check_answers_follow_the_groups,
)

#: Those that noise breaks, of algorithms under differential privacy: noise follows no seed, small clusters are hidden by it
#: and not left out, the assessment is near to the pooled values only, and they see no groups. Their own promise is
#: "differentially-private".
NOT_OF_PRIVATE = (
    check_same_seed_same_centroids,
    check_local_is_pure,
    check_nothing_sent_is_a_row,
    check_small_clusters_stay,
    _check_bad_site_is_left_out,
    _check_assessment_equals_pooled,
    check_answers_follow_the_groups,
)
