"""How a result's columns were filled and scaled: of algorithms with `scale`, whose centroids are in the columns' units and distances are not."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import Array, FloatArray
from flareclust.core.missing.gaps import complete
from flareclust.core.scaling import of_length_one
from flareclust.preparation.result import is_partial
from flareclust.protocol.columns import FILL

#: The array that says that gaps were left open: rows belong to the centroid that is nearest in their known cells.
OPEN_GAPS = "open_gaps"


class Scaling(NamedTuple):
    """What is taken away from the columns (d,), and then divides them (d,)."""

    mean: FloatArray
    deviation: FloatArray

    def __call__(self, X: FloatArray) -> FloatArray:
        """Return rows (n, d) in scaled units."""
        scaled: FloatArray = (X - self.mean) / self.deviation
        return scaled


def scaling_of(arrays: Mapping[str, Array]) -> Scaling | None:
    """Return the scaling of a result's arrays; None where columns were not scaled, or sites had different ones."""
    return None if is_partial(arrays) or "deviation" not in arrays else Scaling(arrays["mean"], arrays["deviation"])


def filling_of(arrays: Mapping[str, Array]) -> FloatArray | None:
    """Return what gaps of the columns (d,) are filled with, NaN where they stay open; None where rows have none, or sites had different columns."""
    if FILL not in arrays or is_partial(arrays):
        return None
    return np.full(len(arrays[FILL]), np.nan) if OPEN_GAPS in arrays else arrays[FILL]


def filled(arrays: Mapping[str, Array], X: FloatArray) -> FloatArray:
    """Return rows (n, d) whose missing cells are filled as the arrays say; as they are where nothing was filled.

    Where gaps were left open, they are filled with those of the nearest of the `centroids`, which adds nothing to its distance.
    """
    if FILL not in arrays or X.ndim != 2 or X.shape[1] != len(arrays[FILL]):
        return X
    missing = np.isnan(X)
    if OPEN_GAPS in arrays and missing.any():
        scaling = scaling_of(arrays) or Scaling(np.zeros(X.shape[1]), np.ones(X.shape[1]))
        rows = complete(scaling(X), scaling(arrays["centroids"])).rows * scaling.deviation + scaling.mean
        rows = np.where(missing, rows, X)
        return np.where(missing.all(axis=1, keepdims=True), arrays[FILL], rows)
    return np.where(missing, arrays[FILL], X) if missing.any() else X


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
