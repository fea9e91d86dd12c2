"""The scaling of a result: of algorithms with `scale`, whose centroids are in the columns' units and distances are not."""

from collections.abc import Mapping
from typing import NamedTuple

from flareclust._foundation.typing import Array, FloatArray
from flareclust.features.result import is_partial


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
