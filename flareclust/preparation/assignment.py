"""The cluster of each row of a result, by its arrays: the nearest centroid, or the most probable component of a mixture."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.lloyd import assign
from flareclust.core.mixtures import FACTORS, WEIGHTS, Mixture, most_likely
from flareclust.core.scaling import without_direction
from flareclust.preparation.scaling import as_clustered, of_directions


def mixture_of(arrays: Mapping[str, Array]) -> Mixture | None:
    """Return the mixture of a result, in the units in which its rows were clustered; None where it is of centroids."""
    if FACTORS not in arrays:
        return None
    means = np.ascontiguousarray(as_clustered(arrays, arrays["centroids"]))
    return Mixture(arrays[WEIGHTS], means, arrays[FACTORS])


def assign_rows(arrays: Mapping[str, Array], X: FloatArray) -> IntArray:
    """Return the cluster (n,) of each complete row (n, d), in the units of the data.

    It is that of the nearest centroid, the first of equally near ones, and -1 for rows without a direction. Of a mixture it is the
    component of the largest responsibility.
    """
    centroids = arrays["centroids"]
    if X.shape[1] != centroids.shape[1]:
        return assign(X, centroids)[0]  # which says what is wrong
    rows = as_clustered(arrays, X)
    if (mixture := mixture_of(arrays)) is not None:
        return most_likely(np.ascontiguousarray(rows), mixture)
    labels = assign(rows, as_clustered(arrays, centroids))[0]
    return np.where(without_direction(X), -1, labels) if of_directions(arrays) else labels
