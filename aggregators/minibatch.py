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

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.scaled import ScaledAggregator
from flareclust.core.lloyd import kmeans
from flareclust.core.rounds import movement, remember
from flareclust.executors import minibatch
from flareclust.protocol.replies import gathered
from flareclust.protocol.rounds import Round


class MiniBatchAggregator(ScaledAggregator):
    """The server of NVFlare's mini-batch scheme.

    Kept on the server: `history` (rounds + 1, k, d), the centroids of the start and after every round; `seen` (k,), how
    many rows each centroid is the mean of, rows that were drawn several times counted as often.
    """

    params: minibatch.MiniBatchParams

    steps = minibatch.MiniBatchExecutor.job_steps()

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Cluster the seeds, or add the sites' means to the running ones."""
        received, _ = gathered(replies.values())
        if round_.step != minibatch.SAMPLE:
            seeds = received["centroids"]
            centroids = kmeans(seeds, min(self.params.k, len(seeds)), rng).centroids
            seen = np.zeros(len(centroids), dtype=np.int64)
            diagnostics = {}
        else:
            before, seen = round_.task["centroids"], round_.record["seen"]
            centroids, seen = _running_means(before, seen, **received)
            diagnostics = {"shift": movement(before, centroids)}
        diagnostics["received"] = float(len(received["centroids"]))
        record = remember(round_.record, centroids, self.params.k) | {"seen": seen}
        return Round(
            {"centroids": centroids}, round_.index >= self.params.rounds, diagnostics, record, minibatch.SAMPLE
        )


def _running_means(
    before: FloatArray, seen: IntArray, centroids: FloatArray, counts: IntArray, cluster: IntArray
) -> tuple[FloatArray, IntArray]:
    """Return the centroids (k, d) with the means that were sent added to them, and the numbers of rows (k,).

    Args:
        before: the centroids so far (k, d), which are means of
        seen: so many rows (k,).
        centroids: all means that were sent (c, d), with
        counts: the numbers of their rows (c,) and
        cluster: the centroid that each is for (c,).
    """
    sums, total = np.zeros_like(before), seen.copy()
    np.add.at(sums, cluster, counts[:, None] * (centroids - before[cluster]))
    np.add.at(total, cluster, counts)
    return before + sums / np.maximum(total, 1)[:, None], total
