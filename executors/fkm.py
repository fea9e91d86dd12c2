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
from flareclust._foundation.typing import AbortCheck, FloatArray, Message
from flareclust.core import clusterers, robust
from flareclust.core.devices.ragged import Entries, Ragged
from flareclust.core.devices.steps import clusters_of_each, fits, updates_of_each
from flareclust.core.disclosure import check_enough
from flareclust.core.lloyd import assign, lloyd
from flareclust.core.local import Sendable, lloyd_update
from flareclust.executors.described import DescribedExecutor, View
from flareclust.executors.scaled import ScaledExecutor
from flareclust.preparation.settings import CappedParams, ColumnsParams, SeedsParams
from flareclust.privacy.context import SiteContext, SiteRows
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, MOST_STARTS, server, site
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The start of the paper: the k-means of every other round. The other starts are those of distributed k-means++.
WEIGHTED = "weighted"


class _FKMRounds(SeedsParams):
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


class FKMParams(CappedParams, _FKMRounds):
    """Parameters of FKM."""


class FKMExecutor(ScaledExecutor):
    """A site of FKM: sends the means of its clusters and how many rows each has, in every round."""

    params: FKMParams

    steps = {StepName.CLUSTER: Step(Schema(may_be_empty=True, centroids="k d", counts=counts("k", minimum=1)))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Draw seeds where the server sent no centroids yet, else update those that the site has rows of."""
        clusters = self.clusters(task, rows)
        return {"centroids": clusters.centroids, "counts": clusters.counts}

    def local_batch(self, task: Task, devices: Ragged, context: SiteContext) -> Entries | None:
        """Do as `local` for many sites; None for settings that are not for many."""
        if self.params.seeds != "means" or self.params.local_iter > 1 or not fits(self.params.k, devices.d):
            return None
        if "centroids" not in task.arrays:
            return clusters_of_each(devices, "cells", self.params.seed, task.round, self.params.k, context.min_count)
        found = updates_of_each(devices, task.arrays["centroids"], context.min_count)
        fields = {name: value for name, value in found.fields.items() if name != "cluster"}
        return Entries(fields, {}, found.sizes)

    def clusters(self, task: Task, rows: SiteRows) -> Sendable:
        """Return the clusters of this round that are sent."""
        check_enough(rows.X, rows.context.min_count)
        if "centroids" not in task.arrays:
            return self.draw_seeds(rows, self.params.seeds)
        return local_update(
            rows.X, task.arrays["centroids"], self.params.local_iter, rows.context.min_count, rows.aborted
        )


def local_update(
    data: FloatArray, centroids: FloatArray, local_iter: int, min_count: int, aborted: AbortCheck
) -> Sendable:
    """Run `local_iter` Lloyd updates on rows (n, d) from the global centroids (k, d) that have any: lines 13-17.

    Returns:
        The means of the last update that may be sent, and the number of rows that each is the mean of.

    Raises:
        Refusal: the site has fewer than `min_count` rows.
        Aborted: `aborted()` became true.
    """
    for _ in range(local_iter - 1):
        nearest, _ = assign(data, centroids)
        # From centroids that all have rows, so that no empty one is moved to a row far away.
        moved = lloyd(data, centroids[np.unique(nearest)], max_iter=1, tol=0.0, aborted=aborted).centroids
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return lloyd_update(data, centroids, min_count)


class FKMPartialParams(ColumnsParams, _FKMRounds):
    """Parameters of FKM for different columns."""


class FKMCommonExecutor(DescribedExecutor, FKMExecutor):
    """A site of FKM on the columns that all sites have."""

    params: FKMPartialParams  # type: ignore[assignment]  # FKM's, without those of robust

    view: ClassVar[View] = "common"

    def clusters(self, task: Task, rows: SiteRows) -> Sendable:
        """Return the clusters of FKM, without those that would give away rows kept back."""
        clusters = super().clusters(task, rows)
        return self.guarded(clusters, rows.X, rows.context, may_be_empty=True)


class FKMImputedExecutor(FKMCommonExecutor):
    """A site of FKM on all columns, with means in the place of those that it lacks; the arguments are the same."""

    view: ClassVar[View] = "imputed"
