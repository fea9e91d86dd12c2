"""The range of an array in one compiled call: of a few hundred numbers NumPy takes longer to begin than to look at them."""

import math

from flareclust._foundation.typing import Array, FloatArray
from flareclust.core.chunks import all_finite
from flareclust.core.jit import kernel

#: Beyond so many numbers NumPy, which looks at several at once, is faster.
_FEW = 4096


def extent(values: Array) -> tuple[float, float]:
    """Return `values.min(), values.max()` of an array (float64 or int64, not empty), or twice NaN where a number is not finite."""
    if 0 < values.size <= _FEW:
        return _extent(values.reshape(-1))
    least, largest = float(values.min()), float(values.max())  # NaN where one is
    return (least, largest) if math.isfinite(least) and math.isfinite(largest) else (math.nan, math.nan)


def finite(X: FloatArray) -> bool:
    """Return `np.isfinite(X).all()`."""
    return math.isfinite(_extent(X.reshape(-1))[0]) if 0 < X.size <= _FEW else all_finite(X)


@kernel()
def _extent(values: Array) -> tuple[float, float]:
    least = largest = values[0]
    odd = least - least  # stays 0, or NaN from the first number on that is not finite
    for value in values:
        odd += value - value
        least = value if value < least else least  # noqa: FURB136
        largest = value if value > largest else largest  # noqa: FURB136
    return least + odd, largest + odd
