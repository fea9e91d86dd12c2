"""Whether sites have the same columns: hashes of the columns' names, in their order, before anything else is asked (`compare`)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from flareclust._foundation.typing import Message
from flareclust.preparation import alignment
from flareclust.preparation.settings import NamesParams, ScaledParams
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor


class ColumnNames(Phase):
    """Asks for hashes of the columns' names; the schema refuses the sites at odds with most."""

    steps = MappingProxyType(
        {StepName.NAMES: Step(alignment.NAMES_OF_COLUMNS, "names", "agreed", as_is=True, public=True)}
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the step where an algorithm's jobs can compare columns."""
        return cls.steps if "compare" in executor.params_class().model_fields else {}

    def names(self, task: Task, rows: SiteRows) -> Message:
        """Return hashes of the names of the columns."""
        return alignment.hashed_names(rows.table)

    def begin(self) -> Round[Any] | None:
        """Ask where the job compares names."""
        compares = isinstance(self.params, NamesParams | ScaledParams) and self.params.compare != "none"
        return Round(step=StepName.NAMES) if compares else None

    def agreed(self, round_: Round[Any], replies: Mapping[str, Message], rng: object) -> Round[Any]:
        """End: the schema has refused the sites at odds."""
        return Round(done=True)
