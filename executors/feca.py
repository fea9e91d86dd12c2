"""FeCA, the client's side: local k-means, removal of one-fit-many centroids, a radius for each one kept.

Source: Xu, Chen, Chao, Zhang, "Jigsaw Game: Federated Clustering" (2024): Algorithm 2 (ClientUpdate), Algorithm 3
(RadiusAssign, theoretical), Algorithm 4 (RadiusAssign, empirical).

Readings where the paper is open, and deviations from it:
1. Line 2 of Algorithm 2: k-means with greedy k-means++ starts, `n_init` of them (default 1), or random ones. Each
   centroid is then put at the mean of its rows, which it is not quite where k-means stopped on its tolerance.
2. Line 4, "largest standard deviation": root mean square distance of the cluster's rows to its centroid. (Appendix A.1
   speaks of the standard deviation of the distances, with which the paper's figures cannot be had.)
3. Lines 7-9: after a removal nothing else changes: the rows of the removed cluster join no other, Lloyd is not run
   again. The pair that was merged for the test stays apart (`after_removal="drop"`) or merged ("merge").
4. The loop ends when fewer than two centroids are left.
5. Algorithms 3 and 4: distances are to the nearest centroid that is sent. A single one has no neighbour: its radius
   is the largest distance of its rows. Algorithm 3 goes through the centroids in order and works on the shrinking set;
   where fewer than two survive, it falls back on all centroids for the smallest distance.
6. Algorithms 2 to 4 take the first of equal candidates. The pair (p, q) is not merged where i is one of it. k-means
   stops after 300 iterations or when the centroids hardly move (scikit-learn's tolerance), and finds fewer than k
   clusters where there are fewer different rows.
7. Not in the paper: a site with fewer than k rows refuses. Clusters below `min_count` rows, or whose centroid is a row,
   are not sent, and do not count as neighbours either, because twice a radius would lead to them. With
   `small_clusters="dissolve"` clusters below `min_count` rows join others before Algorithm 2 removes any. With
   `local_kmeans="summary"` k-means runs on a summary of the rows (`flareclust.core.local`).
8. Not in the paper: where a cluster's rows differ in one column only, its centroid and the largest distance of its rows
   would together be a row; that distance is raised to the next number of two digits.
"""

from typing import Literal, NamedTuple

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.chunks import pieces
from flareclust.core.disclosure import varies_in_one_feature
from flareclust.core.lloyd import member_statistics
from flareclust.core.local import clusters_to_send, dissolve_small, own_kmeans
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.settings import MISSING_CELLS, LocalKMeansParams, MetricParams, Missing, SmallClustersParams
from flareclust.protocol.params import MOST_STARTS, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task


class LocalClusters(NamedTuple):
    """Local clusters: centroids (k, d), counts (k,) and objective values sse (k,) (eq. 3), in the same order."""

    centroids: FloatArray
    counts: IntArray
    sse: FloatArray


class FeCAParams(LocalKMeansParams, SmallClustersParams, MetricParams):
    """Parameters of FeCA."""

    missing: Missing = MISSING_CELLS

    n_init: int = site(1, "Starts of the local k-means; the best one counts.", ge=1, le=MOST_STARTS)
    init: Literal["k-means++", "random"] = site("k-means++", "How a start is drawn: greedy k-means++ or random rows.")
    after_removal: Literal["drop", "merge"] = site(
        "drop", "After a removal the tested pair stays apart (drop) or merged (merge)."
    )
    radius: Literal["empirical", "theoretical"] = site(
        "empirical", "Algorithm 4, a radius for each centroid, or Algorithm 3, one for all."
    )


class FeCAExecutor(ClusteringExecutor):
    """A site of FeCA: sends the centroids it trusts, each with a radius."""

    params: FeCAParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", radii=real("k", minimum=0)))}

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Run Algorithm 2 and the chosen RadiusAssign."""
        if len(rows.X) < self.params.k:
            raise Refusal(f"has fewer rows than k={self.params.k}")
        rows = rows.settled(self.params.k)
        clustering = own_kmeans(
            rows.X,
            self.params.k,
            rows.rng,
            n_init=self.params.n_init,
            init=self.params.init,
            local_kmeans=self.params.local_kmeans,
            aborted=rows.aborted,
        )
        if self.params.small_clusters == "dissolve":
            clustering = dissolve_small(rows.X, clustering, rows.context.min_count)
        statistics = member_statistics(rows.X, clustering.labels, clustering.centroids)
        clusters, origin = remove_one_fit_many(
            LocalClusters(clustering.centroids, clustering.counts, statistics.sse), self.params.after_removal
        )
        labels = relabel(clustering.labels, origin)
        kept = clustering._replace(centroids=clusters.centroids, labels=labels, counts=clusters.counts)
        centroids, _, labels, _ = clusters_to_send(rows.X, kept, rows.context.min_count, known=rows.known)
        reach = member_statistics(rows.X, labels, centroids).max_distance
        if (revealing := varies_in_one_feature(rows.X, labels, len(centroids))).any():
            reach = np.where(revealing, coarse(reach), reach)
        return {"centroids": centroids, "radii": _RADIUS_ASSIGN[self.params.radius](centroids, reach)}


def remove_one_fit_many(
    clusters: LocalClusters, after_removal: str = "drop"
) -> tuple[LocalClusters, list[tuple[int, ...]]]:
    """Remove the centroids that stand between several true clusters (Algorithm 2, lines 3-13).

    Returns:
        The remaining clusters, and for each the indices in the input that it is made of.
    """
    origin: list[tuple[int, ...]] = [(i,) for i in range(len(clusters.counts))]
    distances = _distances_between(clusters.centroids)
    while len(origin) >= 2:
        i = int((clusters.sse / clusters.counts).argmax())  # largest rms distance (reading 2)
        p, q = sorted(divmod(int(distances.argmin()), len(distances)))  # the closest two
        if clusters.sse[i] < _merged_sse(clusters, p, q):
            break
        removed = [i]
        if after_removal == "merge" and i not in (p, q):
            n_p, n_q = clusters.counts[p], clusters.counts[q]
            center = (n_p * clusters.centroids[p] + n_q * clusters.centroids[q]) / (n_p + n_q)  # line 6
            clusters = LocalClusters(
                np.vstack([clusters.centroids, center]),
                np.append(clusters.counts, n_p + n_q),
                np.append(clusters.sse, _merged_sse(clusters, p, q)),
            )
            origin, removed = [*origin, origin[p] + origin[q]], [i, p, q]
            distances = _distances_between(clusters.centroids)
        kept = [index for index in range(len(origin)) if index not in removed]
        clusters = LocalClusters(clusters.centroids[kept], clusters.counts[kept], clusters.sse[kept])
        origin, distances = [origin[index] for index in kept], distances[np.ix_(kept, kept)]
    return clusters, origin


def _merged_sse(clusters: LocalClusters, p: int, q: int) -> float:
    """Return the sum of squares of the clusters p and q merged, which follows from theirs (eq. 4)."""
    n_p, n_q = int(clusters.counts[p]), int(clusters.counts[q])
    squared_distance = float(((clusters.centroids[p] - clusters.centroids[q]) ** 2).sum())
    return float(clusters.sse[p]) + float(clusters.sse[q]) + n_p * n_q / (n_p + n_q) * squared_distance


def relabel(labels: IntArray, origin: list[tuple[int, ...]]) -> IntArray:
    """Return the labels (n,) after a removal: positions in `origin`, -1 for rows of clusters that are not in it."""
    places = [(source, position) for position, sources in enumerate(origin) for source in sources]
    new = np.full(labels.max() + 2, -1, dtype=np.int64)  # the last entry is that of rows without a cluster before
    new[[source for source, _ in places]] = [position for _, position in places]
    return new[labels]


def _distances_between(centroids: FloatArray) -> FloatArray:
    """Return the distances (k, k) between the centroids (k, d), infinite on the diagonal."""
    k, d = centroids.shape
    distances = np.empty((k, k))
    for part in pieces(k, k * d):
        distances[part] = np.sqrt(((centroids[part, None] - centroids[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distances, np.inf)
    return distances


def empirical_radii(centroids: FloatArray, reach: FloatArray) -> FloatArray:
    """Return a radius (k,) per centroid (k, d): the smaller of reach and half the way to its neighbour (Algorithm 4).

    The reach (k,) of a cluster is the largest distance of its rows to the centroid.
    """
    radii: FloatArray = np.minimum(reach, _distances_between(centroids).min(axis=1) / 2)
    return radii


def _theoretical_radii(centroids: FloatArray, reach: FloatArray) -> FloatArray:
    """Return one radius for all (k,): half the smallest distance of centroids that overlap no other (Algorithm 3)."""
    k = len(centroids)
    if k == 1:
        return reach.copy()
    distances, alone = _distances_between(centroids), np.ones(k, dtype=bool)
    for i in range(k):
        if alone[i] and alone.sum() > 1:
            j = int(np.argmin(np.where(alone, distances[i], np.inf)))
            if reach[i] + reach[j] > distances[i, j]:
                alone[[i, j]] = False
    distinct = distances[np.ix_(alone, alone)] if alone.sum() > 1 else distances
    return np.full(k, distinct.min() / 2)


def coarse(reach: FloatArray) -> FloatArray:
    """Return the distances (k,) raised to the next number of two significant digits, also from a hair below one; 0 stays."""
    positive = np.where(reach > 0, reach, 1.0)
    step = 10.0 ** (np.floor(np.log10(positive)) - 1)
    return np.where(reach > 0, (np.floor(positive / step * (1 + 1e-9)) + 1) * step, 0.0)


_RADIUS_ASSIGN = {"empirical": empirical_radii, "theoretical": _theoretical_radii}
