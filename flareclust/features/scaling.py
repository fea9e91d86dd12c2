"""How a result's columns were filled and scaled: of algorithms with `scale`, whose centroids are in the columns' units and distances are not."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import Array, FloatArray
from flareclust.features.result import is_partial

#: The array with what the gaps of each column were filled with (d,), where they were.
FILL = "fill"


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
    if is_partial(arrays) or "deviation" not in arrays:
        return None
    return Scaling(arrays["mean"], arrays["deviation"])


def filled(arrays: Mapping[str, Array], X: FloatArray) -> FloatArray:
    """Return rows (n, d) whose missing cells are filled as the arrays say; as they are where nothing was filled."""
    if FILL not in arrays or X.ndim != 2 or X.shape[1] != len(arrays[FILL]):
        return X
    missing = np.isnan(X)
    return np.where(missing, arrays[FILL], X) if missing.any() else X
