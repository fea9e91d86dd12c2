"""What a site computes for a task, without the stages that decide whether it takes part: the method of the task's step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.federation.site import line_of
from flareclust.privacy.policy import Policy
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import Task
from flareclust.testing.tools import step_reply


def computed(
    executor: ClusteringExecutor,
    task: Task,
    data: FloatArray | Table,
    rng: Any,
    aborted: AbortCheck = never_abort,
    context: SiteContext | None = None,
) -> Message:
    """Call the method of the task's step with these arguments."""
    context, table = context or SiteContext(executor.min_count), data if isinstance(data, Table) else Table(data)
    line = line_of(executor, task.step)
    owner = executor if line.phase is None else line.phase(executor.params, executor)
    reply: Message = getattr(owner, line.step.method)(task, SiteRows(table, rng, aborted, context))
    return reply


def replied(executor: ClusteringExecutor, task: Task, table: Table, policy: Policy | None = None) -> Message:
    """Return what the executor computes from a table, at a site with this policy; the rows are taken as groups."""
    context = SiteContext(executor.min_count)
    if policy is not None:
        minimum = max(executor.min_count, policy.min_count)
        context = replace(context, min_count=minimum, round_counts=policy.round_counts, grouped=True)
    reply = step_reply(executor, task, table, context)
    return {name: reply[name] for name in executor.step(task.step).schema.fields}


def merged(
    aggregator: ClusteringAggregator, round_: Round[Any], replies: Mapping[str, Message], seed: int = 0
) -> Round[Any]:
    """Return what the aggregator's method of the round's step makes of replies."""
    method = aggregator.executor.steps[round_.step].merge
    after: Round[Any] = getattr(aggregator, method)(round_, replies, np.random.default_rng(seed))
    return after
