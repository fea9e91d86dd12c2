"""Quality of a clustering without true labels, from sums over rows that sites may add up.

Each site computes `assessment_sums` on its own rows with the common centroids; the entries of the dicts are added
over the sites, and `label_free_metrics` of the totals equals what pooling all rows would give.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.arrays import as_centroids, as_matrix
from flareclust.core.chunks import pieces
from flareclust.core.group_kernels import add_assessed
from flareclust.core.kernels import two_nearest
from flareclust.core.threads import Team, team

Distances = Callable[[FloatArray], FloatArray]

SUMS = ("counts", "sse", "silhouette", "scatter")
#: Those whose sum over all clusters is enough.
TOTALS = ("sse", "silhouette")


def assessment_sums(X: ArrayLike, centroids: ArrayLike) -> tuple[IntArray, Message]:
    """Assign rows to their nearest centroids and add up, for each cluster, what quality measures need.

    With a the distance of a row to its own centroid and b that to the nearest other one, its simplified silhouette
    is (b - a) / max(a, b), and 0 where max(a, b) is 0 or k is 1 (Hruschka, de Castro, Campello 2004, Evolutionary
    algorithms for clustering gene-expression data).

    Args:
        X: rows (n, d); n may be 0.
        centroids: (k, d), k >= 1.

    Returns:
        labels (n,) with ties to the lowest index, and the sums over each cluster's rows, arrays of shape (k,):
        `counts` (int64) of 1, `sse` of a^2, `silhouette` of the simplified silhouette, `scatter` of a.

    Raises UserError unless both arrays are finite, with the same number of features.
    """
    X = as_matrix(X)
    centroids = as_centroids(centroids, X.shape[1])
    n, k = len(X), len(centroids)
    labels, sums = np.empty(n, np.int64), (np.zeros(k, np.int64), np.zeros(k), np.zeros(k), np.zeros(k))
    with team(X.size * k) as own:
        for part in pieces(n, X.shape[1]):
            squared, second = _two_nearest(own, X[part], centroids, labels[part])
            add_assessed(labels[part], squared, second, *sums)
    return labels, dict(zip(SUMS, sums, strict=True))


def _two_nearest(own: Team, X: FloatArray, centroids: FloatArray, labels: IntArray) -> tuple[FloatArray, FloatArray]:
    """Set the labels, and return the squared distances, of `two_nearest`."""
    squared, second = np.empty(len(X)), np.empty(len(X))
    own.each(lambda part: two_nearest(X[part], centroids, labels[part], squared[part], second[part]), own.parts(len(X)))
    return squared, second


def without_small(sums: Message, min_count: int) -> Message:
    """Return a site's sums by cluster (k,) without the rows of clusters that have fewer than `min_count` at the site."""
    large = sums["counts"] >= min_count
    return {name: np.where(large, value, 0).astype(value.dtype) for name, value in sums.items()}


def label_free_metrics(centroids: ArrayLike, sums: Message) -> dict[str, float | None]:
    """Return quality measures from centroids (k, d) and the total of all sites' `assessment_sums`.

    Of `sse` and `silhouette` the sum over the clusters, shape (), will do as well.

    `inertia`: sum of squared distances to the own centroid, in X's unit squared; None without rows.
    `simplified_silhouette`: mean over all rows, in [0, 1], larger is better.
    `davies_bouldin`: mean over clusters r of max over s != r of (S_r + S_s) / |centroid_r - centroid_s|, where S is
    a cluster's mean distance to its centroid; smaller is better (Davies, Bouldin 1979, A cluster separation measure).

    Only clusters with rows count. The last two are None for fewer than two of them; `davies_bouldin` is also None
    where two of their centroids coincide.

    Raises UserError unless the centroids are a finite array and BadMessage when a sum is missing or is not of shape (k,).
    """
    centroids = as_matrix(centroids, "centroids")
    k = len(centroids)
    for name in SUMS:
        shape = np.shape(sums[name]) if name in sums else "nothing"
        if shape != (k,) and not (shape == () and name in TOTALS):
            raise BadMessage(f"assessment sum {name!r} must have shape ({k},), one number per centroid, got {shape}")
    counts = sums["counts"]
    several = int((counts > 0).sum()) > 1
    return {
        "inertia": float(np.sum(sums["sse"])) if counts.any() else None,
        "simplified_silhouette": float(np.sum(sums["silhouette"]) / counts.sum()) if several else None,
        "davies_bouldin": cells_index(centroids, counts, sums["scatter"]),
    }


def distances_between(points: FloatArray) -> FloatArray:
    """Return the distances (c, c) between any two of the points (c, d)."""
    return np.stack([np.sqrt(((points - point) ** 2).sum(axis=1)) for point in points])


def cells_index(
    centroids: FloatArray, counts: IntArray, scatter: FloatArray, distances: Distances = distances_between
) -> float | None:
    """Return the Davies-Bouldin index of the clusters with rows; None for fewer than two, or where two centroids coincide.

    Centroids are (k, d), with their rows (k,) and the sums of these rows' distances (k,); `distances` returns those between
    centroids.
    """
    inhabited = counts > 0
    if int(inhabited.sum()) < 2:
        return None
    apart, scatter = distances(centroids[inhabited]), scatter[inhabited] / counts[inhabited]
    itself = np.eye(len(scatter), dtype=bool)
    if not (apart[~itself] > 0).all():  # also where two cannot be compared
        return None
    ratio = (scatter + scatter[:, None]) / np.where(itself, np.inf, apart)
    return float(ratio.max(axis=1).mean())
