"""FFCM, the site's side: fuzzy c-means on the site's rows, from centroids that all sites start with.

Source: Stallmann, Wilbik, "Towards Federated Clustering: A Federated Fuzzy c-Means Algorithm (FFCM)" (2022); as a
baseline in Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024), section 6. Local algorithm: Bezdek, Ehrlich,
Full, "FCM: The Fuzzy c-Means Clustering Algorithm" (1984).

Readings where the papers are open, and deviations from them:
1. The common start. "k random data points" are rows, which a site does not send. It draws k rows at random and sends
   the means of their cells (the rows nearest to each) with their numbers of rows; the server draws k of all. The published
   code starts at uniform random numbers instead, which asks for scaled data. A site with fewer than k * min_count rows
   draws one row for every `min_count` rows.
2. A local run ends after `max_iter` iterations (30), or when no membership changed by more than `tol` (1e-3). The
   published code runs to convergence.
3. The support of a centroid, its weight in v1, is the sum of u^m, with the memberships u that the centroid is the mean
   of: so v1 with `max_iter=1` is fuzzy c-means on the pooled rows. `support="u"` takes the sum of u, as published.
4. Not in the papers: what may be sent. A fuzzy centroid is a mean of all rows, but it can be as good as a single one.
   See `_describable_centroids`. The reply says which of the server's centroids came back.
5. A row belongs to the cluster in which its membership is largest, which is the one with the nearest centroid. The
   memberships themselves stay at the site; `flareclust.memberships` computes them from the result.
"""

from typing import Any, Literal

import numpy as np
from pydantic import ValidationInfo, field_validator

from flareclust._foundation.errors import Aborted, Refusal
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, Message
from flareclust.core import fuzzy
from flareclust.core.disclosure import describable, nothing_to_send
from flareclust.core.group_kernels import rows_unlike
from flareclust.core.local import Sendable, lloyd_update, seed_cells
from flareclust.core.rounds import check_start
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import ScaledParams
from flareclust.protocol.params import MOST_ITERATIONS, MOST_ROUNDS, MOST_STARTS, both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, counts, index, weights
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

#: The step that follows the start.
FUZZY = "fuzzy"

_STARTS = ("random", "k-means++")

#: Slack for the rounding of sums of equal weights.
_ALMOST = 1 - 1e-9


class FFCMParams(ScaledParams):
    """Parameters of FFCM."""

    fuzzifier: float = site(2.0, "m; near 1 this is k-means, and large values make all memberships equal.", gt=1)
    max_iter: int = site(30, "Iterations of a local run, at the most.", ge=1, le=MOST_ITERATIONS)
    tol: float = site(1e-3, "A local run ends when no membership changed by more.", ge=0)
    support: Literal["um", "u"] = site("um", "The weight of a centroid in v1: the sum of u^m, or of u.")
    start: str | list[list[float]] = both(
        "random",
        "Seeds of the cells that start the federation (random, k-means++), or k centroids as k lists of d numbers.",
    )
    version: Literal["v1", "v2"] = server("v2", "Whether the server averages (v1) or clusters (v2).")
    rounds: int = server(1, "Exchanges of fuzzy centroids.", ge=1, le=MOST_ROUNDS)
    n_init: int = server(10, "Runs of k-means in v2.", ge=1, le=MOST_STARTS)
    weighted: bool = server(False, "Whether a centroid counts as much as its support in v2.")

    @field_validator("start", mode="before")
    @classmethod
    def _start(cls, value: Any, known: ValidationInfo) -> Any:
        return check_start(value, known.data["k"], _STARTS) if "k" in known.data else value


class FFCMExecutor(ClusteringExecutor):
    """A site of FFCM: sends means of cells to start with, then fuzzy centroids and how much weight each has."""

    params: FFCMParams
    steps = {
        StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k"))),
        FUZZY: Step(Schema(centroids="k d", support=weights("k"), cluster=index("k", less_than="K")), "fuzzy"),
    }

    @classmethod
    def warm_up(cls) -> None:
        """Compile the fuzzy kernels beside the others."""
        super().warm_up()
        fuzzy.warm_up()

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Return cells to start from."""
        rows.check_enough()
        cells = _start_cells(
            rows.X, self.params.k, str(self.params.start), rows.context.min_count, rows.rng, rows.aborted
        )
        return {"centroids": cells.centroids, "counts": cells.counts}

    def fuzzy(self, task: Task, rows: SiteRows) -> Message:
        """Run fuzzy c-means from the centroids that came."""
        rows.check_enough()
        p, start, min_count = self.params, task.arrays["centroids"], rows.context.min_count
        clustering = fuzzy.fuzzy_cmeans(
            rows.X, start, p.fuzzifier, max_iter=p.max_iter, tol=p.tol, aborted=rows.aborted
        )
        sendable = np.flatnonzero(_describable_centroids(rows.X, clustering, p.fuzzifier, min_count))
        if not len(sendable):
            raise Refusal(f"has no fuzzy centroid of at least min_count={min_count} rows, so nothing it may send")
        support = clustering.sum_um if p.support == "um" else clustering.sum_u
        return {"centroids": clustering.centroids[sendable], "support": support[sendable], "cluster": sendable}


def _start_cells(
    data: FloatArray, k: int, start: str, min_count: int, rng: np.random.Generator, aborted: AbortCheck
) -> Sendable:
    """Return the means of the cells of at most k rows (n, d) drawn at random, or by k-means++, and their counts."""
    if aborted():
        raise Aborted("stopped before the start was drawn")
    if start == "k-means++":
        return seed_cells(data, k, rng, min_count=min_count, aborted=aborted)
    k = min(k, len(data) // min_count)
    cells = lloyd_update(data, data[rng.choice(len(data), size=k, replace=False)], min_count)
    if not len(cells.counts):
        raise nothing_to_send(min_count)
    return cells


def _describable_centroids(
    data: FloatArray, found: fuzzy.FuzzyClustering, fuzzifier: float, min_count: int
) -> BoolArray:
    """Return which of the k fuzzy centroids may leave the site.

    The rows (n, d) of largest membership must be a cluster that may be described (`flareclust.core.disclosure`). Three
    more rules ensure that the centroid does not describe fewer rows than that: it equals no row of any cluster, no row has
    more than a share of 1 / min_count of the weights u^m, and no row has more weight than all rows that differ from it
    together. For a hard cluster, where weights are 0 and 1, the last two follow from the first.
    """
    mask = describable(data, found.memberships.argmax(axis=1), found.centroids, min_count) & (found.sum_um > 0)
    everything = np.zeros(len(data), dtype=np.int64)
    for c in np.flatnonzero(mask):
        weights = found.memberships[:, c] ** fuzzifier
        heaviest = weights.argmax()
        others = weights[rows_unlike(data, data[heaviest])].sum()
        enough = min(others, weights.sum() / min_count) >= _ALMOST * weights[heaviest]
        mask[c] = enough and describable(data, everything, found.centroids[c : c + 1], min_count)[0]
    return mask
