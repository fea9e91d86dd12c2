"""What many small sites send, step by step; the functions that say what a single site sends are the oracle of each."""

from typing import Literal

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core import kernels
from flareclust.core.devices.ragged import Entries, Ragged
from flareclust.core.devices.site_kernels import (
    MOST_SUMMED,
    computable,
    lloyd_from,
    may_be_described,
    means_by_label,
    pairwise_sum,
    plusplus,
    start_stream,
    trusted_means,
)
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.group_kernels import add_assessed
from flareclust.core.pyramid import FEWEST_ROWS
from flareclust.core.runtime import kernel
from flareclust.core.spectral import projected

#: How sites find their clusters: `seed_cells`, `local_clusters` or `spectral.local_kmeans`.
Way = Literal["cells", "kmeans", "spectral"]

_WAYS: dict[Way, int] = {"cells": 0, "kmeans": 1, "spectral": 2}


def fits(k: int, d: int) -> bool:
    """Return whether the loops compute for k clusters in d columns what NumPy does: one column is added up otherwise."""
    return 2 <= d <= MOST_SUMMED and k <= MOST_SUMMED


def clusters_of_each(devices: Ragged, way: Way, seed: int, round_: int, k: int, min_count: int) -> Entries:
    """Return each site's own clusters that may be sent: `centroids` and `counts`."""
    centroids, counts = np.empty((devices.m * k, devices.d)), np.empty(devices.m * k, np.int64)
    sizes = np.empty(devices.m, np.int64)
    if way == "spectral":
        flat, at = _projections(devices, k, min_count)
    else:
        flat, at = np.empty(0), np.zeros(devices.m + 1, np.int64)
    _cluster_each(*devices, flat, at, seed, round_, k, min_count, _WAYS[way], centroids, counts, sizes)
    return _cut({"centroids": centroids, "counts": counts}, {}, sizes)


def updates_of_each(devices: Ragged, centers: FloatArray, min_count: int) -> Entries:
    """Return each site's part of one update of centers (k, d): `centroids`, `counts`, `cluster` and the total `inertia`."""
    m, (k, d) = devices.m, centers.shape
    centroids, counts, cluster = np.empty((m * k, d)), np.empty(m * k, np.int64), np.empty(m * k, np.int64)
    inertia, sizes = np.zeros(m), np.empty(m, np.int64)
    _update_each(devices.values, devices.starts, centers, min_count, centroids, counts, cluster, inertia, sizes)
    return _cut({"centroids": centroids, "counts": counts, "cluster": cluster}, {"inertia": inertia}, sizes)


def assessments_of_each(devices: Ragged, centers: FloatArray, min_count: int) -> Entries:
    """Return each site's sums of the assessment: `counts` and `scatter` by center, and the totals `sse` and `silhouette`."""
    m, k = devices.m, len(centers)
    counts, scatter = np.empty((m, k), np.int64), np.empty((m, k))
    sse, silhouette, sizes = np.zeros(m), np.zeros(m), np.empty(m, np.int64)
    _assess_each(devices.values, devices.starts, centers, min_count, counts, scatter, sse, silhouette, sizes)
    there = sizes >= 0
    fields = {"counts": counts[there].ravel(), "scatter": scatter[there].ravel()}
    return Entries(fields, {"sse": sse, "silhouette": silhouette}, sizes)


def _cut(fields: dict[str, FloatArray | IntArray], totals: dict[str, FloatArray], sizes: IntArray) -> Entries:
    """Return entries without the room that was left, which is most of it where sites send few."""
    end = int(np.maximum(sizes, 0).sum())
    return Entries({name: value[:end].copy() for name, value in fields.items()}, totals, sizes)


def _projections(devices: Ragged, k: int, min_count: int) -> tuple[FloatArray, IntArray]:
    """Return the coordinates of `spectral.projected` of each site's rows, one site after the other, and where they begin.

    Sites with as many rows are projected together; the caller sees to BLAS having one thread (`flareclust.core.runtime`).
    """
    values, rows, d = devices.values, np.diff(devices.starts), devices.values.shape[1]
    clusters = np.maximum(np.minimum(k, rows // max(min_count, 1)), 1)
    width = np.where(clusters >= np.minimum(rows, d), d, clusters)
    at = np.concatenate([[0], np.cumsum(rows * width)])
    if (width == d).all():
        return values.ravel(), at
    flat = np.empty(int(at[-1]))
    for n, w in np.unique(np.stack([rows, width], axis=1), axis=0).tolist():
        own = np.flatnonzero((rows == n) & (width == w))
        block = values[devices.starts[own][:, None] + np.arange(n)]
        usable = np.isfinite(block).all(axis=(1, 2))  # the others are asked by themselves
        found = np.zeros((len(own), n, w))
        found[usable] = projected(block[usable], w)
        flat[at[own][:, None] + np.arange(n * w)] = found.reshape(len(own), n * w)
    return flat, at


# Compiled loops over many small sites: what each would send, end to end in one array.
#
# Arrays that are filled here: `centroids` (at least m k, d), `counts` and the like (at least m k,), and `sizes` (m,): how many of
# them are of each site, or -1 for a site that is not computed here and is asked by itself. A site is computed here where
# nothing is out of the ordinary: its numbers can be computed with, it has `min_count` rows, and it has something to send or
# may send nothing.

#: Iterations of Lloyd's algorithm, as `flareclust.core.lloyd.kmeans` and `lloyd` have them by default.
_MOST_ITERATIONS = 300

#: What `kmeans` stops at.
_TOL = 1e-4


@kernel()
def _ordinary(X: FloatArray, min_count: int) -> bool:
    """Return whether a site's rows are computed here."""
    return bool(max(min_count, 1) <= X.shape[0] < FEWEST_ROWS and computable(X))


@kernel()
def _cluster_each(
    values: FloatArray,
    starts: IntArray,
    sites: IntArray,
    projected: FloatArray,
    at: IntArray,
    seed: int,
    round_: int,
    k: int,
    min_count: int,
    way: int,
    centroids: FloatArray,
    counts: IntArray,
    sizes: IntArray,
) -> None:
    """Cluster the rows of each site, values[starts[i]:starts[i + 1]] (n_i, d), from seeds of k-means++.

    Ways: 0, the means of the seeds' cells (`seed_cells`); 1, k-means (`local_clusters`); 2, k-means from the rows that are
    trusted to seeds of the projected rows (`local_kmeans`), which lie in projected[at[i]:at[i + 1]].
    """
    d, end = values.shape[1], 0
    state = np.empty(4, np.uint64)
    for i in range(sizes.shape[0]):
        X = values[starts[i] : starts[i + 1]]
        sizes[i] = -1
        if not _ordinary(X, min_count):
            continue
        n = X.shape[0]
        start_stream(seed, round_, sites[i], state)
        most = min(k, n // max(min_count, 1))
        labels, squared = np.empty(n, np.int64), np.empty(n)
        if way == 2:
            P = projected[at[i] : at[i + 1]].reshape(n, (at[i + 1] - at[i]) // n)
            seeds = np.empty((most, P.shape[1]))
            found = plusplus(P, most, state, seeds)
            centers = np.empty((found, d))
            trusted_means(X, P, seeds[:found], centers)
            found = lloyd_from(X, centers, _MOST_ITERATIONS, 0.0, labels)
        else:
            seeds = np.empty((most, d))
            found = plusplus(X, most, state, seeds)
            if way == 1:
                found = lloyd_from(X, seeds[:found], _MOST_ITERATIONS, _TOL, labels)
            else:
                kernels.nearest_centroids(X, seeds[:found], labels, squared)
        kept = _kept(X, labels, found, min_count, centroids, counts, end)
        sizes[i], end = kept if kept > 0 else -1, end + max(kept, 0)


@kernel()
def _kept(
    X: FloatArray, labels: IntArray, k: int, min_count: int, centroids: FloatArray, counts: IntArray, end: int
) -> int:
    """Write down the clusters that may be described, behind the first `end`; return how many."""
    means, rows, keep = np.empty((k, X.shape[1])), np.empty(k, np.int64), np.empty(k, np.bool_)
    means_by_label(X, labels, means, rows)
    kept: int = may_be_described(X, labels, means, rows, min_count, keep)
    for c in range(k):
        if keep[c] and kept > 0:
            centroids[end], counts[end] = means[c], rows[c]
            end += 1
    return kept


@kernel()
def _update_each(
    values: FloatArray,
    starts: IntArray,
    centers: FloatArray,
    min_count: int,
    centroids: FloatArray,
    counts: IntArray,
    cluster: IntArray,
    inertia: FloatArray,
    sizes: IntArray,
) -> None:
    """Compute each site's part of one update of centers (k, d): `lloyd_update`, and the squared distances to the centers.

    cluster[e] says which center entry e is of, and inertia (m,) is of the rows behind a site's entries of `LEAST_ROWS` or more.
    """
    k, d = centers.shape
    end = 0
    means, rows = np.empty((k, d)), np.empty(k, np.int64)
    keep, sse = np.empty(k, np.bool_), np.empty(k)
    for i in range(sizes.shape[0]):
        X = values[starts[i] : starts[i + 1]]
        sizes[i] = -1
        if not _ordinary(X, min_count):
            continue
        labels, squared = np.empty(X.shape[0], np.int64), np.empty(X.shape[0])
        kernels.nearest_centroids(X, centers, labels, squared)
        means_by_label(X, labels, means, rows)
        sizes[i] = may_be_described(X, labels, means, rows, min_count, keep)
        if sizes[i] < 0:
            continue
        kernels.own_distances(X, centers, labels, squared)
        sse[:] = 0.0
        for row in range(X.shape[0]):
            if keep[labels[row]] and rows[labels[row]] >= LEAST_ROWS:
                sse[labels[row]] += squared[row]
        inertia[i] = pairwise_sum(sse)
        for c in range(k):
            if keep[c]:
                centroids[end], counts[end], cluster[end] = means[c], rows[c], c
                end += 1


@kernel()
def _assess_each(
    values: FloatArray,
    starts: IntArray,
    centers: FloatArray,
    min_count: int,
    counts: IntArray,
    scatter: FloatArray,
    sse: FloatArray,
    silhouette: FloatArray,
    sizes: IntArray,
) -> None:
    """Add up the rows nearest to each of the centers (k, d) as `assessment_sums` does: counts and scatter (m, k), and totals (m,)."""
    k = centers.shape[0]
    for i in range(sizes.shape[0]):
        X = values[starts[i] : starts[i + 1]]
        counts[i], scatter[i], sizes[i] = 0, 0.0, -1
        if not _ordinary(X, min_count):
            continue
        n = X.shape[0]
        labels, squared, second = np.empty(n, np.int64), np.empty(n), np.empty(n)
        kernels.two_nearest(X, centers, labels, squared, second)
        squares, silhouettes = np.zeros(k), np.zeros(k)
        add_assessed(labels, squared, second, counts[i], squares, silhouettes, scatter[i])
        sizes[i] = k
        sse[i], silhouette[i] = pairwise_sum(squares), pairwise_sum(silhouettes)
