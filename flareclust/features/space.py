"""Where the nearest centroid of a result is the right one: columns scaled as in the run, or rows of length 1."""

from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, IntArray
from flareclust.core.directions import of_length_one, without_direction
from flareclust.core.lloyd import assign
from flareclust.features.scaling import scaling_of

#: Set where the clusters are of rows of length 1 (`metric=cosine`).
LENGTH_ONE = "length_one"


def of_directions(arrays: Mapping[str, Array]) -> bool:
    """Return whether a result is of rows of length 1."""
    return LENGTH_ONE in arrays


def as_clustered(arrays: Mapping[str, Array], X: FloatArray) -> FloatArray:
    """Return rows or centroids (n, d) of a result's columns as its clusters were computed from them."""
    if of_directions(arrays):
        return of_length_one(X)
    scaling = scaling_of(arrays)
    return X if scaling is None else scaling(X)


def nearest(arrays: Mapping[str, Array], X: FloatArray) -> IntArray:
    """Return the nearest centroid (n,) of each row (n, d), the first of equally near ones; -1 for rows without a direction."""
    centroids = arrays["centroids"]
    if X.shape[1] != centroids.shape[1]:
        return assign(X, centroids)[0]  # which says what is wrong
    labels = assign(as_clustered(arrays, X), as_clustered(arrays, centroids))[0]
    return np.where(without_direction(X), -1, labels) if of_directions(arrays) else labels
