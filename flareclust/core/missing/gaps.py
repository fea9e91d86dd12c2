"""Rows with missing cells in rounds of k-means: distances over the known cells, and means of them.

Source: Chi, Chi, Baraniuk (2016), k-POD: A Method for k-Means Clustering of Missing Data, The American Statistician 70(1):
every missing cell is filled with that of its row's centroid. To fill in adds nothing to the distance from the own centroid, so
the squares of the filled rows are those of the known cells, and where centroids rest they are the means of the known cells.

Readings, and what is added:
1. A row belongs to the centroid that is nearest in its known cells; of equally near ones the first.
2. A round of Lloyd on filled rows moves a centroid as far as the known share of its cells; no number of known cells is needed.
3. Of a cluster with `least` rows or more, a column with fewer known cells counts as missing in all of them: the mean of such a
   column would be of fewer rows than the cluster may have. Rows are then assigned anew, until none is left.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray
from flareclust.core.chunks import pieces
from flareclust.core.disclosure import few_known
from flareclust.core.lloyd import kmeans
from flareclust.core.missing.kernels import nearest_by_known
from flareclust.core.threads import team

#: Rounds at most of a site's own clustering of rows with gaps.
_MOST_ROUNDS = 100


class Completed(NamedTuple):
    """Rows (n, d) without gaps, and which of their cells count as known (n, d); None where all do."""

    rows: FloatArray
    known: BoolArray | None = None


def complete(X: FloatArray, centroids: FloatArray, least: int = 0) -> Completed:
    """Return rows X (n, d) whose missing cells, NaN, are those of the nearest of the centroids (k, d), as readings 1 and 3 say.

    Each row has a known cell; `least` is the smallest number of known cells of a column of a cluster.
    """
    known = ~np.isnan(X)
    if known.all():
        return Completed(X)
    labels, known = _assigned(X, known, centroids, least)
    return Completed(np.where(known, X, centroids[labels]), known)


def complete_alone(
    X: FloatArray, fill: FloatArray, k: int, rng: np.random.Generator, *, n_init: int, least: int, aborted: AbortCheck
) -> Completed:
    """Return rows completed by a site's own clusters: k-means of filled rows, then means of known cells until no row moves.

    Rows X (n, d) and `least` are as for `complete`. `fill` (d,) stands in the gaps at first, and where a cluster does not
    know a column. There are fewer than k clusters where there are fewer than `least` rows for each.
    """
    known = ~np.isnan(X)
    if known.all():
        return Completed(X)
    number = max(1, min(k, len(X) // max(1, least)))
    found = kmeans(np.where(known, X, fill), number, rng, n_init=n_init, aborted=aborted)
    centroids, labels = found.centroids, found.labels
    for _ in range(_MOST_ROUNDS):
        before = labels
        labels, counted = _assigned(X, known, centroids, least)
        centroids = _known_means(X, counted, labels, centroids, fill)
        if np.array_equal(labels, before):
            break
    return complete(X, centroids, least)


def _known_means(
    X: FloatArray, known: BoolArray, labels: IntArray, centroids: FloatArray, fill: FloatArray
) -> FloatArray:
    """Return the means of the known cells of each cluster (k, d); `fill` (d,) where there are none.

    The centroid there may come from cells that do not count as known.
    """
    moved = centroids.copy()
    for j in range(X.shape[1]):
        own = labels[known[:, j]]
        counts = np.bincount(own, minlength=len(centroids))
        # About the centroid: sums of values far from zero would lose their differences.
        steps = np.bincount(own, X[known[:, j], j] - centroids[own, j], minlength=len(centroids))
        moved[:, j] = np.where(counts > 0, moved[:, j] + steps / np.maximum(counts, 1), fill[j])
    return moved


def _assigned(X: FloatArray, known: BoolArray, centroids: FloatArray, least: int) -> tuple[IntArray, BoolArray]:
    """Return the centroid (n,) that each row belongs to, and which of its cells count as known (n, d)."""
    labels, known = _nearest(X, known, centroids), known.copy()
    while (few := few_known(known, labels, len(centroids), least)).any():
        known &= ~few[labels]
        # A row without any cell left stays where it is: it is its centroid then.
        labels = np.where(known.any(axis=1), _nearest(X, known, centroids), labels)
    return labels, known


def _nearest(X: FloatArray, known: BoolArray, centroids: FloatArray) -> IntArray:
    """Return the centroid (n,) that is nearest in the known cells of each row, by differences; of equals the first."""
    labels, centroids = np.empty(len(X), dtype=np.int64), np.ascontiguousarray(centroids)

    def assign_part(some: slice) -> None:
        for piece in pieces(some.stop - some.start, X.shape[1]):
            part = slice(some.start + piece.start, some.start + piece.stop)
            cells, weights = np.where(known[part], X[part], 0.0), known[part].astype(np.float64)
            nearest_by_known(cells, weights, centroids, labels[part])

    with team(X.size * len(centroids)) as own:
        own.each(assign_part, own.parts(len(X)))
    return labels
