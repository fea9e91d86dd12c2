"""What a site computes in several algorithms: its own k-means, seeds, one Lloyd update; and what of it may be sent.

Each function returns clusters with their centroids and numbers of rows, from which those that may not be described to
others (`flareclust.core.disclosure`) are left out. Where nothing is left, what starts a federation raises `Refusal`; an
update returns nothing, since other centroids may give the site larger clusters in the next round.
"""

from typing import Literal, NamedTuple

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray, never_abort
from flareclust.core import kernels
from flareclust.core.arrays import as_count
from flareclust.core.chunks import PIECE, pieces
from flareclust.core.disclosure import LEAST_ROWS, check_enough, describable, nothing_to_send
from flareclust.core.group_kernels import described_groups, rows_of_each
from flareclust.core.lloyd import Clustering, assign, kmeans, labels_of, recompute_centroids
from flareclust.core.seeds import kmeans_plusplus

Seeds = Literal["means", "rows"]

#: What becomes of local clusters below `min_count` rows: they are not sent, or join others.
SmallClusters = Literal["withhold", "dissolve"]

#: Of a cluster of one row repeated, so many rows at the most for each one of other values that it is described with.
_REPEATED = 100

#: How a site's own k-means goes through its rows: again in every iteration, or twice.
LocalKMeans = Literal["lloyd", "summary"]


class Sendable(NamedTuple):
    """Clusters that may be described to others.

    Attributes:
        centroids: (c, d).
        counts: rows of each (c,).
        labels: cluster of each row (n,); -1 for rows of clusters that stay at the site.
        source: which of the clusters asked about these are (c,).
    """

    centroids: FloatArray
    counts: IntArray
    labels: IntArray
    source: IntArray


def local_clusters(
    data: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int,
    min_count: int,
    aborted: AbortCheck,
    local_kmeans: LocalKMeans = "lloyd",
    small_clusters: SmallClusters = "withhold",
    known: BoolArray | None = None,
) -> Sendable:
    """Run k-means on a site's rows (n, d), with fewer than k clusters where there are fewer than `min_count` rows each.

    `local_kmeans` is that of `own_kmeans`. With `small_clusters="dissolve"` clusters below `min_count` rows join others (`dissolve_small`). `known` (n, d) says which
    cells were not filled in: a cluster with fewer than `min_count` of them in a column is not sent, unless it has none there.
    """
    check_enough(data, min_count)
    k = min(k, len(data) // min_count)
    found = own_kmeans(data, k, rng, n_init=n_init, local_kmeans=local_kmeans, aborted=aborted)
    if small_clusters == "dissolve":
        found = dissolve_small(data, found, min_count)
    return clusters_to_send(data, found, min_count, known=known)


def own_kmeans(
    data: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    n_init: int,
    init: Literal["k-means++", "random"] = "k-means++",
    local_kmeans: LocalKMeans = "lloyd",
    aborted: AbortCheck,
) -> Clustering:
    """Run k-means on a site's rows (n, d) or, with `local_kmeans="summary"`, on a summary of them; centroids are the means."""
    if local_kmeans == "summary":
        return summary_kmeans(data, k, rng, n_init=n_init, init=init, aborted=aborted)
    return recompute_centroids(data, kmeans(data, k, rng, n_init=n_init, init=init, aborted=aborted))


def dissolve_small(data: FloatArray, found: Clustering, min_count: int) -> Clustering:
    """Return the clusters of the rows (n, d) after those below `min_count` rows have joined others, whole.

    The smallest goes first, of equal ones the first, and joins the cluster with the nearest centroid; then centroids and
    numbers of rows are those of the joint cluster. One cluster is left at the end where there are fewer rows than
    `min_count`. Clusters keep their order, and the clustering is the same where none is too small. Its centroids are the means.
    """
    centroids, counts = found.centroids.copy(), found.counts.copy()
    joined = np.arange(len(counts))  # which cluster the rows of each are in
    while (remaining := np.flatnonzero(counts)).size > 1:
        small = int(remaining[np.argmin(counts[remaining])])
        if counts[small] >= min_count:
            break
        others = remaining[remaining != small]
        near = int(others[np.argmin(((centroids[others] - centroids[small]) ** 2).sum(axis=1))])
        total = counts[near] + counts[small]
        centroids[near] += counts[small] / total * (centroids[small] - centroids[near])
        counts[near], counts[small] = total, 0
        joined[joined == small] = near
    if len(remaining) == len(counts):
        return found
    labels = np.searchsorted(remaining, joined)[found.labels]
    return recompute_centroids(
        data, found._replace(centroids=centroids[remaining], counts=counts[remaining], labels=labels)
    )


def seed_cells(
    data: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    seeds: Seeds = "means",
    min_count: int,
    ones: FloatArray | None = None,
    aborted: AbortCheck,
    n_candidates: int | None = None,
    known: BoolArray | None = None,
) -> Sendable:
    """Draw at most k seeds by k-means++ from a site's rows (n, d) and return the means of their cells, or the seeds.

    The cell of a seed is the rows nearest to it. Seeds are rows of the data, which a site does not send; their cells'
    means are one Lloyd iteration better anyway. With `seeds="rows"` the seeds of cells of at least `min_count` rows are
    returned as they are, as the papers have it.

    Args:
        data: rows (n, d).
        k: seeds to draw; fewer where there are fewer than `min_count` rows for each, or fewer different rows.
        rng: draws the seeds.
        seeds: "means" or "rows".
        min_count: smallest number of rows of a cell that is returned.
        ones: as for `describable`.
        aborted: asked while seeds are drawn.
        n_candidates: as for `kmeans_plusplus`; 1 is the k-means++ of the papers without the greedy choice.
        known: as for `local_clusters`.
    """
    check_enough(data, min_count)
    k = min(k, len(data) // min_count)
    drawn, _ = kmeans_plusplus(data, k, rng, n_candidates=n_candidates, aborted=aborted)
    labels, squared = assign(data, drawn)
    cells = Clustering(drawn, labels, np.bincount(labels, minlength=len(drawn)), float(squared.sum()), 0)
    if seeds == "rows":
        return sendable(cells, cells.counts >= min_count)  # never none: the largest cell has n / k rows or more
    return clusters_to_send(data, recompute_centroids(data, cells), min_count, ones=ones, known=known)


def lloyd_update(
    data: FloatArray,
    centroids: FloatArray,
    min_count: int,
    reported: BoolArray | None = None,
    *,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
) -> Sendable:
    """Return the means of the rows (n, d) nearest to each of the centroids (k, d), as far as they may be sent.

    `source` of what is returned says which centroids they belong to; those without rows are not among them. Nothing is
    returned, that is arrays without entries, where none may be sent.

    Args:
        data: rows (n, d).
        centroids: (k, d).
        min_count: smallest number of rows of a group that is returned; 0 where others than a total over sites never see it.
        reported: which of the centroids (k,) are reported, each row with the nearest of these; None for all.
        ones: as for `describable`.
        known: as for `local_clusters`.

    Raises Refusal where the site has fewer than `min_count` rows.
    """
    check_enough(data, min_count)
    asked = centroids if reported is None else centroids[reported]
    labels = labels_of(data, asked) if len(asked) else np.full(len(data), -1, dtype=np.int64)
    if reported is not None:
        labels = np.append(np.flatnonzero(reported), -1)[labels]
    found, source = means_of_groups(data, labels, centroids)
    if not min_count:
        return sendable(found, np.ones(len(source), dtype=np.bool_), source)
    sent = clusters_to_send(data, found, min_count, ones=ones, known=known, required=False)
    return sent._replace(source=source[sent.source])


def clusters_to_send(
    data: FloatArray,
    found: Clustering,
    min_count: int,
    *,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
    required: bool = True,
) -> Sendable:
    """Return the clusters of the rows (n, d) that may be described, those of one row repeated with rows of others.

    Labels of `found` may be -1, its centroids are the means; `ones` and `known` are those of `describable`.

    Raises Refusal where that is no cluster at all, if one is `required`.
    """
    mask, source = describable(data, found.labels, found.centroids, min_count, ones=ones, known=known), None
    repeated = ~mask & (found.counts >= max(min_count, LEAST_ROWS))
    if mask.any() and repeated.any():
        repeated &= ~described_groups(data, found.labels, found.centroids)[1]
    if mask.any() and repeated.any():
        found, source = means_of_groups(data, _lending(data, found, mask, repeated, min_count, known), found.centroids)
        mask = describable(data, found.labels, found.centroids, min_count, ones=ones, known=known)
    if required and not mask.any():
        raise nothing_to_send(min_count)
    return sendable(found, mask, source)


def _lending(
    data: FloatArray, found: Clustering, mask: BoolArray, repeated: BoolArray, min_count: int, known: BoolArray | None
) -> IntArray:
    """Return the labels (n,) after the `repeated` clusters, whose rows are all the same, have borrowed rows of those in the mask.

    Each borrows of the nearest cluster that can spare rows: those nearest to it that differ from one another, as many as a cluster
    must have, three at least, and one for every `_REPEATED` of its own. Both they and the rows that are left must be clusters
    that may be described: so a server that guesses the repeated row learns no more of the others than from two clusters. One that
    can spare none, and is no larger, joins it whole.
    """
    labels = found.labels.copy()
    for r in np.flatnonzero(repeated).tolist():
        apart = ((found.centroids - found.centroids[r]) ** 2).sum(axis=1)
        order = [c for c in np.argsort(apart, kind="stable").tolist() if mask[c]]
        needed = max(min_count, LEAST_ROWS, -(-int(found.counts[r]) // _REPEATED))
        for own in (np.flatnonzero(labels == c) for c in order):
            lent = _lent(data[own], found.centroids[r], needed, min_count, None if known is None else known[own])
            if lent.any() or 0 < len(own) <= found.counts[r]:
                labels[own[lent] if lent.any() else own] = r
                break
    return labels


def _lent(rows: FloatArray, point: FloatArray, needed: int, min_count: int, known: BoolArray | None) -> BoolArray:
    """Return which of a cluster's rows (n, d) it lends, those nearest to the point (d,) that differ; none where it cannot."""
    lent, order = np.zeros(len(rows), dtype=np.bool_), np.argsort(((rows - point) ** 2).sum(axis=1), kind="stable")
    lent[order[np.sort(np.unique(rows[order], axis=0, return_index=True)[1])[:needed]]] = True
    if lent.sum() < needed or len(rows) - needed < min_count:
        return np.zeros_like(lent)
    means = np.stack([rows[~lent].mean(axis=0), rows[lent].mean(axis=0)])
    both = describable(rows, lent.astype(np.int64), means, min_count, known=known)
    return lent & both.all()


def means_of_groups(data: FloatArray, labels: IntArray, centroids: FloatArray) -> tuple[Clustering, IntArray]:
    """Return the groups of the rows (n, d) with their means, and which of the centroids (k, d) they are of (c,).

    Groups are those of `labels` (n,), in 0..k-1, or -1 for rows that are in none.
    """
    counts, _ = rows_of_each(labels, len(centroids))
    source = np.flatnonzero(counts)
    places = labels if len(source) == len(counts) else _relabel(labels, source, len(counts))
    found = Clustering(centroids[source], places, counts[source], 0.0, 0)
    if not len(source):
        return found, source
    if found.counts.sum() == len(data):
        return recompute_centroids(data, found), source
    used = places >= 0
    return recompute_centroids(data[used], found._replace(labels=places[used]))._replace(labels=places), source


def without_remainder(data: FloatArray, found: Sendable, min_count: int) -> Sendable:
    """Return the clusters that may be described where sums over all rows (n, d) are known, too.

    The sums over all rows, less those of the clusters, are the sums over the rows that are withheld. So these must be none,
    or several that could be described themselves; until then, the smallest cluster joins them, of equal ones that of the
    first row, so that it is the same one in every round. With none left, the result is empty.
    """
    labels, kept = found.labels, np.ones(len(found.counts), dtype=bool)
    first = [int(np.argmax(labels == r)) for r in range(len(kept))]
    for r in sorted(range(len(kept)), key=lambda r: (found.counts[r], first[r])):
        if _may_be_known(data[~np.append(kept, False)[labels]], min_count):
            break
        kept[r] = False
    return sendable(found, kept, found.source)


def _may_be_known(rows: FloatArray, min_count: int) -> bool:
    """Return whether sums over these rows (n, d) may be known to others: there are none, or enough that differ."""
    if not len(rows):
        return True
    together = np.zeros(len(rows), dtype=np.int64)
    return bool(describable(rows, together, rows.mean(axis=0)[None], max(min_count, LEAST_ROWS))[0])


def sendable(found: Clustering | Sendable, mask: BoolArray, source: IntArray | None = None) -> Sendable:
    """Return the clusters that the mask (k,) keeps, numbered anew; `source` (k,) are their numbers, else 0 to k - 1."""
    source = np.arange(len(mask)) if source is None else source
    if mask.all():
        return Sendable(found.centroids, found.counts, found.labels, source)
    keep = np.flatnonzero(mask)
    labels = _relabel(found.labels, keep, len(found.counts))
    return Sendable(found.centroids[keep], found.counts[keep], labels, source[keep])


def _relabel(labels: IntArray, keep: IntArray, k: int) -> IntArray:
    new = np.full(k + 1, -1, dtype=np.int64)  # the last one for rows of no cluster, -1
    new[keep] = np.arange(len(keep))
    return new[labels]


# k-means of rows that are read twice, however many starts and iterations there are: for tables larger than memory.
#
# The first pass replaces pieces of the rows by weighted means, on which k-means then runs; the second one finds the nearest
# of its centroids for each row. Guha, Meyerson, Mishra, Motwani, O'Callaghan (2003), Clustering data streams: theory and
# practice, section 2: pieces, and levels of means that are themselves replaced. Ailon, Jaiswal, Monteleoni (2009), Streaming
# k-means approximation, section 3: more means of a piece than clusters, drawn several at a time in proportion to squared
# distances.
#
# Readings and deviations:
# 1. A piece has `ROUNDS` max(k, 10) means or a few less: draws can meet. (Ailon et al.: k rounds of 3 log k draws each.)
#    A round is a pass over a piece in memory, so few rounds of many draws take less time.
# 2. Drawn rows are replaced by the means of the rows nearest to each, which cost nothing more.
# 3. The last clustering is k-means with its starts and iterations.

#: Draws of a piece's means; each is of k rows, and at least of `_FEWEST`.
ROUNDS, _FEWEST = 10, 10

#: Rows of a piece at least, for each mean that replaces some of them.
_ROWS_PER_MEAN = 20


class _WeightedMeans(NamedTuple):
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

    Raises UserError for input that does not fit the above and Aborted when `aborted` says so.
    """
    k = as_count(k, "k", len(X))
    found = _summary_of(X, k, rng, rows=rows, aborted=aborted)
    start = min(k, len(found.means))
    clustering = kmeans(found.means, start, rng, n_init=n_init, init=init, weights=found.weights, aborted=aborted)
    return of_all_rows(X, clustering.centroids, n_iter=clustering.n_iter, aborted=aborted)


def _summary_of(
    X: FloatArray, k: int, rng: np.random.Generator, *, rows: int | None = None, aborted: AbortCheck = never_abort
) -> _WeightedMeans:
    """Return weighted means that stand for the rows (n, d) where k clusters of them are looked for; arguments as above.

    A level keeps as many means as a piece has rows at most; then they are replaced by those of the next level.
    """
    draws = max(k, _FEWEST)
    if rows is None:
        rows = max(_ROWS_PER_MEAN * ROUNDS * draws, PIECE // (8 * X.shape[1]))
    if len(X) <= rows:
        return _WeightedMeans(np.array(X), np.ones(len(X)))
    levels: list[list[_WeightedMeans]] = []
    for start in range(0, len(X), rows):
        stop_if(aborted, f"at row {start} of {len(X)} while the rows of k-means were read")
        piece = np.array(X[start : start + rows])
        kept = _weighted_means(piece, np.ones(len(piece)), draws, rng)
        for level in levels:
            level.append(kept)
            if sum(len(each.means) for each in level) <= rows:
                break
            kept = _weighted_means(*_joined(level), draws, rng)
            level.clear()
        else:
            levels.append([kept])
    return _joined([kept for level in levels for kept in level])


def _weighted_means(rows: FloatArray, weights: FloatArray, draws: int, rng: np.random.Generator) -> _WeightedMeans:
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
    sums, mass = np.zeros((found, rows.shape[1])), np.zeros(found)
    kernels.add_to_sums(rows, weights, origin, labels, sums, mass)
    used = mass > 0  # of equal rows drawn together the first has them all
    return _WeightedMeans(origin + sums[used] / mass[used, None], mass[used])


def _joined(kept: list[_WeightedMeans]) -> _WeightedMeans:
    means, weights = map(np.concatenate, zip(*kept, strict=True))
    return _WeightedMeans(means, weights)


def of_all_rows(
    X: FloatArray, centroids: FloatArray, *, n_iter: int = 0, aborted: AbortCheck = never_abort
) -> Clustering:
    """Return the clustering of the rows (n, d) nearest to each of the centroids (k, d), with their means, in one pass."""
    k, d = centroids.shape
    origin, labels, inertia = centroids.mean(axis=0), np.empty(len(X), np.int64), 0.0
    total = np.zeros((k, d))
    for part in pieces(*X.shape):
        stop_if(aborted, f"at row {part.start} of {len(X)} while the rows of k-means were read")
        rows, sums = np.array(X[part]), np.zeros((k, d))
        labels[part], squared = assign(rows, centroids)
        kernels.add_to_sums(rows, np.ones(len(rows)), origin, labels[part], sums, np.zeros(k))
        total += sums
        inertia += float(squared.sum())
    counts = np.bincount(labels, minlength=k)
    used = counts > 0
    means = origin + total[used] / counts[used, None]
    inertia -= float((counts[used, None] * (means - centroids[used]) ** 2).sum())
    return Clustering(means, (np.cumsum(used) - 1)[labels], counts[used], max(inertia, 0.0), n_iter)
