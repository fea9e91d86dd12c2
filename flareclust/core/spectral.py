"""Spectral k-means of Awasthi and Sheffet: seeds from the rows' projection, trusted rows around them, then Lloyd.

Source: Awasthi, Sheffet, "Improved spectral-norm bounds for clustering" (APPROX 2012), after Kumar and Kannan (2010);
the steps are numbered as in Algorithm 1 of Dennis, Li, Smith (2021), which prints them. k-FED runs `local_kmeans` at
its devices, distributed k-means++ `spectral_kmeans` at its server; they differ in the seeds only.

Readings where the source is open:
1. Step 2: the rows are not centred before the projection on the k leading right singular vectors. With k >= d (or n)
   the projection is the identity. The step asks for centers within a constant factor of the best clustering of the
   projected rows: seeds of greedy k-means++ have it up to log k, the best of ten runs of k-means nearly always.
2. Step 3: distances are not squared in the 1/3 test, and "every s" means every other seed. A seed without such rows
   takes the rows nearest to it instead.
3. Step 4: Lloyd runs until the labels no longer change, 300 iterations at the most; a cluster that loses all its rows
   takes the row farthest from its center.
4. Fewer than k clusters are found where there are fewer different rows.
"""

import numpy as np

from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, never_abort
from flareclust.core.chunks import means_of, pieces
from flareclust.core.devices.site_kernels import MOST_SUMMED, trusted_means
from flareclust.core.lloyd import Clustering, kmeans, lloyd, recompute_centroids
from flareclust.core.runtime import one_thread
from flareclust.core.seeds import kmeans_plusplus


def local_kmeans(data: FloatArray, k: int, rng: np.random.Generator, aborted: AbortCheck) -> Clustering:
    """Cluster rows (n, d) into at most k clusters, from seeds of greedy k-means++ (1 <= k <= n)."""
    projected = project(data, k)
    seeds, _ = kmeans_plusplus(projected, k, rng, aborted=aborted)
    return _from_centers(data, projected, seeds, aborted)


def spectral_kmeans(
    data: FloatArray, k: int, rng: np.random.Generator, *, n_init: int = 10, aborted: AbortCheck = never_abort
) -> Clustering:
    """Cluster rows (n, d) into at most k clusters, from the best of `n_init` runs of k-means on the projected rows."""
    projected = project(data, k)
    centers = kmeans(projected, k, rng, n_init=n_init, aborted=aborted).centroids
    return _from_centers(data, projected, centers, aborted)


def project(data: FloatArray, k: int) -> FloatArray:
    """Return the rows' coordinates (n, k) along the k leading right singular vectors; the rows themselves if k >= d."""
    with one_thread():  # the same sums in every process and thread, whatever runs beside it
        return projected(data, k)


def projected(data: FloatArray, k: int) -> FloatArray:
    """Do what `project` does, for rows (n, d) or several sites' rows (m, n, d), where BLAS has one thread already."""
    n, d = data.shape[-2:]
    if k >= min(n, d):
        return data
    # R has the singular vectors of the rows and their precision, which the Gram matrix has not.
    small = triangular(data) if n > d else data
    vectors = np.linalg.svd(small, full_matrices=False)[2][..., :k, :]
    return np.ascontiguousarray(data @ np.swapaxes(vectors, -1, -2))


def trusted_rows(projected: FloatArray, seeds: FloatArray) -> list[BoolArray]:
    """Return the rows of each S_r (n,): those at most a third as far from seed r as from any other (step 3)."""
    distances = np.empty((len(projected), len(seeds)))
    for part in pieces(*projected.shape):
        for r, seed in enumerate(seeds):
            distances[part, r] = np.sqrt(((projected[part] - seed) ** 2).sum(axis=1))
    nearest = distances.argmin(axis=1)
    two = np.partition(distances, 1, axis=1)[:, :2] if len(seeds) > 1 else np.full((len(distances), 2), np.inf)
    members = []
    for r, own in enumerate(distances.T):
        others = np.where(nearest == r, two[:, 1], two[:, 0])
        trusted = own <= others / 3
        members.append(trusted if trusted.any() else nearest == r)
    return members


def _from_centers(data: FloatArray, projected: FloatArray, centers: FloatArray, aborted: AbortCheck) -> Clustering:
    """Run steps 3 and 4 from centers nu of the projected rows."""
    k, (p, d) = len(centers), (projected.shape[1], data.shape[1])
    if p <= MOST_SUMMED and d > 1:  # which NumPy adds up in the order of the loop
        starts = np.empty((k, d))
        trusted_means(data, projected, centers, starts)
    else:
        starts = np.stack([means_of(data, row) for row in trusted_rows(projected, centers)])
    return recompute_centroids(data, lloyd(data, starts, tol=0.0, aborted=aborted))


#: A piece has so many times as many rows as columns.
_TIMES = 16


def triangular(rows: FloatArray) -> FloatArray:
    """Return R (..., d, d) with R'R = X'X for rows X (..., n, d), n >= d, as precise as NumPy's `qr(X, mode="r")`.

    From that of pieces of many rows, which stay in the cache, so that its rows may have other signs; three times as fast as of all rows at once.
    """
    n, d = rows.shape[-2:]
    step = _TIMES * d
    if n >= 2 * step:
        pieces = [np.asarray(np.linalg.qr(rows[..., first : first + step, :], mode="r")) for first in range(0, n, step)]
        rows = np.concatenate(pieces, axis=-2)
    return np.asarray(np.linalg.qr(rows, mode="r"))
