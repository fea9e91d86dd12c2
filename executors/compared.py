"""The site's side of comparing columns: a job with `compare` first asks for hashes of their names."""

import numpy as np

from flareclust._foundation.typing import AbortCheck, Message
from flareclust.data.tables import Table
from flareclust.executors import partwise
from flareclust.executors.base import ClusteringExecutor
from flareclust.features.agreement import NAMES_OF_COLUMNS, hashed_names
from flareclust.privacy.context import SiteContext
from flareclust.protocol.steps import Step
from flareclust.protocol.task import NAMES, Task


class ComparedExecutor(ClusteringExecutor):
    """A site that reports its columns and their order where the job asks for them."""

    steps = {NAMES: Step(NAMES_OF_COLUMNS, "names", named=True, public=True, parameter="compare")}

    @partwise.computed_by(partwise.names)
    def names(
        self, task: Task, table: Table, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext
    ) -> Message:
        """Return hashes of the names of the columns."""
        return hashed_names(table)
