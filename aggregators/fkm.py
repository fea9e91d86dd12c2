"""FKM, the server's side: weighted k-means on all sites' means, anew in every round.

Source: Garst, Reinders, "Federated K-Means Clustering" (2024): Algorithm 1, lines 6-11, and equation 1.

Readings where the paper is open, and deviations from it:
1. Line 10: k-means is seeded anew in every round, by greedy k-means++ on the means weighted by their rows, and the best
   of `n_init` runs to convergence counts, ten as in the published code. It does not go on from the last centroids.
2. A round is an exchange after the start: `rounds=10` asks the sites once for seeds and then ten times for an update.
   The result is what the server makes of the last replies (line 10); no update is asked for that would not be used.
3. The paper stops after a number of rounds. Here a round that moves the centroids by less than `tol` is the last as
   well: the largest distance between matched centroids, in units of their spread.
4. `start` may cluster the seeds without their counts, as distributed k-means++ does (Armacki and Kar, Algorithm 2); in
   round 0 only.
5. With fewer than k different means in all, fewer than k centroids are returned.
6. A round in which no site has anything it may send leaves the centroids as they are, and is the last.
7. Not in the paper: with `robust`, means that are unlike those of the other sites are left out before the k-means, and its
   centroids are trimmed means or geometric medians over the sites; `cap` limits what a site's rows count
   (`flareclust.core.robust`).
"""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust._foundation.validation import check_choice, check_int
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.clusterers import CLUSTERERS, cluster_means, weighted_kmeans
from flareclust.core.lloyd import assign
from flareclust.core.robust import check_rule, filter_outliers
from flareclust.core.rounds import check_tol, movement, remember
from flareclust.executors.fkm import FKMExecutor
from flareclust.protocol.replies import gathered

#: The start of the paper: the k-means of every other round. The other starts are those of distributed k-means++.
WEIGHTED = "weighted"


class FKMAggregator(ClusteringAggregator):
    """The server of FKM.

    Kept on the server: `history` (rounds + 1, k, d), the centroids of the start and after every round; `counts` (k,),
    the rows behind each final centroid; of the last round in which something came `received_centroids` (c, d),
    `received_counts` (c,) and `received_site` (c,); with `robust` also `kept` (c,), which of them were believed, and
    `left_out`, the names of the sites that were not.

    Args:
        k: number of clusters.
        seed: of the job.
        rounds: exchanges after the start, at the most.
        tol: a round that moves the centroids by less, in units of their spread, is the last; 0 for all rounds.
        n_init: runs of k-means in each round; the best one counts.
        start: "weighted" for the paper's k-means in round 0, or one of `CLUSTERERS`, which know no weights.
        robust: "none", or how sites that may lie are joined: "trimmed" or "median".
        trim: share of the sites that a trimmed mean leaves out at each end.
        cap: most times the median site's total that one site's rows may count; None for no cap, and 1 with `robust`.
    """

    reply = FKMExecutor.reply
    steps = FKMExecutor.steps

    def __init__(
        self,
        k: int,
        seed: int = 0,
        rounds: int = 10,
        tol: float = 1e-4,
        n_init: int = 10,
        start: str = WEIGHTED,
        robust: str = "none",
        trim: float = 0.2,
        cap: float | None = None,
    ) -> None:
        super().__init__(k, seed)
        self.rounds = check_int("rounds", rounds, minimum=1)
        self.tol = check_tol(tol)
        self.n_init = check_int("n_init", n_init, minimum=1)
        self.start = check_choice("start", start, (WEIGHTED, *CLUSTERERS))
        self._rule = check_rule(robust, trim, cap)
        self.robust, self.trim, self.cap = self._rule.robust, self._rule.trim, cap

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Cluster the sites' means (lines 8-10)."""
        sent, site = gathered(replies.values())
        means, sizes = sent["centroids"], sent["counts"]  # lines 8-9
        if not len(means):
            return self._all_sat_out(round_)
        starting = round_.index == 0
        filtered = filter_outliers(means, sizes, site, self.k, self._rule)
        if starting and self.start != WEIGHTED:
            centroids, cluster = cluster_means(filtered.points, self.k, self.start, rng)
        else:
            centroids, cluster = weighted_kmeans(filtered.points, filtered.weights, self.k, self.n_init, rng)
        centroids = filtered.centers(centroids, cluster)
        numbers, outliers = filtered.summary(replies)

        shift = float("inf") if starting else movement(round_.task["centroids"], centroids)
        diagnostics = {
            "received": float(len(means)),
            "centroids": float(len(centroids)),
            "objective": objective(filtered.points, filtered.weights, centroids),
            **numbers,
        }
        if np.isfinite(shift):
            diagnostics["shift"] = shift
        record = {
            **remember(round_.record, centroids, self.k),
            "counts": np.bincount(cluster, weights=filtered.weights, minlength=len(centroids)).astype(np.int64),
            "received_centroids": means,
            "received_counts": sizes,
            "received_site": site,
            **outliers,
        }
        done = round_.index >= self.rounds or shift < self.tol
        return Round({"centroids": centroids}, done, diagnostics, record)

    def _all_sat_out(self, round_: Round) -> Round:
        """Return the end of a federation whose sites have nothing that they may send: its last centroids."""
        if round_.index == 0:
            raise JobFailed(
                "no site has a cluster of at least min_count rows that it may send; set a lower min_count, or ask for "
                "fewer clusters (k)"
            )
        centroids = round_.task["centroids"]
        diagnostics = {"received": 0.0, "centroids": float(len(centroids))}
        return Round({"centroids": centroids}, True, diagnostics, remember(round_.record, centroids, self.k))


def objective(means: FloatArray, sizes: FloatArray | IntArray, centroids: FloatArray) -> float:
    """Return equation 1: the squared distances of the means (c, d) to their nearest centroid, times their rows (c,)."""
    return float((sizes * assign(means, centroids)[1]).sum())
