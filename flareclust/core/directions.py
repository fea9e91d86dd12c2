"""Rows by their direction: of length 1, the squared Euclidean distance of two is 2 (1 - cos) of the angle between them."""

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray

#: Lengths that are 1 but for rounding, so that rows of length 1 stay what they are.
_ROUNDING = 1e-14


def of_length_one(X: FloatArray) -> FloatArray:
    """Return rows (n, d) brought to length 1; one at the origin stays there, and one of length 1 keeps its bits."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    done = (lengths == 0) | (np.abs(lengths - 1.0) < _ROUNDING)
    scaled: FloatArray = X / np.where(done, 1.0, lengths)
    return scaled


def without_direction(X: FloatArray) -> BoolArray:
    """Return which of the rows (n, d) are at the origin (n,), or so near that they have no length."""
    none: BoolArray = np.linalg.norm(X, axis=1) == 0
    return none
