"""How an executor answers from rows that lie in parts on the site's cluster (`flareclust.sites.cluster`).

Replies are those of the executor's own method for all rows, but for rounding: this module has a second form of some of them,
and `computed_by` marks the method that a form stands for. An algorithm whose method has none is refused, so one that overrides a
method is as well. No algorithm is imported here: executors import this module.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core import assessment, part_kmeans, part_sums
from flareclust.core.disclosure import LEAST_ROWS, check_enough, nothing_to_send
from flareclust.core.part_kmeans import kmeans_plusplus
from flareclust.core.parts import Parts, View
from flareclust.core.scaling import Spread, rounded
from flareclust.data.tables import Table
from flareclust.evaluation.scores import unstack
from flareclust.executors.odd_columns import odd_columns as odd_columns_of
from flareclust.executors.stages import RowStage, SchemaStage
from flareclust.features import alignment
from flareclust.preparation.settings import EUCLIDEAN, SCALE
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.client import MaskingStage
from flareclust.privacy.secure_aggregation.totals import check_range
from flareclust.privacy.session import SiteSession
from flareclust.privacy.stages import SiteExchange
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.steps import COUNTED
from flareclust.protocol.task import Answer, StepName, Task
from flareclust.sites.cluster import POLICED, WHERE, ClusterTable

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: The algorithms whose sites can compute on a cluster, for refusals.
_ALGORITHMS = ("lloyd", "mavg", "pooled")

#: What settings must be over parts, for executors that have them.
_SETTINGS: MappingProxyType[str, tuple[Any, ...]] = MappingProxyType(
    {
        "metric": (EUCLIDEAN,),
        "missing": ("refuse",),
        "scale": SCALE[:2],
        "trim_rows": (0.0,),
        "small_clusters": ("withhold",),
        "local_kmeans": ("lloyd",),
    }
)


class _Inputs(NamedTuple):
    """What a step is computed from.

    Attributes:
        executor: the site's side of the algorithm.
        part: what has the method of the step, the algorithm or a phase.
        task: as the algorithm sees it.
        parts: the rows, as the algorithm sees them.
        own: the rows as they are.
        table: the extremes of the rows as they are, with the names of the columns.
        rng: the generator of job, round and site.
        context: the site's conditions.
    """

    executor: Any
    part: Any
    task: Task
    parts: Parts
    own: Parts
    table: Table
    rng: np.random.Generator
    context: SiteContext


def computed_by(form: Callable[[_Inputs], Any]) -> Callable[[_Method], _Method]:
    """Return a decorator for the method of a step, or `labels`, that `form` computes over parts."""

    def mark(method: _Method) -> _Method:
        method.over_parts = form  # type: ignore[attr-defined]
        return method

    return mark


def answer_of_parts(
    executor: "ClusteringExecutor", task: Task, rows: ClusterTable, aborted: AbortCheck
) -> tuple[Answer, Iterator[int] | None]:
    """Answer a task as `ClusteringExecutor.answer` does at a site without a policy; the labels of the rows come apart.

    Raises:
        Refusal: the algorithm, its settings or the step cannot be computed over parts, or the site cannot take part.
        BadMessage, Aborted: as `ClusteringExecutor.answer`.
    """
    started = perf_counter()
    if aborted():
        raise Aborted(f"stopped before the step {task.step}")
    step = executor.step(task.step)
    parts = rows.parts.until(aborted)
    # The extremes of the columns stand for the rows where only their size and their columns matter.
    extent = parts.extent
    extremes = Table(np.stack([extent.least, extent.largest]), rows.columns, salt=rows.salt, hidden=rows.hidden)
    exchange = SiteExchange(task, step, extremes, extremes, SiteContext(executor.min_count))
    stages = [
        MaskingStage(executor._sums, None, executor.alike()),
        RowStage(executor.private, getattr(executor.params, "table_schema", None), executor.gaps),
        SchemaStage(),
    ]
    rows.parts.check_unchanged()
    for stage in stages:
        exchange = stage.before(exchange)
    single = executor._without_rows()
    reply = _key(executor, exchange, parts) if task.step == StepName.KEYS else _computed(single, exchange, parts)
    rows.parts.check_unchanged()
    for stage in reversed(stages):
        reply = stage.after(exchange, reply)
    answer = Answer({**reply, SECONDS: np.array(perf_counter() - started)})
    placed = labels(_inputs(single, exchange, parts)) if task.step in (StepName.ASSESS, StepName.PLACE) else None
    return answer, placed


def check_settings(executor: "ClusteringExecutor", site: SiteSession | None) -> None:
    """Raise Refusal where an algorithm, its settings or the site's policy need all rows in one process."""
    if site is not None:
        raise Refusal(POLICED)
    kind, first = type(executor), executor.steps.get(StepName.CLUSTER)
    if first is None or not all(hasattr(getattr(kind, name), "over_parts") for name in (first.method, "labels")):
        raise Refusal(
            f"{WHERE}, which can run {', '.join(_ALGORITHMS)}; take one of these, or take compute out of the site's configuration"
        )
    for name, possible in _SETTINGS.items():
        if getattr(executor.params, name, possible[0]) not in possible:
            raise Refusal(
                f"{WHERE}, which takes {name}={' or '.join(map(str, possible))} only; set that, or take compute out of the "
                "site's configuration"
            )


def _key(executor: "ClusteringExecutor", exchange: SiteExchange, parts: Parts) -> Message:
    extremes = exchange.seen.X
    executor.check_enough_rows(parts, exchange.context)
    check_range(extremes, cells=len(parts) * parts.d)
    return executor._sums.key(exchange.task.site, extremes, private=True)  # the range is checked already


def _computed(executor: "ClusteringExecutor", exchange: SiteExchange, parts: Parts) -> Message:
    """Return the reply of the step's method over parts."""
    step = exchange.step
    compute = getattr(getattr(executor.part_class(exchange.task.step), step.method), "over_parts", None)
    if compute is None:
        raise Refusal(f"{WHERE}, where the step {exchange.task.step} cannot be computed")
    reply = compute(_inputs(executor, exchange, parts))
    return {name: reply[name] for name in COUNTED.fields} if step.schema is COUNTED else reply


def _inputs(executor: "ClusteringExecutor", exchange: SiteExchange, parts: Parts) -> _Inputs:
    """Return what a step is computed from, after the checks of the task."""
    task, table = executor.viewed(exchange.task, exchange.seen)
    view = None
    if table is not exchange.seen and "deviation" in exchange.task.arrays:  # the task has said how to scale
        view = View(exchange.task.arrays["mean"], exchange.task.arrays["deviation"])
    executor.check_task(task, table.X)
    rng = stream(executor.params.seed, task.round, task.site)
    return _Inputs(
        executor, executor.part(exchange.task.step), task, parts.seen(view), parts, exchange.seen, rng, exchange.context
    )


def labels(inputs: _Inputs) -> Iterator[int]:
    """Give the nearest final centroid of each row, part by part."""
    found = inputs.parts.in_turn(part_sums.labels_of, shared=(inputs.task.arrays["centroids"],))
    return chain.from_iterable(own.tolist() for own in found)


def names(inputs: _Inputs) -> Message:
    """Return hashes of the names of the columns."""
    return alignment.hashed_names(inputs.table)


def place(inputs: _Inputs) -> Message:
    """Return the number of rows, which get labels."""
    return {"rows": np.array(len(inputs.parts))}


def scales(inputs: _Inputs) -> Message:
    """Return mean and squared deviations of the columns, rounded, as one group."""
    inputs.executor.check_enough_rows(inputs.parts, inputs.context)
    extent = inputs.parts.extent
    deviation = np.where(extent.largest > extent.least, np.sqrt(inputs.parts.variance()), 0.0)
    rows, mean, deviation = rounded(Spread(extent.rows, extent.mean, deviation))
    return _groups([0], [rows], mean[None], rows * deviation[None] ** 2)


def odd_columns(inputs: _Inputs) -> Message:
    """Return what is odd about the columns beside those of the other sites together."""
    return odd_columns_of(inputs.task, inputs.table, scales(inputs), inputs.context)


def seeds(inputs: _Inputs) -> Message:
    """Return the seeds of `flareclust.core.local.seed_cells`."""
    least, executor = inputs.context.min_count, inputs.executor
    check_enough(inputs.parts, least)
    drawn = kmeans_plusplus(inputs.parts, min(executor.params.k, len(inputs.parts) // least), inputs.rng)
    cells = part_sums.groups_about(inputs.parts, drawn)
    if executor.params.seeds == "rows":
        return {"centroids": drawn[cells.source[cells.counts >= least]]}
    keep = part_sums.may_be_described(inputs.parts, cells, least, ones=inputs.context.ones)
    if not keep.any():
        raise nothing_to_send(least)
    return {"centroids": cells.centroids[keep]}


def update(inputs: _Inputs) -> Message:
    """Return what `flareclust.executors.lloyd.update` does."""
    context = inputs.context
    found, keep = part_sums.lloyd_update(
        inputs.parts, inputs.task.arrays["centroids"], context.least_rows, context.reported, ones=context.ones
    )
    found = found.of(keep)
    return {
        "centroids": found.centroids,
        "counts": found.counts,
        "cluster": found.source,
        "inertia": np.array(found.sse.sum()),
    }


def spread(inputs: _Inputs) -> Message:
    """Return what `flareclust.executors.refinement.RefinedExecutor.spread` does."""
    arrays, context = inputs.task.arrays, inputs.context
    # All rows are in one group, whatever its centroid, where no solutions are sent.
    solutions = unstack(arrays) if "candidates" in arrays else [inputs.parts.extent.mean[None]]
    found, first = [], 0
    for solution in solutions:
        reported = None if context.reported is None else context.reported[first : first + len(solution)]
        found.append(_described(inputs.parts, solution, context, reported, first))
        first += len(solution)
    return {name: np.concatenate([own[name] for own in found]) for name in found[0]}


def _described(parts: Parts, solution: FloatArray, context: SiteContext, reported: Any, first: int) -> Message:
    """Return the groups of one solution with their spread, counted from `first`."""
    least = context.least_rows
    if len(parts) < least:
        return _groups([], [], np.zeros((0, parts.d)), np.zeros((0, parts.d)))
    groups, keep = part_sums.lloyd_update(parts, solution, least, reported, ones=context.ones)
    if not len(groups.source):
        return _groups([], [], groups.centroids, groups.centroids)
    m2 = part_sums.squared_deviations(parts, groups)[keep]
    groups = groups.of(keep)
    if least:
        m2[groups.counts < LEAST_ROWS] = 0.0
    return _groups(groups.source + first, groups.counts, groups.centroids, m2)


def own_clusters(inputs: _Inputs) -> Message:
    """Return the clusters of the site's own k-means that may be sent, with their rows."""
    found, keep = part_kmeans.local_clusters(
        inputs.parts,
        inputs.executor.params.k,
        inputs.rng,
        n_init=inputs.executor.params.n_init,
        min_count=inputs.context.min_count,
    )
    if not keep.any():
        raise nothing_to_send(inputs.context.min_count)
    return {"centroids": found.centroids[keep], "counts": found.counts[keep]}


def own_centroids(inputs: _Inputs) -> Message:
    """Return the centroids alone; a site with fewer rows than k refuses."""
    if len(inputs.parts) < inputs.executor.params.k:
        raise Refusal(f"has fewer rows than k={inputs.executor.params.k}")
    return {"centroids": own_clusters(inputs)["centroids"]}


def assess(inputs: _Inputs) -> Message:
    """Return the sums of the assessment, of each cluster and in all."""
    inputs.executor.check_enough_rows(inputs.parts, inputs.context)
    sums = part_sums.assessed(inputs.parts, inputs.task.arrays["centroids"])
    return sums | {name: np.sum(sums[name]) for name in assessment.TOTALS}


def profile(inputs: _Inputs) -> Message:
    """Return moments of the final clusters in the columns' own units (`flareclust.core.profiles.moments`)."""
    inputs.part.check_described(inputs.task.step, inputs.parts, inputs.context)
    centroids = inputs.task.arrays["centroids"]
    labels = part_sums.nearest(inputs.parts, centroids)
    groups = part_sums.groups_about(inputs.own, centroids, labels)
    least = max(inputs.context.min_count, LEAST_ROWS)
    keep = part_sums.may_be_described(inputs.own, groups, least)
    m2 = part_sums.squared_deviations(inputs.own, groups)[keep]
    groups = groups.of(keep)
    return _groups(groups.source, groups.counts, groups.centroids, m2)


def _groups(cluster: Any, counts: Any, centroids: FloatArray, m2: FloatArray) -> Message:
    """Return the arrays about groups of rows with their spread."""
    numbers = np.asarray(cluster, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    return {"cluster": numbers[0], "counts": numbers[1], "centroids": centroids, "m2": m2}
