"""What follows the rounds: sums over the rows nearest to the final centroids, and labels, which stay at the site."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.display import all_of
from flareclust._foundation.typing import Message
from flareclust.evaluation.batch_effects import own_clusters
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, whole
from flareclust.protocol.sizes import policy_sizes
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, PLACED, StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

_log = logging.getLogger(__name__)

#: What a site answers to `own_clusters`: 1 for each of the k final clusters that is nearly all its own, else 0.
_OWN = Schema(own=whole("k"))

#: What asks for `own_clusters` beside the final centroids: rows of each cluster at all sites.
_SIZES = Schema(sizes=counts("k"))


class Assessment(Phase):
    """Asks for the sums from which label-free metrics are computed; each site then labels its rows."""

    steps = MappingProxyType(
        {
            StepName.ASSESS: Step(ASSESSMENT, "assess", summed=True),
            StepName.OWN_CLUSTERS: Step(_OWN, "own_clusters", jobs="secure"),
        }
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the steps, but of algorithms under differential privacy, whose sums are noisy."""
        return {} if executor.private else cls.steps

    def assess(self, task: Task, rows: SiteRows) -> Message:
        """Return the sums over the rows (n, d) by final centroid."""
        rows.check_sums()
        return rows.assessed(task.arrays["centroids"])

    def own_clusters(self, task: Task, rows: SiteRows) -> Message:
        """Return which final clusters are nearly all the site's own by the numbers of all sites' rows, and log it."""
        rows.check_sums()
        sent = {name: value for name, value in task.arrays.items() if name in _SIZES.fields}
        _SIZES.check(sent, policy_sizes(task.step, task.arrays))
        own = own_clusters(rows.assessed(task.arrays["centroids"])["counts"], task.arrays["sizes"])
        if own.any():
            which = all_of(np.flatnonzero(own).tolist())
            _log.warning("%s: nearly all rows of cluster %s are of this site, and most rows of it", task.site, which)
        return {"own": own.astype(np.int64)}


class Placing(Phase):
    """Asks late sites to label their rows by a finished result; the server of such a job is a `PlacedAggregator`."""

    steps = MappingProxyType({StepName.PLACE: Step(PLACED, "place", "merge")})

    def place(self, task: Task, rows: SiteRows) -> Message:
        """Return how many rows (n, d) are placed; with differential privacy 0, as their number is private too."""
        return {"rows": np.array(0 if rows.private else len(rows))}
