"""Match averaging, the server's side: every site's centroids matched to the first site's, and averaged.

Source: the baseline M-Avg of Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (TMLR 2024), section 6, which
describes it in a sentence.

Readings and deviations:
1. The matching is one to one, with the smallest sum of Euclidean distances, not squared (Hungarian method).
2. All sites are matched to one, not to the means so far: the first by name, among those that sent most centroids.
3. The mean is plain: sites count equally, whatever the number of their rows.
4. A site with fewer centroids than the first is matched with those that it has. With fewer than k centroids at the
   first site, fewer than k are returned.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.rounds import match
from flareclust.executors.mavg import MAvgExecutor
from flareclust.replies import gathered
from flareclust.typing import FloatArray, IntArray, Message


class MAvgAggregator(ClusteringAggregator):
    """The server of match averaging; nothing is drawn.

    Kept on the server: `received_centroids` (c, d), `received_site` (c,), the number of the site that sent each in the
    order of the names, and `matched` (c,), the centroid of the result that each went into.

    Args:
        k: number of clusters.
        seed: of the job.
    """

    reply = MAvgExecutor.reply

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Match and average."""
        centroids, matched = match_average([reply["centroids"] for reply in replies.values()])
        sent, site = gathered(replies.values())
        record = {
            "received_centroids": sent["centroids"],
            "received_site": site,
            "matched": matched,
        }
        return Round({"centroids": centroids}, True, {"received": float(len(matched))}, record)


def match_average(sent: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """Return the means of the sites' centroids after matching them to the first of those with most centroids.

    Args:
        sent: per site its centroids (k_i, d).

    Returns:
        The means (k, d), where k is the largest k_i, and for all c centroids together the mean they went into (c,).
    """
    reference = max(sent, key=len)  # the first of equals
    matched = []
    for centroids in sent:
        there, here = match(reference, centroids)
        matched.append(there[np.argsort(here)])
    of = np.concatenate(matched)
    centers = np.concatenate(sent)
    # About the reference, so that nothing is lost where the data lie far from zero.
    sums = np.zeros_like(reference)
    np.add.at(sums, of, centers - reference[of])
    return reference + sums / np.bincount(of)[:, None], of
