"""The cluster of each row of a result, by its arrays: of the nearest centroid or representative, or the most probable component."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.lloyd import assign, labels_of
from flareclust.core.mixtures import FACTORS, WEIGHTS, Mixture, most_likely
from flareclust.core.scaling import without_direction
from flareclust.preparation.scaling import as_clustered, of_directions

#: Points that stand for the clusters (p, d), as rows were clustered, the cluster of each (p,), -1 for none, and how far the cluster
#: reaches from it (p,): where rows belong to the cluster of the nearest of them, and not of the nearest centroid.
REPRESENTATIVES, OF_REPRESENTATIVES, REACH = "representatives", "representative_cluster", "representative_reach"
BY_REPRESENTATIVES = (REPRESENTATIVES, OF_REPRESENTATIVES, REACH)


def of_nearest_representative(arrays: Mapping[str, Array], rows: FloatArray) -> IntArray:
    """Return the cluster of the nearest representative (n,) of rows (n, d) as they were clustered; -1 for none, and beyond its reach."""
    at, squared = assign(rows, arrays[REPRESENTATIVES])
    clusters: IntArray = arrays[OF_REPRESENTATIVES][at]
    return np.where(squared > arrays[REACH][at] ** 2, -1, clusters)


def mixture_of(arrays: Mapping[str, Array]) -> Mixture | None:
    """Return the mixture of a result, in the units in which its rows were clustered; None where it is of centroids."""
    if FACTORS not in arrays:
        return None
    means = np.ascontiguousarray(as_clustered(arrays, arrays["centroids"]))
    return Mixture(arrays[WEIGHTS], means, arrays[FACTORS])


def assign_rows(arrays: Mapping[str, Array], X: FloatArray) -> IntArray:
    """Return the cluster (n,) of each complete row (n, d), in the units of the data.

    It is that of the nearest centroid, the first of equally near ones, and -1 for rows without a direction. Of a mixture it is the
    component of the largest responsibility. Where clusters have representatives it is that of the nearest of these, and -1 where that is in
    none or farther than the cluster reaches.
    """
    centroids = arrays["centroids"]
    if X.shape[1] != centroids.shape[1]:
        return labels_of(X, centroids)  # which says what is wrong
    rows = as_clustered(arrays, X)
    if (mixture := mixture_of(arrays)) is not None:
        return most_likely(np.ascontiguousarray(rows), mixture)[0]
    if REPRESENTATIVES in arrays:
        return of_nearest_representative(arrays, rows)
    labels = labels_of(rows, as_clustered(arrays, centroids))
    return np.where(without_direction(X), -1, labels) if of_directions(arrays) else labels
