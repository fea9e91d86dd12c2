"""Distributed Lloyd, the server's side: the weighted mean of what the sites send for each cluster.

Source: Lloyd (1982), Least squares quantization in PCM; in rounds over sites as the baseline "distributed k-means" of
Dennis, Li, Smith (2021), section 4.2.

Readings and deviations:
1. The start: all sites' seeds, clustered into k by the clusterer that `start` names; the plain means of the groups
   (Armacki and Kar, Algorithm 2). Or k centroids that the caller has, which the sites then get at once.
2. A cluster without rows anywhere, or whose rows no site may send, keeps its centroid. scikit-learn moves it to the row
   that lies farthest from its own centroid, which nobody here may know.
3. It stops after `rounds` updates, or when no centroid moved farther than `tol` in units of the centroids' spread
   (`core.rounds.movement`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.clusterers import CLUSTERERS, cluster_means
from flareclust.core.rounds import check_start, check_tol, movement, remember
from flareclust.executors.lloyd import UPDATE, LloydExecutor
from flareclust.replies import gathered
from flareclust.typing import FloatArray, IntArray, Message
from flareclust.validation import check_int


class LloydAggregator(ClusteringAggregator):
    """The server of distributed Lloyd.

    Kept on the server: `history` (rounds, k, d), the centroids after every exchange, the start among them where it came
    from the sites' seeds; `counts` (k,), the rows behind each centroid in the last update.

    Args:
        k: number of clusters.
        seed: of the job.
        rounds: most updates; the exchange of the seeds is not counted.
        tol: largest movement in a round after which to stop, without unit; 0 goes on until nothing moves.
        start: name of what clusters the sites' seeds, or k centroids as k lists of d numbers.
    """

    reply = LloydExecutor.reply
    steps = LloydExecutor.steps

    def __init__(
        self,
        k: int,
        seed: int = 0,
        rounds: int = 100,
        tol: float = 1e-4,
        start: str | list[list[float]] = "kmeans",
    ) -> None:
        self.start = check_start(start, check_int("k", k, least=1), CLUSTERERS)  # before the base class asks `begin`
        super().__init__(k, seed)
        self.rounds = check_int("rounds", rounds, least=1)
        self.tol = check_tol(tol)

    def begin(self) -> Round:
        """Ask for seeds, or for the first update of the centroids given."""
        return Round() if isinstance(self.start, str) else Round({"centroids": np.array(self.start)}, step=UPDATE)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Cluster the seeds, or update the centroids."""
        if round_.step == UPDATE:
            return self._updated(round_, list(replies.values()))
        assert isinstance(self.start, str)
        seeds = gathered(replies.values())[0]["centroids"]
        centroids, _ = cluster_means(seeds, self.k, self.start, rng)
        record = remember(round_.record, centroids, self.k)
        return Round({"centroids": centroids}, False, {"received": float(len(seeds))}, record, UPDATE)

    def _updated(self, round_: Round, replies: Sequence[Message]) -> Round:
        before = round_.task["centroids"]
        centroids = lloyd_merge(before, replies)
        shift = movement(before, centroids)
        updates = round_.index + 1 - isinstance(self.start, str)
        diagnostics = {"inertia": float(np.sum([reply["inertia"] for reply in replies])), "shift": shift}
        record = remember(round_.record, centroids, self.k) | {"counts": rows_behind(len(centroids), replies)}
        done = updates >= self.rounds or shift <= self.tol
        return Round({"centroids": centroids}, done, diagnostics, record, UPDATE)


def lloyd_merge(centroids: FloatArray, replies: Sequence[Message]) -> FloatArray:
    """Return the centroids (k, d) after one update: the means of all rows that the replies describe.

    A cluster that no reply describes keeps its centroid. Pure, and the same bits for the same replies.

    Args:
        centroids: what the sites were sent (k, d).
        replies: of each site `centroids` (c, d), `counts` (c,) and `cluster` (c,), which centroid each belongs to.
    """
    sent, _ = gathered(replies)
    rows, points, cluster = sent["counts"].astype(np.float64), sent["centroids"], sent["cluster"]
    total = np.bincount(cluster, weights=rows, minlength=len(centroids))
    # Sums about a point of the cluster itself lose nothing where the data lie far from zero. It is one of the points
    # received, so that the same replies give the same centroids and nothing moves once no row changes its cluster.
    origin = centroids.copy()
    present, first = np.unique(cluster, return_index=True)
    origin[present] = points[first]
    sums = np.zeros_like(origin)
    np.add.at(sums, cluster, rows[:, None] * (points - origin[cluster]))
    moved = centroids.copy()
    moved[present] = origin[present] + sums[present] / total[present, None]
    return moved


def rows_behind(k: int, replies: Sequence[Message]) -> IntArray:
    """Return how many rows the replies describe for each of the k centroids (k,)."""
    behind = np.zeros(k, dtype=np.int64)
    sent, _ = gathered(replies)
    np.add.at(behind, sent["cluster"], sent["counts"])
    return behind
