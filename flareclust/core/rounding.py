"""Numbers of rows as multiples of what a site's policy says.

A number goes to the nearest multiple, of two as near ones to the even multiple, but never below the site's floor: what
would end there goes up to the smallest multiple that does not. So 0 stays 0, and everything else is a multiple at or
above the floor. Sums over these rows are scaled by the same factor, so that means over a cluster stay what they are.
"""

import numpy as np

from flareclust._foundation.typing import Array, FloatArray


def rounded(values: Array, multiple: int, floor: int) -> Array:
    """Return numbers of rows, or weights, as multiples of `multiple`; those above 0 at or above `floor`."""
    if multiple == 1:
        return values
    minimum = -(-floor // multiple) * multiple
    nearest = np.rint(values / multiple) * multiple
    found: Array = np.where(values > 0, np.maximum(nearest, minimum), 0).astype(values.dtype)
    return found


def factor(counts: Array, multiple: int, floor: int) -> FloatArray:
    """Return by how much the sums over so many rows are scaled; 1 where there are none."""
    if multiple == 1:
        return np.ones(np.shape(counts))
    found: FloatArray = np.where(counts > 0, rounded(counts, multiple, floor) / np.maximum(counts, 1), 1.0)
    return found
