"""What many small sites send, step by step; the functions that say what a single site sends are the oracle of each."""

from typing import Literal

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.devices import loops
from flareclust.core.devices.ragged import Entries, Ragged
from flareclust.core.devices.site_kernels import MOST_SUMMED
from flareclust.core.spectral import projected

#: How sites find their clusters: `seed_cells`, `local_clusters` or `spectral.local_kmeans`.
Way = Literal["cells", "kmeans", "spectral"]

_WAYS: dict[Way, int] = {"cells": 0, "kmeans": 1, "spectral": 2}


def fits(k: int, d: int) -> bool:
    """Return whether the loops compute for k clusters in d columns what NumPy does: one column is added up otherwise."""
    return 2 <= d <= MOST_SUMMED and k <= MOST_SUMMED


def clusters_of_each(devices: Ragged, way: Way, seed: int, round_: int, k: int, min_count: int) -> Entries:
    """Return each site's own clusters that may be sent: `centroids` and `counts`."""
    d = devices.values.shape[1]
    centroids, counts = np.empty((devices.m * k, d)), np.empty(devices.m * k, np.int64)
    sizes = np.empty(devices.m, np.int64)
    if way == "spectral":
        flat, at = _projections(devices, k, min_count)
    else:
        flat, at = np.empty(0), np.zeros(devices.m + 1, np.int64)
    loops.clusters_of_each(
        devices.values,
        flat,
        devices.starts,
        at,
        devices.keys,
        seed,
        round_,
        k,
        min_count,
        _WAYS[way],
        centroids,
        counts,
        sizes,
    )
    return _cut({"centroids": centroids, "counts": counts}, {}, sizes)


def updates_of_each(devices: Ragged, centers: FloatArray, min_count: int) -> Entries:
    """Return each site's part of one update of centers (k, d): `centroids`, `counts`, `cluster` and the total `inertia`."""
    m, (k, d) = devices.m, centers.shape
    centroids, counts, cluster = np.empty((m * k, d)), np.empty(m * k, np.int64), np.empty(m * k, np.int64)
    inertia, sizes = np.zeros(m), np.empty(m, np.int64)
    loops.updates_of_each(
        devices.values, devices.starts, centers, min_count, centroids, counts, cluster, inertia, sizes
    )
    return _cut({"centroids": centroids, "counts": counts, "cluster": cluster}, {"inertia": inertia}, sizes)


def assessments_of_each(devices: Ragged, centers: FloatArray, min_count: int) -> Entries:
    """Return each site's sums of the assessment: `counts` and `scatter` by center, and the totals `sse` and `silhouette`."""
    m, k = devices.m, len(centers)
    counts, scatter = np.empty((m, k), np.int64), np.empty((m, k))
    sse, silhouette, sizes = np.zeros(m), np.zeros(m), np.empty(m, np.int64)
    loops.assessments_of_each(
        devices.values, devices.starts, centers, min_count, counts, scatter, sse, silhouette, sizes
    )
    there = sizes >= 0
    fields = {"counts": counts[there].ravel(), "scatter": scatter[there].ravel()}
    return Entries(fields, {"sse": sse, "silhouette": silhouette}, sizes)


def _cut(fields: dict[str, FloatArray | IntArray], totals: dict[str, FloatArray], sizes: IntArray) -> Entries:
    """Return entries without the room that was left, which is most of it where sites send few."""
    end = int(np.maximum(sizes, 0).sum())
    return Entries({name: value[:end].copy() for name, value in fields.items()}, totals, sizes)


def _projections(devices: Ragged, k: int, min_count: int) -> tuple[FloatArray, IntArray]:
    """Return the coordinates of `spectral.projected` of each site's rows, one site after the other, and where they begin.

    Sites with as many rows are projected together; the caller sees to BLAS having one thread (`flareclust.core.blas`).
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
