"""Distributed k-means++, the user's side: seeds of the own rows.

Source: Armacki, Kar, "Toward Understanding the Improved Robustness to Initialization in Distributed Clustering":
Algorithm 2, lines 1-4, and Algorithm 1.

Readings where the paper is open, and deviations from it:
1. Lines 2-3: seeds are rows, which a site does not send. It sends the means of their cells, the rows nearest to each;
   the seeds themselves with `seeds="rows"`, which is the paper's letter.
2. Algorithm 1 draws each seed once. By default each is the best of 2 + floor(log k) draws (greedy k-means++); with
   `greedy=False` it is the paper's. Lemma 1 is about the paper's.
3. Not in the paper: the number of rows behind each seed is sent. The server does not use it for the centroids.
4. Not in the paper: clusters of fewer than `min_count` rows, of one row repeated, or whose mean is a row are not sent
   (with `seeds="rows"` the first of these three). A site with fewer than k * min_count rows draws one seed for every
   `min_count` rows.
"""

from typing import Annotated

from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Message
from flareclust.core import clusterers
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ScaledParams, SeedsParams
from flareclust.protocol.params import server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class DKMPPParams(SeedsParams, ScaledParams):
    """Parameters of distributed k-means++."""

    greedy: bool = site(True, "Whether each seed is the best of 2 + log k draws; false is the paper's k-means++.")
    clusterer: Annotated[str, OneOf(clusterers.CLUSTERERS)] = server("kmeans", "What clusters the seeds.")


class DKMPPExecutor(ClusteringExecutor):
    """A user of distributed k-means++: sends k seeds, or the means of their cells, and how many rows each has."""

    params: DKMPPParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k")))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Run Algorithm 1 and keep what may be sent."""
        cells = rows.seeds(self.params.k, self.params.seeds, None if self.params.greedy else 1)
        return {"centroids": cells.centroids, "counts": cells.counts}
