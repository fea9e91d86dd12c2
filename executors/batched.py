"""How one executor answers for many small sites at once, in the engine devices.

Beside the method of a step, which says what one site sends, a class may have a method of that name and `_batch`, which computes
the same for many sites. It returns None for settings that it does not cover.
"""

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust.core.devices.ragged import Entries, Ragged, nothing_computed
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.privacy.context import SiteContext
from flareclust.protocol.task import Task


def batched_method(executor: type[ClusteringExecutor], step: str) -> str | None:
    """Return the method that computes a step for many sites: that of the class which has the step's own method, or None."""
    method = executor.step(step).method
    owner = next((base for base in executor.__mro__ if method in vars(base)), None)
    of_many = f"{method}_batch"
    return of_many if owner is not None and of_many in vars(owner) else None


def answers_of_many(executor: ClusteringExecutor, task: Task, devices: Ragged) -> Entries:
    """Answer a task from the rows of many sites without policies, as `ClusteringExecutor.answer` does for each.

    What `answer` checks beforehand holds for all sites computed here; the others have the size -1. Their random streams are
    those of their `keys`; the task's `site` says nothing.
    """
    method, table, single = batched_method(type(executor), task.step), Table(devices.values), executor._without_rows()
    if single.gaps:  # rows may lack cells, which the loops do not know
        return nothing_computed(devices.m)
    try:
        viewed, seen = single.viewed(task, table)
        if method is None or seen.X is not table.X or viewed.arrays.keys() != task.arrays.keys():
            return nothing_computed(devices.m)
        single._check_task(viewed, seen.X)
        found: Entries | None = getattr(single, method)(viewed, devices, SiteContext(executor.min_count))
    except (Refusal, BadMessage):  # each site says it by itself
        found = None
    return found or nothing_computed(devices.m)
