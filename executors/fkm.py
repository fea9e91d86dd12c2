"""FKM, the site's side: k-means++ seeds to start with, then Lloyd updates of the global clusters that the site has.

Source: Garst, Reinders, "Federated K-Means Clustering" (2024): Algorithm 1, lines 2-5 and 12-18.

Readings where the paper is open, and deviations from it:
1. Line 4: seeds are rows, which a site does not send. It sends the means of their cells (the rows nearest to each) by
   default, as the published code does, and the seeds themselves with `seeds="rows"`. The k-means++ is greedy, as
   scikit-learn's; the published code keeps the best of several starts, here there is one.
2. A site with fewer than k * min_count rows draws one seed for every `min_count` rows. With K_i = K_g, as line 3 has
   it, a small site would start with clusters of one row, which it may not send.
3. Line 17: `local_iter` updates, one by default (section 2, "Cluster alignment"). Clusters that lose their rows in an
   update before the last are dropped, too. Means and counts are of the same assignment, the last one; the counts of
   the published code are those of the next.
4. The privacy rule of section 2, p = 2, is `min_count`. In addition, clusters of one row repeated and means that are
   rows are not sent.
5. A site that has nothing it may send at the start refuses. One that has nothing in a later round sits it out, with an
   empty reply: other centroids may give it larger clusters, and a refusal would end its part.
6. A row belongs to the nearest centroid of the last round.

For sites with different columns FKM runs, unchanged, on the columns that all have (`FKMCommonExecutor`) or on all columns, with the
federation's mean of a column where a site lacks it (`FKMImputedExecutor`): the baselines of `masked` and `proxy`.
"""

from typing import Annotated, ClassVar

import numpy as np

from flareclust._foundation.settings import OneOf
from flareclust._foundation.typing import Message
from flareclust.core import clusterers, robust
from flareclust.core.lloyd import labels_of, lloyd
from flareclust.core.local import Sendable
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.different import guarded
from flareclust.preparation.settings import CappedParams, ColumnsParams, SeedsParams, Shown
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, MOST_STARTS, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The start of the paper: the k-means of every other round. The other starts are those of distributed k-means++.
WEIGHTED = "weighted"


class FKMRounds(SeedsParams):
    """Parameters of FKM that its forms for different columns share."""

    local_iter: int = site(1, "Lloyd updates in each round.", ge=1, le=MOST_ITERATIONS)
    rounds: int = server(10, "Exchanges after the start, at the most.", ge=1, le=MOST_ROUNDS)
    tol: float = server(
        1e-4, "A round that moves the centroids by less, in units of their spread, is the last; 0 for all rounds.", ge=0
    )
    n_init: int = server(10, "Runs of k-means in each round; the best one counts.", ge=1, le=MOST_STARTS)
    start: Annotated[str, OneOf((WEIGHTED, *clusterers.CLUSTERERS))] = server(
        WEIGHTED, "The k-means of round 0: the paper's, which is weighted, or a clustering that knows no weights."
    )

    @property
    def rule(self) -> robust.Rule:
        """Return how far sites are trusted: fully."""
        return robust.PLAIN


class FKMParams(CappedParams, FKMRounds):
    """Parameters of FKM."""


class FKMCommonParams(ColumnsParams, FKMRounds):
    """Parameters of FKM on the columns that all sites have."""

    shown: ClassVar[Shown] = "common"


class FKMImputedParams(ColumnsParams, FKMRounds):
    """Parameters of FKM on all columns, with means in the place of those that a site lacks."""

    shown: ClassVar[Shown] = "imputed"


#: What sites are asked for, in every round.
_STEPS = {StepName.CLUSTER: Step(Schema(may_be_empty=True, centroids="k d", counts=counts("k", minimum=1)))}


class FKMExecutor(ClusteringExecutor):
    """A site of FKM: sends the means of its clusters and how many rows each has, in every round."""

    params: FKMParams
    steps = _STEPS

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds where the server sent no centroids yet, else update those that the site has rows of."""
        return _sent(clusters(self.params, task, rows))


class FKMCommonExecutor(ClusteringExecutor):
    """A site of FKM on the columns that all sites have."""

    params: FKMCommonParams
    steps = _STEPS

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Do as FKM, without clusters that would give away rows kept back."""
        return _sent(guarded(self.params, clusters(self.params, task, rows), rows, may_be_empty=True))


class FKMImputedExecutor(ClusteringExecutor):
    """A site of FKM on all columns, with means in the place of those that it lacks."""

    params: FKMImputedParams
    steps = _STEPS
    local = FKMCommonExecutor.local


def clusters(params: FKMRounds, task: Task, rows: SiteRows) -> Sendable:
    """Return the clusters of a round that may be sent: cells of seeds (lines 3-4), or updated global clusters (lines 13-17)."""
    rows.check_enough()
    if "centroids" not in task.arrays:
        return rows.seeds(params.k, params.seeds)
    centroids = task.arrays["centroids"]
    for _ in range(params.local_iter - 1):
        nearest = labels_of(rows.X, centroids)
        # From centroids that all have rows, so that no empty one is moved to a row far away.
        used = centroids[np.unique(nearest)]
        moved = lloyd(rows.X, used, max_iter=1, tol=0.0, aborted=rows.aborted).centroids
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return rows.means(centroids)


def _sent(found: Sendable) -> Message:
    return {"centroids": found.centroids, "counts": found.counts}
