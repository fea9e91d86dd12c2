"""The clustering of a site's own rows, by a method and a number of clusters of the site's choice.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": the local phases of
Algorithms 1 and 2, which leave the method and K_i to each participant and name the silhouette for the choice of K_i.

Readings where the paper is open, and deviations from it:
1. What is sent is always the mean of a cluster's rows. A medoid, which the paper may send as well, is a row.
2. k-medoids is the alternating method: rows go to the nearest medoid, and a cluster's medoid is the member whose
   distances to the others add up to least. scikit-learn has none.
3. The silhouette compares 2 to k clusters on at most `SILHOUETTE_ROWS` rows, drawn once; of equal ones the smaller
   number counts. It cannot see that there is a single cluster.
4. Agglomeration has no start, so a method that takes one goes on from centroids: k-means. A cluster that loses all rows
   on the way is dropped, so that none is moved to rows far away.
5. A site with fewer than `min_count` rows per cluster uses fewer clusters.
6. k-medoids and agglomeration compare all pairs of rows: beyond `PAIRS_OF_ROWS` rows the site refuses.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from flareclust._foundation.errors import Refusal, UserError, stop_if
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust._foundation.validation import check_choice, check_int, did_you_mean
from flareclust.core.disclosure import check_enough, disclosable_clusters
from flareclust.core.lloyd import Clustering, assign, kmeans, labels_of, recompute_centroids
from flareclust.core.local import Sendable, sendable
from flareclust.core.seeds import kmeans_plusplus

_log = logging.getLogger(__name__)

_CLUSTERERS_AT_SITES = ("kmeans", "kmedoids", "agglomerative")

#: The value of `k_local` that lets a site choose its number of clusters.
_SILHOUETTE = "silhouette"

#: Rows that the silhouette looks at, and the most rows whose pairs may all be compared.
SILHOUETTE_ROWS, PAIRS_OF_ROWS = 2_000, 10_000

_MEDOID_ITERATIONS = 100
_BLOCK = 1_000

# Sums of distances that differ by less, relatively, are equal: in a pair either member is as good as the other.
_SAME = 1e-7

#: A number, SILHOUETTE, or None for k.
_KLocal = int | str | None

#: Clusters the same rows into the number asked for, or into fewer.
_ByNumber = Callable[[int], Clustering]

_T = TypeVar("_T")


def site_clusters(
    data: FloatArray,
    k: int,
    rng: np.random.Generator,
    *,
    k_local: _KLocal = None,
    clusterer: str = "kmeans",
    n_init: int = 10,
    min_count: int,
    aborted: AbortCheck,
) -> Sendable:
    """Cluster a site's rows and return the clusters that may be described to others, with the means of their rows.

    The same arguments and a generator in the same state give the same clusters, so that a site can repeat them.

    Args:
        data: rows (n, d).
        k: number of clusters of the federation; no site has more.
        rng: the only source of randomness.
        k_local: K_i: a number, "silhouette" for the best of 2 to k, or None for k.
        clusterer: one of `_CLUSTERERS_AT_SITES`.
        n_init: runs of k-means and of k-medoids; the best one counts.
        min_count: smallest number of rows of a cluster that is returned.
        aborted: asked on the way, except within scikit-learn's agglomeration.

    Raises:
        Refusal: the site has fewer than `min_count` rows, too many for this clusterer, or nothing it may send.
        Aborted: `aborted()` became true.
    """
    check_enough(data, min_count)
    maximum, cluster = min(k, len(data) // min_count), _clustering(data, rng, clusterer, n_init, aborted)
    if k_local == _SILHOUETTE:
        found = _best_by_silhouette(data, maximum, cluster, rng, aborted)
    else:
        found = cluster(maximum if k_local is None else min(int(k_local), maximum))
    found = recompute_centroids(data, found)
    return sendable(found, disclosable_clusters(data, found.labels, found.centroids, min_count))


def refine(data: FloatArray, start: FloatArray, *, clusterer: str, local_iter: int, aborted: AbortCheck) -> Clustering:
    """Go on from centroids (c, d) for a few iterations on a site's rows (n, d).

    k-medoids starts from the rows nearest to the centroids; everything else goes on with k-means.

    Returns:
        At most c clusters in any order, each with the mean of its own rows.
    """
    if clusterer == "kmedoids":
        nearest_rows = np.unique(labels_of(start, data))  # the first of equally near ones, so of equal rows
        return recompute_centroids(data, _kmedoids(data, nearest_rows, local_iter, aborted))
    found = _cells(data, start)
    for _ in range(local_iter - 1):
        stop_if(aborted, "while clusters were refined")
        moved = _cells(data, found.centroids)
        if np.array_equal(moved.labels, found.labels):
            break
        found = moved
    return found


# ---- settings ----


def check_clusterer(clusterer: object) -> str | dict[str, str]:
    """Return `clusterer` if it is one of `_CLUSTERERS_AT_SITES`, or such by site name; else raise UserError."""
    return _each("clusterer", clusterer, lambda what, value: check_choice(what, value, _CLUSTERERS_AT_SITES))


def check_k_local(k_local: object, k: int) -> _KLocal | dict[str, int | str]:
    """Return `k_local` if it is None, "silhouette", a number in 1..k, or such by site name; else raise UserError."""
    return None if k_local is None else _each("k_local", k_local, lambda what, value: _check_one(what, value, k))


def _each(name: str, setting: object, check: Callable[[str, object], _T]) -> _T | dict[str, _T]:
    """Return a setting, or that of each site, as `check` does with its name and value."""
    if isinstance(setting, Mapping):
        return {str(site): check(f"{name} of {site}", value) for site, value in setting.items()}
    return check(name, setting)


def _check_one(what: str, value: object, k: int) -> int | str:
    if isinstance(value, str):
        if value != _SILHOUETTE:
            raise UserError(
                f'{what} must be an integer, "{_SILHOUETTE}", or such by site name; got {value!r}'
                f"{did_you_mean(value, [_SILHOUETTE])}"
            )
        return _SILHOUETTE
    number = check_int(what, value, minimum=1)
    if number > k:
        raise UserError(f"{what} is {number}, more than k={k}: a site cannot have more clusters than the federation")
    return number


def of_site(setting: _T | Mapping[str, _T], site: str, otherwise: _T) -> _T:
    """Return a setting's value for one site; `otherwise` where it is a table that does not name the site."""
    return setting.get(site, otherwise) if isinstance(setting, Mapping) else setting


def warn_of_unknown_sites(name: str, setting: object, sites: Sequence[str]) -> None:
    """Warn where a setting names a site that is not there: a late one, or a misspelt one."""
    if isinstance(setting, Mapping):
        for site in sorted(set(setting) - set(sites)):
            _log.warning("%s names %r%s, which is none of the sites", name, site, did_you_mean(site, sites))


# ---- methods ----


def _kmedoids(data: FloatArray, medoids: IntArray, max_iter: int, aborted: AbortCheck) -> Clustering:
    """Run alternating k-medoids from the rows `medoids` (k,), no two of them equal.

    Returns:
        The clusters with the medoids as their centroids. `inertia` is the sum of distances to them, not squared.
    """
    labels, squared = assign(data, data[medoids])
    for iteration in range(1, max_iter + 1):
        stop_if(aborted, f"after {iteration - 1} iterations of k-medoids")
        moved = np.array([_medoid(data, np.flatnonzero(labels == r)) for r in range(len(medoids))])
        if np.array_equal(moved, medoids):
            break
        medoids = moved
        labels, squared = assign(data, data[medoids])
    counts = np.bincount(labels, minlength=len(medoids))
    return Clustering(data[medoids], labels, counts, float(np.sqrt(squared).sum()), iteration)


def _clustering(
    data: FloatArray, rng: np.random.Generator, clusterer: str, n_init: int, aborted: AbortCheck
) -> _ByNumber:
    """Return the clusterer of this name on these rows; what does not depend on the number of clusters is done here."""
    if clusterer == "kmeans":
        return lambda k: kmeans(data, k, rng, n_init=n_init, aborted=aborted)
    if len(data) > PAIRS_OF_ROWS:
        raise Refusal(
            f'has more than {PAIRS_OF_ROWS} rows, and {clusterer} compares all pairs of rows; set clusterer="kmeans" '
            "for it"
        )
    if clusterer == "kmedoids":
        return lambda k: _best_kmedoids(data, k, rng, n_init, aborted)
    merged = _ward_tree(data)
    return lambda k: _as_clustering(data, _cut(merged, k))


def _best_kmedoids(data: FloatArray, k: int, rng: np.random.Generator, n_init: int, aborted: AbortCheck) -> Clustering:
    starts = (kmeans_plusplus(data, k, rng, aborted=aborted)[1] for _ in range(n_init))
    return min((_kmedoids(data, start, _MEDOID_ITERATIONS, aborted) for start in starts), key=lambda c: c.inertia)


def _medoid(data: FloatArray, members: IntArray) -> int:
    """Return the member whose distances to the others (all rows of data) add up to least; of equal ones the first."""
    from sklearn.metrics import pairwise_distances

    rows = data[members] - data[members].mean(axis=0)  # distances by products lose digits far from the origin
    totals = np.empty(len(rows))
    for at in range(0, len(rows), _BLOCK):
        distances = pairwise_distances(rows[at : at + _BLOCK], rows)
        block = np.arange(len(distances))
        distances[block, at + block] = 0.0
        totals[at + block] = distances.sum(axis=1)
    return int(members[np.argmax(totals <= totals.min() * (1 + _SAME))])


def _ward_tree(data: FloatArray) -> IntArray:
    """Return what Ward's method merged in each step (n - 1, 2): rows by number, and n + step for what a step made."""
    if len(data) == 1:
        return np.empty((0, 2), dtype=np.int64)
    from sklearn.cluster import AgglomerativeClustering

    merged: IntArray = AgglomerativeClustering(n_clusters=1, compute_full_tree=True).fit(data).children_
    return merged.astype(np.int64)


def _cut(merged: IntArray, k: int) -> IntArray:
    """Return the labels (n,) of the k clusters that are left before the last k - 1 merges."""
    n = len(merged) + 1
    own = np.arange(n + len(merged))
    for step in range(n - k - 1, -1, -1):
        own[merged[step]] = own[n + step]
    return np.unique(own[:n], return_inverse=True)[1].astype(np.int64)


def _as_clustering(data: FloatArray, labels: IntArray) -> Clustering:
    """Return the clusters that labels (n,) in 0..k-1 make of the rows, none empty, each with its mean."""
    counts = np.bincount(labels)
    return recompute_centroids(data, Clustering(np.empty((len(counts), data.shape[1])), labels, counts, 0.0, 0))


def _cells(data: FloatArray, centroids: FloatArray) -> Clustering:
    """Return the clusters of the rows nearest to each centroid that has any, each with its mean: one Lloyd update."""
    labels = np.unique(labels_of(data, centroids), return_inverse=True)[1]
    return _as_clustering(data, labels.astype(np.int64))


def _best_by_silhouette(
    data: FloatArray, maximum: int, cluster: _ByNumber, rng: np.random.Generator, aborted: AbortCheck
) -> Clustering:
    """Return the clustering into 2 to `maximum` clusters with the largest mean silhouette, or a single cluster."""
    from sklearn.metrics import pairwise_distances, silhouette_score

    n = len(data)
    seen = np.arange(n) if n <= SILHOUETTE_ROWS else np.sort(rng.choice(n, SILHOUETTE_ROWS, replace=False))
    rows = data[seen] - data[seen].mean(axis=0)
    distances = pairwise_distances(rows)
    np.fill_diagonal(distances, 0.0)
    best, highest = None, -np.inf
    for k in range(2, maximum + 1):
        stop_if(aborted, f"before the silhouette of {k} clusters")
        found = cluster(k)
        labels = found.labels[seen]
        if 1 < len(np.unique(labels)) < len(labels):
            score = float(silhouette_score(distances, labels, metric="precomputed"))
            if score > highest:
                best, highest = found, score
    return cluster(1) if best is None else best
