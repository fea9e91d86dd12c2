"""The number of clusters, chosen without labels: how good the solutions with different k are, and rules that pick one.

Rules:
- "silhouette": the largest mean simplified silhouette (Hruschka, de Castro, Campello 2004).
- "davies-bouldin": the smallest Davies-Bouldin index.
- "elbow": where the curve of the inertia over k lies farthest below the straight line between its ends, both axes
  scaled to [0, 1] (Satopaa, Albrecht, Irwin, Raghavan 2011, Finding a "kneedle" in a haystack).
- "separation": the largest share of pairs of clusters with c_rs > c0 (Dennis et al. 2021, Appendix B.2), c0 = 0.5.

Of equals the smallest k is chosen.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.evaluation.scores import scores, separation_ratios, unstack

RULES = ("silhouette", "davies-bouldin", "elbow", "separation")

#: c0 of Appendix B.2: pairs of clusters count as separated above it.
SEPARATED = 0.5


class KSelection(NamedTuple):
    """What is known of c solutions, each array (c,) unless it says otherwise; NaN where a measure is undefined.

    Attributes:
        k: number of centroids of each.
        inertia: sum of squared distances of all sites' rows.
        silhouette: mean simplified silhouette.
        davies_bouldin: the index.
        separated: share of the pairs of clusters with c_rs above `SEPARATED`.
        ratios: c_rs of every pair of clusters of every solution (p,).
        ratios_of: the number of centroids of the solution that a ratio belongs to (p,).
    """

    k: IntArray
    inertia: FloatArray
    silhouette: FloatArray
    davies_bouldin: FloatArray
    separated: FloatArray
    ratios: FloatArray
    ratios_of: IntArray


def score_candidates(task: Message, total: Message) -> KSelection:
    """Return the judgement of the solutions in `task` (see `scores.stack`) from the total of all sites' score sums."""
    solutions = unstack(task)
    metrics = scores(task, total)
    ratios = []
    for c, centroids in enumerate(solutions):
        # A cluster without rows that anybody told of stands for the fewest rows that one can have.
        rows = np.maximum(total["counts"][task["candidate"] == c], 1)
        ratios.append(separation_ratios(centroids, rows, float(total["spread"][c])))
    k = np.array([len(centroids) for centroids in solutions])

    def column(name: str) -> FloatArray:
        return np.array([np.nan if (value := one[name]) is None else value for one in metrics], dtype=np.float64)

    return KSelection(
        k=k,
        inertia=column("inertia"),
        silhouette=column("simplified_silhouette"),
        davies_bouldin=column("davies_bouldin"),
        separated=np.array([float((own > SEPARATED).mean()) if len(own) else np.nan for own in ratios]),
        ratios=np.concatenate(ratios),
        ratios_of=np.repeat(k, [len(own) for own in ratios]),
    )


def choose(selection: KSelection, rule: str) -> int:
    """Return which solution a rule of `RULES` prefers."""
    goodness = {
        "silhouette": selection.silhouette,
        "davies-bouldin": -selection.davies_bouldin,
        "elbow": elbow_depths(selection.k, selection.inertia),
        "separation": selection.separated,
    }[rule]
    return int(np.argmax(np.where(np.isnan(goodness), -np.inf, goodness)))


def elbow_depths(k: IntArray, inertia: FloatArray) -> FloatArray:
    """Return how far the inertia (c,) lies below the line between its ends, k (c,) ascending, both scaled to [0, 1]."""
    if len(k) < 3 or inertia[0] <= inertia[-1]:
        return np.zeros(len(k))
    x = (k - k[0]) / (k[-1] - k[0])
    y = (inertia - inertia[-1]) / (inertia[0] - inertia[-1])
    depths: FloatArray = 1 - x - y
    return depths
