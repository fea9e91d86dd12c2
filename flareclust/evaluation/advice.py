"""Which algorithm suits a table: k-means, a Gaussian mixture or a tree of dense places, by likelihood, stability and shape.

Readings:
1. Stability is how alike the clusterings of two draws of 80 % of the rows are (Ben-Hur, Elisseeff, Guyon 2002, A stability based method
   for discovering structure in clustered data), by the adjusted Rand index over all rows. Of halves a tree would have too few rows.
2. The likelihood of k-means is that of a mixture of round components of one variance, of which k-means is the limit.
3. The border is how dense places are where two clusters meet, in parts of how dense the sparser of the two is in its middle: of
   balls that touch far below 1, of a cut through an even place about 1. It explains the choice and does not make it.
4. The order is that of the assumptions: a tree assumes least, but loses clusters that overlap; k-means assumes most, and so does
   best with few rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: A tree is advised where it is more stable than the others by this, and leaves at most that share of the rows without a cluster.
CLEARLY, UNLABELLED = 0.1, 0.2

#: A mixture is advised where it is likelier, and less stable than k-means by this at most.
_SLIGHTLY = 0.05

#: Below this stability draws of the rows do not agree.
_UNSTABLE = 0.6

#: Neighbours that say how dense a place is.
_NEIGHBOURS = 10


@dataclass(frozen=True)
class Candidate:
    """What an algorithm makes of a table.

    Attributes:
        algorithm: its name.
        k: the number of clusters that it found.
        stability: see reading 1.
        bic: Bayesian information criterion per row, less is better; None of an algorithm without a likelihood.
        unlabelled: share of the rows without a cluster.
        border: see reading 3; None where no clusters meet.
    """

    algorithm: str
    k: int
    stability: float
    bic: float | None
    unlabelled: float
    border: float | None


def choose(kmeans: Candidate, mixture: Candidate | None, tree: Candidate | None, least: int) -> tuple[Candidate, str]:
    """Return the candidate that is advised, and why, in a sentence; no tree with fewer clusters than `least`."""
    others = [one for one in (kmeans, mixture) if one is not None and one.k > 1]
    best = max((one.stability for one in others), default=0.0)
    if tree is not None and tree.k >= least and tree.unlabelled <= UNLABELLED and tree.stability > best + CLEARLY:
        return tree, (
            f"its {tree.k} clusters come back in other draws of the rows ({tree.stability:.2f}) and those of the others do not ({best:.2f}), "
            "which cut clusters that are no balls or ellipses"
        )
    if mixture is None or mixture.bic is None or kmeans.bic is None:
        return kmeans, "its clusters are balls, and nothing else that was tried has more of a case"
    gain = kmeans.bic - mixture.bic
    better, back = f"by {abs(gain):.2f} a row in BIC", f"({mixture.stability:.2f}; k-means {kmeans.stability:.2f})"
    if gain <= 0:
        return kmeans, f"balls describe the rows as well as a mixture with its many parameters does ({better})"
    if mixture.k < 2:
        return mixture, f"a single component describes the rows better than {kmeans.k} balls do ({better})"
    if mixture.stability >= kmeans.stability - _SLIGHTLY:
        return mixture, (
            f"components of their own size and direction describe the rows better than balls do ({better}), and come back in other draws of "
            f"the rows as well {back}"
        )
    return (
        kmeans,
        f"a mixture describes the rows better ({better}), but its components do not come back in other draws of the rows {back}",
    )


def caution(chosen: Candidate, most: int) -> str:
    """Return what to look at before the clusters are used, in a sentence; `most` clusters were allowed, 0 where a number was asked for."""
    if chosen.k < 2:
        return "clusters of the others are cuts through one cloud; `flareclust stability --null 19` compares with rows without clusters"
    if chosen.stability < _UNSTABLE:
        return (
            f"it does not find the same clusters in other draws of the rows ({chosen.stability:.2f}): there may be none; ask with "
            "`flareclust stability --null 19`"
        )
    if chosen.k == most:
        return f"it found as many clusters as were allowed ({most}), so there may be more: give a wider range with --k"
    if chosen.unlabelled > 0:
        return f"{chosen.unlabelled:.0%} of the rows belong to no cluster of it, and are counted"
    return "whether the clusters can be trusted says `flareclust stability`; whether they mean something, only you"


def bic_of_kmeans(X: FloatArray, centroids: FloatArray, labels: IntArray) -> float:
    """Return BIC per row (n, d) of the mixture of round components of one variance about centroids (k, d)."""
    (n, d), k = X.shape, len(centroids)
    counts = np.bincount(labels, minlength=k)
    used = counts > 0
    squared = np.stack([np.square(X - centroid).sum(axis=1) for centroid in centroids[used]], axis=1)
    variance = max(float(np.square(X - centroids[labels]).sum()) / (n * d), float(np.finfo(np.float64).tiny))
    parts = np.log(counts[used] / n) - squared / (2 * variance)
    top = parts.max(axis=1)
    densities = top + np.log(np.exp(parts - top[:, None]).sum(axis=1)) - d / 2 * np.log(2 * np.pi * variance)
    return float(-2 * densities.mean() + (k * d + k) * np.log(n) / n)


def border_of(X: FloatArray, labels: IntArray) -> float | None:
    """Return how dense rows (n, d) are where two clusters meet, in parts of the sparser one's middle; None where none meet."""
    from sklearn.neighbors import NearestNeighbors  # takes long to import

    n, d = X.shape
    if n <= _NEIGHBOURS:
        return None
    found, near = NearestNeighbors(n_neighbors=_NEIGHBOURS + 1).fit(X).kneighbors(X)
    density = -d * np.log(np.maximum(found[:, -1], np.finfo(np.float64).tiny))
    middles = {int(c): float(np.median(density[labels == c])) for c in np.unique(labels) if c >= 0}
    beside, values = labels[near[:, 1:]], []
    for c, middle in middles.items():
        at = np.flatnonzero((labels >= 0) & (labels != c) & ((beside == c).sum(axis=1) > 1))
        values += [density[i] - min(middle, middles[int(labels[i])]) for i in at]
    return float(np.exp(np.median(values))) if values else None


def stability_of(pairs: Sequence[tuple[IntArray, IntArray]]) -> float:
    """Return the mean adjusted Rand index of pairs of labels (n,) of the same rows, of those with a label in both; 0 for few."""
    from sklearn.metrics import adjusted_rand_score  # takes long to import

    found = []
    for one, other in pairs:
        both = (one >= 0) & (other >= 0)
        enough = both.sum() * 2 > len(both)
        found.append(float(adjusted_rand_score(one[both], other[both])) if enough else 0.0)
    return float(np.mean(found))
