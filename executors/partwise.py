"""How an executor answers from rows that lie in parts on the site's cluster (`flareclust.sites.cluster`).

Replies are those of the executor's own method for all rows, but for rounding: this module has a second form of some of them, by
the method that it stands for. An algorithm whose method has none is refused, so one that overrides a method is as well.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core import part_kmeans, part_sums
from flareclust.core.assessment import TOTALS
from flareclust.core.disclosure import LEAST_ROWS, check_enough, nothing_to_send
from flareclust.core.part_seeds import kmeans_plusplus
from flareclust.core.parts import Parts, View
from flareclust.core.scaling import Spread, rounded
from flareclust.data.tables import Table
from flareclust.evaluation.scores import unstack
from flareclust.executors.assessing import Assessing
from flareclust.executors.base import ClusteringExecutor
from flareclust.executors.cosine import EUCLIDEAN, MetricExecutor
from flareclust.executors.lloyd import LloydExecutor, UpdatesExecutor
from flareclust.executors.mavg import MAvgExecutor
from flareclust.executors.parameters import SCALE
from flareclust.executors.pooled import PooledExecutor
from flareclust.executors.profiles import Profiling
from flareclust.executors.refinement import RefinedExecutor
from flareclust.executors.scaled import ScaledExecutor
from flareclust.executors.stages import RowStage, SchemaStage
from flareclust.features.agreement import hashed_names
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.stage import MaskingStage
from flareclust.privacy.secure_aggregation.totals import check_range
from flareclust.privacy.session import SiteSession
from flareclust.privacy.stages import SiteExchange
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.steps import COUNTED
from flareclust.protocol.task import ASSESS, CLUSTER, KEYS, PLACE, Answer, Task
from flareclust.sites.cluster import POLICED, WHERE, ClusterTable

#: The algorithms whose sites can compute on a cluster, for refusals.
ALGORITHMS = ("lloyd", "mavg", "pooled")


class _Asked(NamedTuple):
    """What a step is computed from.

    Attributes:
        executor: whose step it is.
        task: as the algorithm sees it.
        parts: the rows, as the algorithm sees them.
        own: the rows as they are.
        table: the extremes of the rows as they are, with the names of the columns.
        rng: the generator of job, round and site.
        context: the site's conditions.
    """

    executor: Any
    task: Task
    parts: Parts
    own: Parts
    table: Table
    rng: np.random.Generator
    context: SiteContext


def answer_of_parts(
    executor: ClusteringExecutor, task: Task, rows: ClusterTable, aborted: AbortCheck
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
    reply = _key(executor, exchange, parts) if task.step == KEYS else _computed(single, exchange, parts)
    rows.parts.check_unchanged()
    for stage in reversed(stages):
        reply = stage.after(exchange, reply)
    answer = Answer({**reply, SECONDS: np.array(perf_counter() - started)})
    placed = _labels(_asked(single, exchange, parts)) if task.step in (ASSESS, PLACE) else None
    return answer, placed


def check_settings(executor: ClusteringExecutor, site: SiteSession | None) -> None:
    """Raise Refusal where an algorithm, its settings or the site's policy need all rows in one process."""
    if site is not None:
        raise Refusal(POLICED)
    kind, first = type(executor), executor.steps.get(CLUSTER)
    if first is None or getattr(kind, first.method) not in PARTWISE or kind.labels not in _LABELS:
        raise Refusal(
            f"{WHERE}, which can run {', '.join(ALGORITHMS)}; take one of these, or take compute out of the site's configuration"
        )
    for name, possible in _SETTINGS.items():
        if getattr(executor.params, name, possible[0]) not in possible:
            raise Refusal(
                f"{WHERE}, which takes {name}={' or '.join(map(str, possible))} only; set that, or take compute out of the "
                "site's configuration"
            )


def _key(executor: ClusteringExecutor, exchange: SiteExchange, parts: Parts) -> Message:
    extremes = exchange.seen.X
    executor._check_enough(parts, exchange.context)
    check_range(extremes, cells=len(parts) * parts.d)
    return executor._sums.key(exchange.task.site, extremes, private=True)  # the range is checked already


def _computed(executor: ClusteringExecutor, exchange: SiteExchange, parts: Parts) -> Message:
    """Return the reply of the step's method over parts."""
    step = exchange.step
    compute = PARTWISE.get(getattr(type(executor), step.method))
    if compute is None:
        raise Refusal(f"{WHERE}, where the step {exchange.task.step} cannot be computed")
    reply = compute(_asked(executor, exchange, parts))
    return {name: reply[name] for name in COUNTED.fields} if step.schema is COUNTED else reply


def _asked(executor: ClusteringExecutor, exchange: SiteExchange, parts: Parts) -> _Asked:
    """Return what a step is computed from, after the checks of the task."""
    task, table = executor.viewed(exchange.task, exchange.seen)
    view = None
    if table is not exchange.seen and "deviation" in exchange.task.arrays:  # the task has said how to scale
        view = View(exchange.task.arrays["mean"], exchange.task.arrays["deviation"])
    executor._check_task(task, table.X)
    rng = stream(executor.seed, task.round, task.site)
    return _Asked(executor, task, parts.seen(view), parts, exchange.seen, rng, exchange.context)


def _labels(asked: _Asked) -> Iterator[int]:
    """Give the nearest final centroid of each row, part by part."""
    found = asked.parts.in_turn(part_sums.labels_of, shared=(asked.task.arrays["centroids"],))
    return chain.from_iterable(own.tolist() for own in found)


def _scales(asked: _Asked) -> Message:
    asked.executor._check_enough(asked.parts, asked.context)
    extent = asked.parts.extent
    deviation = np.where(extent.largest > extent.least, np.sqrt(asked.parts.variance()), 0.0)
    rows, mean, deviation = rounded(Spread(extent.rows, extent.mean, deviation))
    return _groups([0], [rows], mean[None], rows * deviation[None] ** 2)


def _seeds(asked: _Asked) -> Message:
    """Return the seeds of `flareclust.core.local.seed_cells`."""
    least, executor = asked.context.min_count, asked.executor
    check_enough(asked.parts, least)
    drawn = kmeans_plusplus(asked.parts, min(executor.k, len(asked.parts) // least), asked.rng)
    cells = part_sums.groups_about(asked.parts, drawn)
    if executor.params.seeds == "rows":
        return {"centroids": drawn[cells.source[cells.counts >= least]]}
    keep = part_sums.may_be_described(asked.parts, cells, least, ones=asked.context.ones)
    if not keep.any():
        raise nothing_to_send(least)
    return {"centroids": cells.centroids[keep]}


def _update(asked: _Asked) -> Message:
    """Return what `flareclust.executors.lloyd.update` does."""
    context = asked.context
    found, keep = part_sums.lloyd_update(
        asked.parts, asked.task.arrays["centroids"], context.least_rows, context.reported, ones=context.ones
    )
    found = found.of(keep)
    return {
        "centroids": found.centroids,
        "counts": found.counts,
        "cluster": found.source,
        "inertia": np.array(found.sse.sum()),
    }


def _spread(asked: _Asked) -> Message:
    """Return what `flareclust.executors.refinement.RefinedExecutor.spread` does."""
    arrays, context = asked.task.arrays, asked.context
    # All rows are in one group, whatever its centroid, where no solutions are sent.
    solutions = unstack(arrays) if "candidates" in arrays else [asked.parts.extent.mean[None]]
    found, first = [], 0
    for solution in solutions:
        reported = None if context.reported is None else context.reported[first : first + len(solution)]
        found.append(_described(asked.parts, solution, context, reported, first))
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


def _own_clusters(asked: _Asked) -> Message:
    """Return the clusters of the site's own k-means that may be sent, with their rows."""
    found, keep = part_kmeans.local_clusters(
        asked.parts,
        asked.executor.k,
        asked.rng,
        n_init=asked.executor.params.n_init,
        min_count=asked.context.min_count,
    )
    if not keep.any():
        raise nothing_to_send(asked.context.min_count)
    return {"centroids": found.centroids[keep], "counts": found.counts[keep]}


def _own_centroids(asked: _Asked) -> Message:
    if len(asked.parts) < asked.executor.k:
        raise Refusal(f"has fewer rows than k={asked.executor.k}")
    return {"centroids": _own_clusters(asked)["centroids"]}


def _assess(asked: _Asked) -> Message:
    asked.executor._check_enough(asked.parts, asked.context)
    sums = part_sums.assessed(asked.parts, asked.task.arrays["centroids"])
    return sums | {name: np.sum(sums[name]) for name in TOTALS}


def _profile(asked: _Asked) -> Message:
    """Return moments of the final clusters in the columns' own units (`flareclust.core.profiles.moments`)."""
    asked.executor.check_described(asked.task.step, asked.parts, asked.context)
    centroids = asked.task.arrays["centroids"]
    labels = part_sums.nearest(asked.parts, centroids)
    groups = part_sums.groups_about(asked.own, centroids, labels)
    least = max(asked.context.min_count, LEAST_ROWS)
    keep = part_sums.may_be_described(asked.own, groups, least)
    m2 = part_sums.squared_deviations(asked.own, groups)[keep]
    groups = groups.of(keep)
    return _groups(groups.source, groups.counts, groups.centroids, m2)


def _groups(cluster: Any, counts: Any, centroids: FloatArray, m2: FloatArray) -> Message:
    """Return the arrays about groups of rows with their spread."""
    numbers = np.asarray(cluster, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    return {"cluster": numbers[0], "counts": numbers[1], "centroids": centroids, "m2": m2}


#: What computes a step over parts, by the method that computes it over all rows.
PARTWISE: MappingProxyType[Any, Callable[[_Asked], Message]] = MappingProxyType(
    {
        ScaledExecutor.names: lambda asked: hashed_names(asked.table),
        ScaledExecutor.scales: _scales,
        LloydExecutor.local: _seeds,
        PooledExecutor.local: _own_clusters,
        MAvgExecutor.local: _own_centroids,
        UpdatesExecutor.update: _update,
        RefinedExecutor.spread: _spread,
        Assessing.assess: _assess,
        Assessing.place: lambda asked: {"rows": np.array(len(asked.parts))},
        Profiling.profile: _profile,
    }
)

#: What settings must be over parts, for executors that have them.
_SETTINGS: MappingProxyType[str, tuple[Any, ...]] = MappingProxyType(
    {
        "metric": (EUCLIDEAN,),
        "missing": ("refuse",),
        "scale": SCALE[:2],
        "trim_rows": (0.0,),
        "small_clusters": ("withhold",),
    }
)

#: The labels that `_labels` gives.
_LABELS = (ClusteringExecutor.labels, MetricExecutor.labels)
