"""How many rows of the sites' tables took no part, since a cell is missing.

Asked at the end, of jobs whose tables are read by a schema, as only these leave out rows; not under differential privacy, where even
the number of rows is private. Rows whose ids a site has withdrawn are in neither number. Under a policy each number is a multiple of
its floor, and fewer rows than that count as none. Their sum is not sent: less the rows that took part, which the server knows, it
would be the number that is withheld.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.preparation.settings import TableParams
from flareclust.protocol.params import Params
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: Rows of a site's table that took part, and those with a missing cell, which were left out.
READ = Schema(kept=counts(""), gaps=counts(""))


class ReadRows(Phase):
    """Asks at the end how many rows of the sites' tables took no part, of jobs whose tables are read by a schema."""

    steps = MappingProxyType({StepName.ROWS_READ: Step(READ, "rows_read", summed=True, as_is=True)})

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the step, but of algorithms under differential privacy, and of those that read no tables."""
        return (
            cls.steps
            if issubclass(executor.params_class(), TableParams) and not executor.private
            else MappingProxyType({})
        )

    def rows_read(self, task: Task, rows: SiteRows) -> Message:
        """Return how many rows of the table took part, and how many were left out."""
        read, context = rows.table.rows_read, rows.context
        floor = -(-context.min_count // context.round_counts) * context.round_counts if context.grouped else 1
        numbers = {"kept": read.of - read.left_out, "gaps": read.gaps - read.withdrawn_gaps}
        return {name: np.array(number - number % floor) for name, number in numbers.items()}


def reading_steps(params: Params) -> tuple[str, ...]:
    """Return the step that a job with these settings asks at the end; none without a schema."""
    return (StepName.ROWS_READ,) if isinstance(params, TableParams) and params.table_schema else ()
