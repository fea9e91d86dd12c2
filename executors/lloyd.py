"""Distributed Lloyd, the site's side: seeds once, then per round the mean and the number of the rows of each cluster.

Source: Lloyd (1982), Least squares quantization in PCM; in rounds over sites as the baseline "distributed k-means" of
Dennis, Li, Smith (2021), section 4.2.

Readings and deviations:
1. The centroids that a site returns are the means of its rows nearest to each centroid that it was sent, with their
   numbers. Weighted by these they add up to the update on the pooled rows.
2. A site's group of fewer than `min_count` rows, or whose mean is a row, is not sent, and its rows do not take part in
   this round; one of one row repeated is sent with rows of another (`flareclust.core.local`). Lloyd's algorithm has no
   such rule. A site with no other groups sends an empty reply, and stays.
3. The inertia that comes with an update is of the rows that take part, in groups of three and more: with the others, the sums
   of several rounds would be equations for a row that is alone near a centroid, and two rows follow from mean and inertia.
4. The start: unless the server has one of its own, each site draws k seeds by greedy k-means++ and sends the means of
   their cells (the rows nearest to each), or with `seeds="rows"` the seeds themselves, which are rows. A site with
   fewer than `min_count` rows per seed draws fewer.
5. With secure sums no seeds are sent. The start is made from totals (`flareclust.aggregators.lloyd`), for which sites also
   sum up squared deviations by cluster and column, masked as all else.
"""

from typing import Any

from pydantic import ValidationInfo, field_validator

from flareclust._foundation.typing import Message
from flareclust.core import clusterers
from flareclust.core.rounds import check_start
from flareclust.federation import refinement
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import MISSING_CELLS, MetricParams, Missing, SeedsParams, TrimParams
from flareclust.protocol.params import MOST_ROUNDS, server
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: What sites are asked for: seeds, updates, and the spread of clusters that are to be split or joined.
STEPS = {StepName.CLUSTER: Step(Schema(centroids="k d"), jobs="plain"), **refinement.STEPS}


class UpdatesParams(TrimParams, SeedsParams):
    """Parameters of algorithms whose clusters move in updates, from the sites' seeds or a given start."""

    rounds: int = server(100, "Updates at the most; the exchange of the seeds is not counted.", ge=1, le=MOST_ROUNDS)
    tol: float = server(
        1e-4, "Largest movement in a round after which to stop, without unit; 0 goes on until nothing moves.", ge=0
    )
    start: str | list[list[float]] = server(
        "kmeans",
        "How the sites' seeds are clustered (kmeans, spectral or convex), or k centroids as k lists of d numbers.",
    )

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: Any, known: ValidationInfo) -> Any:
        return check_start(value, known.data["k"], clusterers.CLUSTERERS) if "k" in known.data else value


class LloydParams(UpdatesParams, MetricParams):
    """Parameters of distributed Lloyd."""

    missing: Missing = MISSING_CELLS

    split_merge: int | None = server(
        None,
        "Attempts at most to leave a local optimum after the last update, by splitting one cluster and joining two; None for 6 with secure_sums and 1 for k=2 where no start is given, else for 0.",
        ge=0,
        le=MOST_ROUNDS,
    )


class LloydExecutor(ClusteringExecutor):
    """A site of distributed Lloyd: sends seeds, and then its part of each update."""

    params: LloydParams
    steps = STEPS
    totals_only = True

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds of the rows (n, d): `centroids` (k, d)."""
        return {"centroids": rows.settled(self.params.k).seeds(self.params.k, self.params.seeds).centroids}

    update = staticmethod(refinement.update)
    spread = staticmethod(refinement.spread)
