"""What a site computes in several algorithms: its own k-means, seeds, one Lloyd update; and what of it may be sent.

Each function returns clusters with their centroids and numbers of rows, from which those that may not be described to
others (`flareclust.core.disclosure`) are left out. Where nothing is left, what starts a federation raises `Refusal`; an
update returns nothing, since other centroids may give the site larger clusters in the next round.
"""

from typing import Literal, NamedTuple

import numpy as np

from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray
from flareclust.core.disclosure import (
    LEAST_ROWS,
    check_enough,
    describable,
    describable_where_known,
    disclosable_clusters,
)
from flareclust.core.group_kernels import rows_of_each
from flareclust.core.lloyd import Clustering, assign, kmeans, recompute_centroids
from flareclust.core.seeds import kmeans_plusplus
from flareclust.core.summary import summary_kmeans

Seeds = Literal["means", "rows"]

#: What becomes of local clusters below `min_count` rows: they are not sent, or join others.
SmallClusters = Literal["withhold", "dissolve"]

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
    return _sendable(found, np.arange(len(found.counts)), _may_leave(data, found, min_count, known=known))


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
    `min_count`. Clusters keep their order, and the clustering is the same where none is too small.

    Args:
        data: rows (n, d).
        found: their clustering into k clusters, with the means of the rows as centroids.
        min_count: smallest number of rows of a cluster.
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
    if seeds == "means":
        settled = recompute_centroids(data, cells)
        return _sendable(settled, np.arange(len(drawn)), _may_leave(data, settled, min_count, ones, known))
    kept = np.flatnonzero(cells.counts >= min_count)  # never none: the largest cell has n / k rows or more
    return Sendable(drawn[kept], cells.counts[kept], _relabel(labels, kept, len(drawn)), kept)


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

    Raises:
        Refusal: the site has fewer than `min_count` rows.
    """
    check_enough(data, min_count)
    asked = centroids if reported is None else centroids[reported]
    labels = assign(data, asked)[0] if len(asked) else np.full(len(data), -1, dtype=np.int64)
    if reported is not None:
        labels = np.append(np.flatnonzero(reported), -1)[labels]
    found, source = means_of_groups(data, labels, centroids)
    if not min_count:
        return _sendable(found, source, np.ones(len(source), dtype=np.bool_))
    mask = describable(data, found.labels, found.centroids, min_count, ones=ones)
    if known is not None:
        mask &= describable_where_known(data, known, found.labels, len(source), min_count)
    return _sendable(found, source, mask)


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


def _may_leave(
    data: FloatArray,
    found: Clustering,
    min_count: int,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
) -> BoolArray:
    return disclosable_clusters(data, found.labels, found.centroids, min_count, ones=ones, known=known)


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
    keep = np.flatnonzero(kept)
    return Sendable(found.centroids[keep], found.counts[keep], _relabel(labels, keep, len(kept)), found.source[keep])


def _may_be_known(rows: FloatArray, min_count: int) -> bool:
    """Return whether sums over these rows (n, d) may be known to others: there are none, or enough that differ."""
    if not len(rows):
        return True
    together = np.zeros(len(rows), dtype=np.int64)
    return bool(describable(rows, together, rows.mean(axis=0)[None], max(min_count, LEAST_ROWS))[0])


def _sendable(found: Clustering, source: IntArray, mask: BoolArray) -> Sendable:
    if mask.all():
        return Sendable(found.centroids, found.counts, found.labels, source)
    keep = np.flatnonzero(mask)
    labels = _relabel(found.labels, keep, len(found.counts))
    return Sendable(found.centroids[keep], found.counts[keep], labels, source[keep])


def _relabel(labels: IntArray, keep: IntArray, k: int) -> IntArray:
    new = np.full(k + 1, -1, dtype=np.int64)  # the last one for rows of no cluster, -1
    new[keep] = np.arange(len(keep))
    return new[labels]
