"""Clustering of a few hundred points at the server, by name: what may stand for Xi in distributed k-means++.

`kmeans` finds separated groups in practice and promises nothing; `spectral` and `convex` are the two that Armacki and
Kar name as admissible (Definition 2): they recover an alpha-separable clustering of n points where alpha is of the
order of sqrt(n), or of n (Remark 3).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust._foundation.validation import check_choice
from flareclust.core.convex import convex_clustering
from flareclust.core.lloyd import kmeans
from flareclust.core.spectral import spectral_kmeans


class _Grouping(NamedTuple):
    """Groups of n points.

    Attributes:
        labels: group of each point (n,): every number from 0 to the largest, which is below k.
        diagnostics: what the clusterer reports about how it went.
    """

    labels: IntArray
    diagnostics: Mapping[str, float]


#: (points (n, d), k, rng) -> at most k groups.
_Clusterer = Callable[[FloatArray, int, np.random.Generator], _Grouping]


def _by_kmeans(points: FloatArray, k: int, rng: np.random.Generator) -> _Grouping:
    """Take the best of ten runs of k-means."""
    return _Grouping(kmeans(points, min(k, len(points)), rng, n_init=10).labels, {})


def _by_spectral(points: FloatArray, k: int, rng: np.random.Generator) -> _Grouping:
    """Run the spectral k-means of Awasthi and Sheffet: `core.spectral.spectral_kmeans`."""
    return _Grouping(spectral_kmeans(points, min(k, len(points)), rng).labels, {})


def _by_convex(points: FloatArray, k: int, rng: np.random.Generator) -> _Grouping:
    """Run convex clustering, which draws nothing: `core.convex.convex_clustering`.

    Diagnostics: `lam`, the penalty that was used, and `joined`, 0 where it leaves exactly k groups, else how many pairs
    of groups had to be joined to come down to k.
    """
    found = convex_clustering(points, k)
    return _Grouping(found.labels, {"lam": found.lam, "joined": float(found.joined)})


CLUSTERERS: Mapping[str, _Clusterer] = MappingProxyType(
    {"kmeans": _by_kmeans, "spectral": _by_spectral, "convex": _by_convex}
)


def group(points: FloatArray, k: int, clusterer: str, rng: np.random.Generator) -> _Grouping:
    """Cluster points (n, d) into at most k groups with the clusterer of that name; UserError if there is none."""
    return CLUSTERERS[check_choice("clusterer", clusterer, CLUSTERERS)](points, k, rng)


def group_means(points: FloatArray, labels: IntArray) -> FloatArray:
    """Return the plain mean of each group (k, d) of points (n, d), whose labels are 0 to k - 1."""
    return np.stack([points[labels == r].mean(axis=0) for r in range(labels.max() + 1)])


def cluster_means(points: FloatArray, k: int, clusterer: str, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Do what `group` does; return the plain means of the groups (at most k, d) and the labels (n,)."""
    labels = group(points, k, clusterer, rng).labels
    return group_means(points, labels), labels


def weighted_kmeans(
    points: FloatArray, weights: FloatArray | IntArray, k: int, n_init: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Run k-means to convergence on points (n, d) with weights (n,), and take the best of `n_init` runs.

    Returns:
        At most k centroids (k, d), and which of them each point belongs to (n,).
    """
    found = kmeans(points, min(k, len(points)), rng, n_init=n_init, weights=weights, tol=0.0)
    return found.centroids, found.labels
