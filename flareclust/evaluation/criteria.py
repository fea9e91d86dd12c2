"""The number of clusters, chosen without labels: how good the solutions with different k are, and rules that pick one.

Rules:
- "calinski-harabasz": the largest variance ratio ((T - W) / (k - 1)) / (W / (n - k)), with W the inertia of the solution, T
  that about the overall mean, and n rows (Caliński, Harabasz 1974, A dendrite method for cluster analysis).
- "silhouette": the largest mean simplified silhouette (Hruschka, de Castro, Campello 2004).
- "davies-bouldin": the smallest Davies-Bouldin index.
- "elbow": where the curve of the inertia over k lies farthest below the straight line between its ends, both axes
  scaled to [0, 1] (Satopaa, Albrecht, Irwin, Raghavan 2011, Finding a "kneedle" in a haystack).
- "separation": the largest share of pairs of clusters with c_rs > c0 (Dennis et al. 2021, Appendix B.2), c0 = 0.5.

Of equals the smallest k is chosen; a rule whose values are all the same chooses nothing (`decides`). A rule's step asks the sites for the sums that it needs; those of the step `score` are
enough for all rules.

Readings and deviations: T is the inertia of one more candidate, the weighted mean of the centroids that the sites sent. It is
above the sum of squares about the mean of the rows by n times the squared distance of the two.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.evaluation.scores import scores, separation_ratios, unstack
from flareclust.protocol.task import StepName

#: The step in which the sites are asked for what a rule needs.
STEP_OF: Mapping[str, str] = {
    "calinski-harabasz": StepName.SCORE_INERTIA,
    "silhouette": StepName.SCORE_SILHOUETTE,
    "davies-bouldin": StepName.SCORE,
    "elbow": StepName.SCORE_INERTIA,
    "separation": StepName.SCORE,
}

RULES = tuple(STEP_OF)

#: The rule where none is named.
USUAL = "calinski-harabasz"

#: c0 of Appendix B.2: pairs of clusters count as separated above it.
SEPARATED = 0.5

#: Values of a rule that differ by less, beside the largest or 1, are the same to rounding.
_SAME = 1e-12


#: Below this difference from the best value, relative to it, another number of clusters is about as likely to be the true one
#: (docs/choosing-k.md).
NEAR = 0.01


class KSelection(NamedTuple):
    """What is known of c solutions, each array (c,) unless it says otherwise; NaN where a measure is undefined or was not asked for.

    Attributes:
        k: number of centroids of each.
        inertia: sum of squared distances of all sites' rows.
        silhouette: mean simplified silhouette.
        davies_bouldin: the index.
        separated: share of the pairs of clusters with c_rs above `SEPARATED`.
        ratios: c_rs of every pair of clusters of every solution (p,); empty where it was not asked for.
        ratios_of: the number of centroids of the solution that a ratio belongs to (p,).
        calinski_harabasz: the variance ratio.
    """

    k: IntArray
    inertia: FloatArray
    silhouette: FloatArray
    davies_bouldin: FloatArray
    separated: FloatArray
    ratios: FloatArray
    ratios_of: IntArray
    calinski_harabasz: FloatArray


def current_rule(name: str) -> str:
    """Return a rule's name as it is written here; scikit-learn and others write `calinski_harabasz`."""
    return name.replace("_", "-")


def score_candidates(task: Message, total: Message, *, mean: bool = False) -> KSelection:
    """Return the judgement of the solutions in `task` (see `scores.stack`) from the total of all sites' score sums of one step.

    With `mean` the first candidate is the overall mean, which is no solution.
    """
    metrics, solutions = scores(task, total)[mean:], unstack(task)[mean:]
    k = np.array([len(centroids) for centroids in solutions])
    ratios = [np.empty(0)] * len(k)
    if "spread" in total:
        # A cluster for which no site reported rows stands for the fewest rows that one can have.
        rows = [np.maximum(total["counts"][task["candidate"] == c + mean], 1) for c in range(len(k))]
        spread = total["spread"][mean:]
        ratios = [separation_ratios(*one) for one in zip(solutions, rows, map(float, spread), strict=True)]

    def column(name: str) -> FloatArray:
        return np.array([np.nan if (value := one[name]) is None else value for one in metrics], dtype=np.float64)

    inertia = column("inertia")
    around = float(total["sse"][0]) if mean else np.nan
    return KSelection(
        k=k,
        inertia=inertia,
        silhouette=column("simplified_silhouette"),
        davies_bouldin=column("davies_bouldin"),
        separated=np.array([float((own > SEPARATED).mean()) if len(own) else np.nan for own in ratios]),
        ratios=np.concatenate(ratios),
        ratios_of=np.repeat(k, [len(own) for own in ratios]),
        calinski_harabasz=_variance_ratios(k, inertia, around, float(total["rows"])),
    )


def _goodness(selection: KSelection, rule: str) -> FloatArray:
    """Return how much a rule of `RULES` likes each solution (c,), NaN where nothing is known."""
    return {
        "calinski-harabasz": selection.calinski_harabasz,
        "silhouette": selection.silhouette,
        "davies-bouldin": -selection.davies_bouldin,
        "elbow": _elbow_depths(selection.k, selection.inertia),
        "separation": selection.separated,
    }[rule]


def _preference(selection: KSelection, rule: str) -> FloatArray:
    """Return `goodness` with the least value for what is not known."""
    found = _goodness(selection, rule)
    return np.where(np.isnan(found), -np.inf, found)


def choose(selection: KSelection, rule: str) -> int:
    """Return which solution a rule of `RULES` prefers."""
    return int(np.argmax(_preference(selection, rule)))


def decides(selection: KSelection, rule: str) -> bool:
    """Return whether a rule tells the solutions apart: its values are not all the same, nor all unknown."""
    found = _goodness(selection, rule)
    known = found[~np.isnan(found)]
    if len(found) == 1 or 0 < len(known) < len(found):
        return True
    return len(known) > 0 and bool(np.ptp(known) > _SAME * max(1.0, float(np.abs(known).max())))


def tied(selection: KSelection, rule: str) -> list[int]:
    """Return the numbers of centroids of the solutions that a rule prefers to all others, several where it likes them equally."""
    known = _preference(selection, rule)
    return [int(k) for k in selection.k[known == known.max()]]


def nearly_tied(selection: KSelection, rule: str) -> list[int]:
    """Return the numbers of centroids of the other solutions whose value is within 1 % of the best, ties not counted."""
    known = _preference(selection, rule)
    best = float(known.max())
    if not np.isfinite(best):
        return []
    return [int(k) for k in selection.k[(known < best) & (known >= best - NEAR * abs(best))]]


def measured(selection: KSelection) -> list[str]:
    """Return the rules whose measure is known for some solution."""
    return [rule for rule in RULES if not np.isnan(_goodness(selection, rule)).all()]


def _variance_ratios(k: IntArray, inertia: FloatArray, around: float, n: float) -> FloatArray:
    """Return the index of Caliński and Harabasz (c,) of solutions with k (c,) centroids of n rows.

    An inertia (c,) that is 0 to rounding counts as the least that is not, so that of perfect solutions the smallest is preferred.
    `around` is that about the overall mean. NaN where it is, for fewer than two clusters, as many as rows, or rows that do not differ.
    """
    within = np.maximum(inertia, np.finfo(np.float64).eps * around)
    defined, ratios = (k > 1) & (k < n) & (within > 0), np.full(len(k), np.nan)
    between = np.maximum(around - inertia, 0.0) / np.maximum(k - 1, 1)
    np.divide(between * (n - k), within, out=ratios, where=defined)
    return ratios


def _elbow_depths(k: IntArray, inertia: FloatArray) -> FloatArray:
    """Return how far the inertia (c,) lies below the line between its ends, k (c,) ascending, both scaled to [0, 1]."""
    if len(k) < 3 or inertia[0] <= inertia[-1]:
        return np.zeros(len(k))
    x, y = (k - k[0]) / (k[-1] - k[0]), (inertia - inertia[-1]) / (inertia[0] - inertia[-1])
    return np.asarray(1 - x - y)
