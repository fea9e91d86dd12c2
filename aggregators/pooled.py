"""Pooled centroids, the server's side: k-means on the centroids of all sites, each weighted by its rows.

With `k_min` the server looks for every number of clusters from k_min to k in the same upload, has the sites score the
solutions, and returns the one that `criterion` prefers (`flareclust.evaluation.criteria`).

With `robust`, centroids that are unlike those of the other sites are left out before the k-means, its centroids are
trimmed means or geometric medians over the sites, and the scores are trimmed means; `cap` limits what a site's rows count
(`flareclust.core.robust`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core import clusterers, robust
from flareclust.evaluation import criteria, null_reference
from flareclust.evaluation.scores import stack, unstack, values_needed
from flareclust.executors import pooled
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.preparation.settings import by_direction
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: The key of the diagnostics for the share of the sites that scored the solutions, and below which it is a warning.
_SCORED, _FEW_SCORED = "scored_sites", 0.5


@dataclass(frozen=True, eq=False)
class PooledState(State):
    """What the server knows."""

    received_centroids: FloatArray | None = None  # the centroids (c, d)
    received_counts: IntArray | None = None  # their rows (c,)
    received_site: IntArray | None = None  # and sites (c,)
    kept: BoolArray | None = None  # with `robust`, which of them were believed (c,)
    left_out: Array | None = None  # the names of the sites that were not
    counts: IntArray | None = None  # the rows behind each cluster (k,)
    choice: criteria.KSelection | None = None  # of a range of k, in the result `choice_k` and so on
    chosen_k: int | None = None  # the number that was chosen

    def arrays(self) -> Message:
        """Return what goes into the result."""
        choice = {} if self.choice is None else self.choice._asdict()
        return {**super().arrays(), **{f"choice_{name}": value for name, value in choice.items()}}


_Round = Round[PooledState]


class PooledAggregator(ClusteringAggregator):
    """The server of pooled centroids."""

    params: pooled.PooledParams
    executor = pooled.PooledExecutor
    state = PooledState

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Cluster what the sites sent; with `k_min`, for every k."""
        sent, site = gathered(replies.values())
        centers, rows = sent["centroids"], sent["counts"]
        filtered = robust.filter_outliers(
            centers, rows if self.params.weighted else np.ones(len(rows)), site, self.params.k, self.params.rule
        )
        numbers, believed = filtered.summary(replies)
        state = PooledState(centers, rows, site, kept=believed.kept, left_out=believed.left_out)
        diagnostics = {"received": float(len(centers)), **numbers}

        def solution(k: int) -> tuple[FloatArray, IntArray]:
            weights = filtered.weights.astype(np.float64)
            centroids, labels = clusterers.weighted_kmeans(filtered.points, weights, k, self.params.restarts, rng)
            return filtered.centers(centroids, labels), labels

        if self.params.k_min is None:
            centroids, labels = solution(self.params.k)
            behind = np.bincount(labels, weights=rows[filtered.kept], minlength=len(centroids))
            return Round({"centroids": centroids}, True, diagnostics, replace(state, counts=behind.astype(np.int64)))
        if len(filtered.points) < self.params.k:
            raise JobFailed(
                f"the sites sent {len(centers)} centroids in all, too few to try k={self.params.k}; end the range of k at "
                f"{len(centers)} or less"
            )
        solutions = [solution(k)[0] for k in range(self.params.k_min, self.params.k + 1)]
        counted = filtered.weights if self.params.weighted else rows[filtered.kept]
        mean, all_in_one = clusterers.weighted_kmeans(filtered.points, counted, 1, 1, rng)
        solutions.insert(0, filtered.centers(mean, all_in_one))
        return Round(stack(solutions), False, diagnostics, state, criteria.STEP_OF[self.params.criterion])

    def score(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Choose the number of clusters by the scores of the solutions."""
        fields = self.executor.steps[round_.step].schema.fields
        total = robust.typical_totals(list(replies.values()), fields, self.params.rule)
        if not total["rows"]:
            needed = values_needed(round_.task, fields, round_.task["candidates"].shape[1])
            raise JobFailed(
                f"every site has too few rows to compare k={self.params.k_min}..{self.params.k} without disclosing them: {needed} values "
                "(rows times columns) at a site would do; give a smaller range of k, or fewer and larger sites"
            )
        selection = criteria.score_candidates(round_.task, total, mean=True)
        if not criteria.decides(selection, self.params.criterion):
            raise JobFailed(
                f"{self.params.criterion} tells none of k={self.params.k_min}..{self.params.k} from the others: its values are all the same, or "
                "undefined; take another criterion or a longer range, or give one k"
            )
        best = criteria.choose(selection, self.params.criterion)
        centroids = unstack(round_.task)[best + 1]
        scored = [int(reply["rows"]) for reply in replies.values() if reply["rows"] > 0]
        diagnostics = {
            "chosen_k": float(len(centroids)),
            "scored_rows": float(sum(scored)),
            _SCORED: len(scored) / len(replies),
        }
        state = replace(round_.state, choice=selection, chosen_k=len(centroids))
        return Round({"centroids": centroids}, True, diagnostics, state)

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say where few of the sites chose the number of clusters, and where there may be no clusters at all."""
        share, found = round_.diagnostics.get(_SCORED, 1.0), self._of_no_clusters(round_)
        if share < _FEW_SCORED:
            reason = f"k was chosen by {share:.0%} of the sites; the others have too few rows to score so many"
            found.append(
                f"{reason} solutions without disclosing them: give a shorter range of k, or fewer and larger sites"
            )
        return found

    def _of_no_clusters(self, round_: _Round) -> list[str]:
        """Return a sentence where rows without clusters would have as good a variance ratio; none where that is not known."""
        choice, state, p = round_.state.choice, round_.state, self.params
        if choice is None or state.received_centroids is None or state.received_counts is None or by_direction(p):
            return []
        rows, k = round_.diagnostics["scored_rows"], choice.k
        kept = slice(None) if state.kept is None else state.kept
        points, counts = state.received_centroids[kept], state.received_counts[kept]
        ratio = choice.calinski_harabasz / (rows - k)  # without the number of rows
        known = np.isfinite(ratio) & (choice.inertia > 0)
        if not known.any() or p.categories or len(points) < 2:
            return []
        first = int(np.flatnonzero(known)[0])
        total = choice.inertia[first] * (1 + ratio[first] * (k[first] - 1))
        spread = np.cov(points, rowvar=False, fweights=counts, bias=True).reshape(points.shape[1], -1)
        if not (trace := float(np.trace(spread))):
            return []
        spread *= total / rows / trace
        chance = null_reference.explained_by_chance(spread, k.tolist(), stream(p.seed, 0, "null reference"))
        better = int((chance >= ratio[known].max()).sum())
        reason = f"{better} of {len(chance)} tables without any, but the same spread, have as good a variance ratio"
        advice = f"compare with flareclust stability --null before you interpret k={state.chosen_k}"
        return [f"there may be no clusters: {reason} over k={k[0]}..{k[-1]}; {advice}"] if better else []
