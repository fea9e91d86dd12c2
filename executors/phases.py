"""Phases: what a job asks sites for beside the steps of its algorithm, each with methods of its own."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from flareclust._foundation.typing import Message
from flareclust.executors import partwise
from flareclust.features import alignment
from flareclust.privacy.context import SiteRows
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor


class Phase:
    """A part of a job beside its algorithm; methods are called as those of an algorithm, (task, rows) -> arrays.

    Attributes:
        steps: what sites are asked for, and which method answers.
        site: the site's side of the algorithm.
    """

    steps: ClassVar[Mapping[str, Step]]

    def __init__(self, site: "ClusteringExecutor") -> None:
        self.site = site


class ColumnNames(Phase):
    """Hashes of the columns' names in their order, where the job asks for them (`compare`)."""

    steps = MappingProxyType(
        {StepName.NAMES: Step(alignment.NAMES_OF_COLUMNS, "names", named=True, public=True, parameter="compare")}
    )

    @partwise.computed_by(partwise.names)
    def names(self, task: Task, rows: SiteRows) -> Message:
        """Return hashes of the names of the columns."""
        return alignment.hashed_names(rows.table)
