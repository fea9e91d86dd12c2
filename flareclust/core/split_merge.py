"""Splitting clusters of k-means from totals alone: to leave a local optimum, where two others are joined, or to make a start.

Source: split and merge moves as in Ball and Hall (1965), ISODATA, and Ueda, Nakano, Ghahramani, Hinton (2000), SMEM
algorithm for mixture models. Everything follows from totals over rows: number, mean and squared deviations by cluster.

Readings:
1. The cluster with the largest sum of squares is split along its column of largest variance, one standard deviation to
   either side of its mean.
2. The pair is joined that adds least to the sum of squares, n_a n_b / (n_a + n_b) |mean_a - mean_b|^2 (Ward 1963), and
   that the split cluster is not one of. A cluster without rows costs nothing. A pair that adds more than the sum of squares
   of the split cluster is not joined: no split can make up for it.
3. Three proposals: the best move; the second best cluster split; the second best pair joined.
4. Two clusters leave no pair beside the one that is split. Their four proposals are starts anew: all rows are split, along
   the column of largest variance or of second largest, or either cluster is, and the other one is given up.
"""

from math import ceil, pi
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import Clustering, labels_of, lloyd

#: Rank of the cluster that is split, and rank of the pair that is joined, of each proposal.
_PROPOSALS = ((0, 0), (1, 0), (0, 1))

#: Moves at most of a search, and the part of the inertia that each must gain.
_MOVES, _WORTH = 20, 1e-3


class Totals(NamedTuple):
    """What is known of all rows by cluster, for one solution.

    Attributes:
        counts: rows (k,).
        means: (k, d), the centroid itself where a cluster has no rows.
        m2: squared deviations from the mean by column (k, d).
    """

    counts: IntArray
    means: FloatArray
    m2: FloatArray


def mean_square(centroids: FloatArray, totals: Totals) -> float:
    """Return the mean squared distance of the rows to their centroids (k, d); infinite without rows."""
    rows = totals.counts.sum()
    if not rows:
        return float("inf")
    within = totals.m2.sum() + totals.counts @ ((totals.means - centroids) ** 2).sum(axis=1)
    return float(within / rows)


def proposals(totals: Totals) -> list[FloatArray]:
    """Return different solutions (k, d) one move away, the most promising first; none where no move is possible."""
    k, found = len(totals.counts), list[FloatArray]()
    for proposed in _two_anew(totals) if k == 2 else [_moved(totals, *move) for move in _PROPOSALS if k > 2]:
        if proposed is not None and not any(np.array_equal(proposed, other) for other in found):
            found.append(proposed)
    return found


def _two_anew(totals: Totals) -> list[FloatArray]:
    """Return other starts (2, d) for two clusters; none where their rows do not differ."""
    counts, means, m2 = totals
    rows = counts.sum()
    if not m2.any():
        return []
    mean = counts @ means / rows
    of_all = m2.sum(axis=0) + counts @ (means - mean) ** 2
    widest = np.argsort(-of_all, kind="stable")
    parts = [(mean, of_all, rows, j) for j in widest[:2]]
    parts += [(means[r], m2[r], counts[r], m2[r].argmax()) for r in range(2) if counts[r]]
    steps = [(center, np.sqrt(squares[j] / n) * (np.arange(len(mean)) == j)) for center, squares, n, j in parts]
    return [np.stack([center - step, center + step]) for center, step in steps if step.any()]


def _moved(totals: Totals, cluster: int, pair: int) -> FloatArray | None:
    """Return the centroids after a move of clusters of these ranks; None where it is not possible or cannot gain."""
    counts, centroids, squares = totals.counts.astype(np.float64), totals.means.copy(), totals.m2.sum(axis=1)
    r = int(np.argsort(-squares, kind="stable")[cluster])
    a, b = np.delete(np.arange(len(counts)), r)[np.stack(np.triu_indices(len(counts) - 1, 1))]
    cost = (
        counts[a] * counts[b] / np.maximum(counts[a] + counts[b], 1) * ((centroids[a] - centroids[b]) ** 2).sum(axis=1)
    )
    at = np.argsort(cost, kind="stable")[pair : pair + 1]
    if not (squares[r] > cost[at]).any():
        return None
    a, b = a[at[0]], b[at[0]]
    if counts[a] + counts[b]:
        centroids[a] += counts[b] / (counts[a] + counts[b]) * (centroids[b] - centroids[a])
    step, j = np.zeros(centroids.shape[1]), int(totals.m2[r].argmax())
    step[j] = np.sqrt(totals.m2[r, j] / counts[r])
    centroids[b] = centroids[r] + step
    centroids[r] = centroids[r] - step
    return centroids


def search(X: FloatArray, weights: FloatArray, start: FloatArray) -> Clustering:
    """Return the clusters that Lloyd's algorithm finds in weighted rows (n, d) from k centroids, after moves that gain most."""
    best = lloyd(X, start, weights=weights, tol=0.0)
    for _ in range(_MOVES):
        moved = [lloyd(X, one, weights=weights) for one in proposals(_totals(X, weights, best.centroids))]
        inertia = [one.inertia if len(one.centroids) == len(start) else np.inf for one in moved]
        if not inertia or not min(inertia) < best.inertia * (1 - _WORTH):
            break
        best = lloyd(X, moved[int(np.argmin(inertia))].centroids, weights=weights, tol=0.0)
    return best


def _totals(X: FloatArray, weights: FloatArray, centroids: FloatArray) -> Totals:
    """Return what is known by cluster of rows (n, d) of weight 1 or more."""
    labels = labels_of(X, centroids)
    counts, sums, m2 = np.zeros(len(centroids)), np.zeros_like(centroids), np.zeros_like(centroids)
    np.add.at(counts, labels, weights)
    np.add.at(sums, labels, weights[:, None] * (X - centroids[labels]))
    means = centroids + sums / np.maximum(counts, np.finfo(float).tiny)[:, None]
    np.add.at(m2, labels, weights[:, None] * (X - means[labels]) ** 2)
    return Totals(np.rint(counts).astype(np.int64), means, m2)


# Starts of k-means from sums alone: clusters are split in two until there are k.
#
# Source: Linde, Buzo, Gray (1980), An algorithm for vector quantizer design, section III, "splitting". Which cluster is
# split, and in which direction, as in Su and Dy (2007), In search of deterministic methods for initializing K-means and
# Gaussian mixture clustering, "Var-Part": the one with the largest sum of squares, along the column with the largest
# variance in it, one standard deviation to either side.

#: About so many splits in a row give k clusters, however large k is.
_SPLITS = 15


def at_once(k: int) -> int:
    """Return how many clusters are split before the rows are looked at again; up to `_SPLITS` clusters, one."""
    return ceil(k / _SPLITS)


def split(centroids: FloatArray, counts: IntArray, m2: FloatArray, times: int) -> FloatArray:
    """Return the centroids (c, d) with the results of up to so many splits, fewer where no rows differ within a cluster.

    Centroids are means of rows (c,), with the squared deviations from them by column (c, d). What the halves of a cluster
    are is taken from the normal distribution, where they are to be split further.
    """
    split, rows, squares = list(centroids.copy()), list(counts.astype(np.float64)), list(m2.copy())
    for _ in range(times):
        r = int(np.argmax([own.sum() for own in squares]))
        j = int(np.argmax(squares[r]))
        if squares[r][j] <= 0:
            break
        step = np.zeros(centroids.shape[1])
        step[j] = np.sqrt(squares[r][j] / rows[r])
        rows[r] /= 2
        squares[r] = squares[r] / 2
        squares[r][j] *= 1 - 2 / pi
        split.append(split[r] + step)
        split[r] = split[r] - step
        rows.append(rows[r])
        squares.append(squares[r].copy())
    return np.stack(split)
