"""What a site computes for a task, without what stands around the algorithm: the method of the task's step."""

from typing import Any

from flareclust._foundation.typing import AbortCheck, FloatArray, Message, never_abort
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.privacy.policy import Policy
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import Task


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
    return getattr(executor.part(task.step), executor.step(task.step).method)(
        task, SiteRows(table, rng, aborted, context)
    )


def replied(executor: ClusteringExecutor, task: Task, table: Table, policy: Policy | None = None) -> Message:
    """Return what the executor computes from a table, at a site with this policy; the rows are taken as groups."""
    context = SiteContext(executor.min_count)
    context = context if policy is None else context.under(policy)
    return executor.compute(task, executor.step(task.step), table, context, never_abort)
