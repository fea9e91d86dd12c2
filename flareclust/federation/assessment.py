"""What follows the rounds: sums over the rows nearest to the final centroids, and labels, which stay at the site."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, PLACED, StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor


class Assessment(Phase):
    """Asks for the sums from which label-free metrics are computed; each site then labels its rows."""

    steps = MappingProxyType({StepName.ASSESS: Step(ASSESSMENT, "assess", summed=True)})

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the step, but of algorithms under differential privacy, whose sums are noisy."""
        return {} if executor.private else cls.steps

    def assess(self, task: Task, rows: SiteRows) -> Message:
        """Return the sums over the rows (n, d) by final centroid."""
        rows.check_sums()
        return rows.assessed(task.arrays["centroids"])


class Placing(Phase):
    """Asks late sites to label their rows by a finished result; the server of such a job is a `PlacedAggregator`."""

    steps = MappingProxyType({StepName.PLACE: Step(PLACED, "place", "merge")})

    def place(self, task: Task, rows: SiteRows) -> Message:
        """Return how many rows (n, d) are placed; with differential privacy 0, as their number is private too."""
        return {"rows": np.array(0 if rows.private else len(rows))}
