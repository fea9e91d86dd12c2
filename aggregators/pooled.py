"""Pooled centroids, the server's side: k-means on the centroids of all sites, each weighted by its rows.

With `k_min` the server looks for every number of clusters from k_min to k in the same upload, has the sites score the
solutions, and returns the one that `choose_by` prefers (`flareclust.core.choice`).
"""

from collections.abc import Mapping

import numpy as np

from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.choice import RULES, Judged, choose, judge
from flareclust.core.clusterers import weighted_kmeans
from flareclust.core.scores import stack, unstack, values_needed
from flareclust.errors import JobFailed, UserError
from flareclust.executors.base import SCORE
from flareclust.executors.pooled import PooledExecutor
from flareclust.replies import gathered
from flareclust.typing import Message
from flareclust.validation import check_bool, check_choice, check_int


class PooledAggregator(ClusteringAggregator):
    """The server of pooled centroids. Kept on the server: `counts` (k,), the rows behind each cluster.

    Args:
        k: number of clusters; with `k_min`, the largest number tried.
        seed: of the job.
        restarts: starts of the server's k-means.
        weighted: whether a centroid counts as often as it has rows.
        k_min: the smallest number of clusters tried; None for k only.
        choose_by: the rule that chooses among them: "silhouette", "davies-bouldin", "elbow" or "separation".
    """

    reply = PooledExecutor.reply
    steps = PooledExecutor.steps

    def __init__(
        self,
        k: int,
        seed: int = 0,
        restarts: int = 20,
        weighted: bool = True,
        k_min: int | None = None,
        choose_by: str = "silhouette",
    ) -> None:
        super().__init__(k, seed)
        self.restarts = check_int("restarts", restarts, least=1)
        self.weighted = check_bool("weighted", weighted)
        self.k_min = None if k_min is None else check_int("k_min", k_min, least=2)
        if self.k_min is not None and self.k_min > self.k:
            raise UserError(f"k_min={self.k_min} is more than k={self.k}; give the smaller number of clusters first")
        self.choose_by = check_choice("choose_by", choose_by, RULES)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Cluster what the sites sent; with `k_min`, for every k, and choose when the scores are in."""
        if round_.step == SCORE:
            return self._choose(round_, replies)
        sent, site = gathered(replies.values())
        centers, rows = sent["centroids"], sent["counts"]
        weights = rows.astype(np.float64) if self.weighted else np.ones(len(rows))
        record = {
            "received_centroids": centers,
            "received_counts": rows,
            "received_site": site,
        }
        diagnostics = {"received": float(len(centers))}
        if self.k_min is None:
            centroids, labels = weighted_kmeans(centers, weights, self.k, self.restarts, rng)
            record["counts"] = np.bincount(labels, weights=rows, minlength=len(centroids)).astype(np.int64)
            return Round({"centroids": centroids}, True, diagnostics, record)
        if len(centers) < self.k:
            raise JobFailed(
                f"the sites sent {len(centers)} centroids in all, too few to try k={self.k}; end the range of k at "
                f"{len(centers)} or less"
            )
        tried = range(self.k_min, self.k + 1)
        solutions = [weighted_kmeans(centers, weights, k, self.restarts, rng)[0] for k in tried]
        return Round(stack(solutions), False, diagnostics, record, SCORE)

    def _choose(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        total = {name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in self.steps[SCORE].fields}
        if not total["rows"]:
            needed = values_needed(round_.task, self.steps[SCORE].fields, round_.task["candidates"].shape[1])
            raise JobFailed(
                f"every site has too few rows to compare k={self.k_min}..{self.k} without telling them: {needed} values "
                "(rows times columns) at a site would do; give a smaller range of k, or fewer and larger sites"
            )
        judged = judge(round_.task, total)
        best = choose(judged, self.choose_by)
        centroids = unstack(round_.task)[best]
        diagnostics = {"chosen_k": float(len(centroids))}
        record = {**round_.record, **_told(judged), "chosen_k": np.array(len(centroids))}
        return Round({"centroids": centroids}, True, diagnostics, record)


def _told(judged: Judged) -> Message:
    """Return the judgement as arrays for result.npz."""
    return {f"choice_{name}": value for name, value in judged._asdict().items()}
