"""Mini-batch k-means as NVFlare does it, the server's side: a running mean of all that the sites ever sent.

Source: `nvflare.app_opt.sklearn.kmeans_assembler.KMeansAssembler` (NVFlare 2.9), which applies the update of Sculley
(2010), Web-scale k-means clustering, with every site's message as a batch.

Readings and deviations:
1. Round 0: k-means on all seeds, with one start. Here it is drawn by the job's seed; NVFlare's is not seeded. The seeds
   count equally, and what comes out counts nothing in the running means.
2. Later: each centroid becomes the mean of all rows that were ever sent for it, also in rounds when it lay elsewhere.
3. A centroid that nobody ever sent rows for stays where it is. NVFlare divides by zero there and sends NaN.
4. `rounds` counts the exchanges after the seeds; `num_rounds` of NVFlare's recipe counts the seeds as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.lloyd import kmeans
from flareclust.core.rounds import movement, remember
from flareclust.executors import minibatch
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State


@dataclass(frozen=True, eq=False)
class _MiniBatchState(State):
    """What the server knows."""

    history: FloatArray | None = None  # the centroids of the start and after every round (rounds + 1, k, d)
    seen: IntArray | None = None  # rows that each centroid is the mean of (k,), each as often as drawn


_Round = Round[_MiniBatchState]


class MiniBatchAggregator(ClusteringAggregator):
    """The server of NVFlare's mini-batch scheme."""

    params: minibatch.MiniBatchParams
    executor = minibatch.MiniBatchExecutor
    state = _MiniBatchState

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Cluster the seeds."""
        seeds = gathered(replies.values())[0]["centroids"]
        centroids = kmeans(seeds, min(self.params.k, len(seeds)), rng).centroids
        return self._moved(round_, centroids, np.zeros(len(centroids), dtype=np.int64), {"received": float(len(seeds))})

    def sample(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Add the sites' means to the running ones."""
        received, before = gathered(replies.values())[0], round_.task["centroids"]
        assert round_.state.seen is not None
        centroids, seen = _running_means(before, round_.state.seen, **received)
        numbers = {"shift": movement(before, centroids), "received": float(len(received["centroids"]))}
        return self._moved(round_, centroids, seen, numbers)

    def _moved(self, round_: _Round, centroids: FloatArray, seen: IntArray, numbers: dict[str, float]) -> _Round:
        state = _MiniBatchState(remember(round_.state.history, centroids, self.params.k), seen)
        return Round({"centroids": centroids}, round_.index >= self.params.rounds, numbers, state, minibatch.SAMPLE)


def _running_means(
    before: FloatArray, seen: IntArray, centroids: FloatArray, counts: IntArray, cluster: IntArray
) -> tuple[FloatArray, IntArray]:
    """Return the centroids (k, d) with the means that were sent added to them, and the numbers of rows (k,).

    `before` (k, d) are means of `seen` rows (k,). What was sent: `centroids` (c, d), their rows `counts` (c,), and which
    of those `before` each is for, `cluster` (c,).
    """
    sums, total = np.zeros_like(before), seen.copy()
    np.add.at(sums, cluster, counts[:, None] * (centroids - before[cluster]))
    np.add.at(total, cluster, counts)
    return before + sums / np.maximum(total, 1)[:, None], total
