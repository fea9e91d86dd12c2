"""k-means of rows that are read twice, however many starts and iterations there are: for tables larger than memory.

The first pass replaces pieces of the rows by weighted means, on which k-means then runs; the second one finds the nearest
of its centroids for each row. Guha, Meyerson, Mishra, Motwani, O'Callaghan (2003), Clustering data streams: theory and
practice, section 2: pieces, and levels of means that are themselves replaced. Ailon, Jaiswal, Monteleoni (2009), Streaming
k-means approximation, section 3: more means of a piece than clusters, drawn several at a time in proportion to squared
distances.

Readings and deviations:
1. A piece has `ROUNDS` max(k, 10) means or a few less: draws can meet. (Ailon et al.: k rounds of 3 log k draws each.)
   A round is a pass over a piece in memory, so few rounds of many draws take less time.
2. Drawn rows are replaced by the means of the rows nearest to each, which cost nothing more.
3. The last clustering is k-means with its starts and iterations.
"""

from typing import Literal, NamedTuple

import numpy as np

from flareclust._foundation.errors import Aborted
from flareclust._foundation.typing import AbortCheck, FloatArray, never_abort
from flareclust.core import kernels
from flareclust.core.arrays import as_count
from flareclust.core.chunks import PIECE, pieces
from flareclust.core.lloyd import Clustering, assign, kmeans

#: Draws of a piece's means; each is of k rows, and at least of `_FEWEST`.
ROUNDS, _FEWEST = 10, 10

#: Rows of a piece at least, for each mean that replaces some of them.
_ROWS_PER_MEAN = 20


class WeightedMeans(NamedTuple):
    """Means of rows (m, d), and the number or weight of the rows that each is of (m,)."""

    means: FloatArray
    weights: FloatArray


def summary_kmeans(
    X: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int = 1,
    init: Literal["k-means++", "random"] = "k-means++",
    rows: int | None = None,
    aborted: AbortCheck = never_abort,
) -> Clustering:
    """Return a clustering whose centroids k-means found on a summary of the rows, each at the mean of its rows.

    Rows are nearest to the centroids of the summary; those at the means of their rows are one iteration further. A
    centroid without rows is dropped. Time O(n m d) for m means of a piece, memory of a few pieces beside the labels,
    each of 4 MiB or 200 max(k, 10) rows.

    Args:
        X: rows (n, d), which may be in a mapped file.
        k: number of clusters, 1 <= k <= n.
        rng: the only source of randomness.
        n_init, init: as for `kmeans`, on the summary.
        rows: of a piece; by default 4 MiB of them, or 20 for each mean. Fewer rows in all are a summary of themselves.
        aborted: asked before each piece, in both passes, and by `kmeans`.

    Raises:
        UserError: for input that does not fit the above.
        Aborted: when `aborted` says so.
    """
    k = as_count(k, "k", len(X))
    found = summary_of(X, k, rng, rows=rows, aborted=aborted)
    start = min(k, len(found.means))
    clustering = kmeans(found.means, start, rng, n_init=n_init, init=init, weights=found.weights, aborted=aborted)
    return of_all_rows(X, clustering.centroids, n_iter=clustering.n_iter, aborted=aborted)


def summary_of(
    X: FloatArray, k: int, rng: np.random.Generator, *, rows: int | None = None, aborted: AbortCheck = never_abort
) -> WeightedMeans:
    """Return weighted means that stand for the rows (n, d) where k clusters of them are looked for; arguments as above.

    A level keeps as many means as a piece has rows at most; then they are replaced by those of the next level.
    """
    draws = max(k, _FEWEST)
    if rows is None:
        rows = max(_ROWS_PER_MEAN * ROUNDS * draws, PIECE // (8 * X.shape[1]))
    if len(X) <= rows:
        return WeightedMeans(np.array(X), np.ones(len(X)))
    levels: list[list[WeightedMeans]] = []
    for start in range(0, len(X), rows):
        _go_on(aborted, start, len(X))
        piece = np.array(X[start : start + rows])
        kept = weighted_means(piece, np.ones(len(piece)), draws, rng)
        for level in levels:
            level.append(kept)
            if sum(len(each.means) for each in level) <= rows:
                break
            kept = weighted_means(*_joined(level), draws, rng)
            level.clear()
        else:
            levels.append([kept])
    return _joined([kept for level in levels for kept in level])


def weighted_means(rows: FloatArray, weights: FloatArray, draws: int, rng: np.random.Generator) -> WeightedMeans:
    """Return the means of groups of rows (n, d) with positive weights (n,), at most `ROUNDS` times `draws` of them.

    The first rows are drawn in proportion to the weights, further ones to weight times squared distance to the closest
    row drawn so far. A group is the rows that are closest to the same drawn row.
    """
    labels, closest = np.zeros(len(rows), np.int64), np.full(len(rows), np.inf)
    found, chances = 0, weights
    for _ in range(ROUNDS):
        ends = np.cumsum(chances)
        if ends[-1] == 0:  # all rows are drawn ones
            break
        # Side "right" skips rows without a chance; the bound keeps a number rounded up to the total in range.
        at = np.searchsorted(ends, rng.random(draws) * ends[-1], side="right")
        drawn = np.unique(np.minimum(at, np.searchsorted(ends, ends[-1])))
        own, squared = assign(rows, rows[drawn])
        closer = squared < closest
        labels[closer] = own[closer] + found
        closest[closer] = squared[closer]
        found, chances = found + len(drawn), weights * closest
    origin = rows.mean(axis=0)
    sums, mass = np.empty((found, rows.shape[1])), np.empty(found)
    kernels.cluster_sums(rows, weights, origin, labels, sums, mass)
    used = mass > 0  # of equal rows drawn together the first has them all
    return WeightedMeans(origin + sums[used] / mass[used, None], mass[used])


def _joined(kept: list[WeightedMeans]) -> WeightedMeans:
    return WeightedMeans(np.concatenate([each.means for each in kept]), np.concatenate([each.weights for each in kept]))


def of_all_rows(
    X: FloatArray, centroids: FloatArray, *, n_iter: int = 0, aborted: AbortCheck = never_abort
) -> Clustering:
    """Return the clustering of the rows (n, d) nearest to each of the centroids (k, d), with their means, in one pass."""
    k, d = centroids.shape
    origin, labels, inertia = centroids.mean(axis=0), np.empty(len(X), np.int64), 0.0
    total, sums, mass = np.zeros((k, d)), np.empty((k, d)), np.empty(k)
    for part in pieces(*X.shape):
        _go_on(aborted, part.start, len(X))
        rows = np.array(X[part])
        labels[part], squared = assign(rows, centroids)
        kernels.cluster_sums(rows, np.ones(len(rows)), origin, labels[part], sums, mass)
        total += sums
        inertia += float(squared.sum())
    counts = np.bincount(labels, minlength=k)
    used = counts > 0
    means = origin + total[used] / counts[used, None]
    inertia -= float((counts[used, None] * (means - centroids[used]) ** 2).sum())
    return Clustering(means, (np.cumsum(used) - 1)[labels], counts[used], max(inertia, 0.0), n_iter)


def _go_on(aborted: AbortCheck, row: int, n: int) -> None:
    if aborted():
        raise Aborted(f"stopped at row {row} of {n} while the rows of k-means were read")
