"""The bounds of rows: a box, and a ball about its middle. Public numbers; nothing here reads them from rows."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import Array, FloatArray, Message
from flareclust._foundation.validation import LARGEST

#: The least radius of bounds, and the most that half a diagonal can be. With values up to `LARGEST` no sum over rows can
#: become infinite or NaN then, the radii of clusters that follow from bounds are such as sites take, and squared distances
#: of as many rows as there can be add up to less than `LARGEST`, beyond which no message goes.
LEAST_HALF, MOST_HALF = 1e-90, 1e60


class Box(NamedTuple):
    """Lower and upper bounds of the columns, (d,) each, low < high, and the most that a row is away from their middle."""

    low: FloatArray
    high: FloatArray
    radius: float = math.inf

    @classmethod
    def around(cls, boxes: "Sequence[Box]") -> "Box":
        """Return the bounds that hold what several bounds hold."""
        low, high = np.min([box.low for box in boxes], axis=0), np.max([box.high for box in boxes], axis=0)
        middle = (low + high) / 2
        return cls(low, high, max(float(np.linalg.norm(box.middle - middle)) + box.half for box in boxes))

    @property
    def half(self) -> float:
        """No row is farther from the middle: the radius of the ball, or half the diagonal of the box if that is less."""
        return min(self._diagonal, self.radius)

    @property
    def middle(self) -> FloatArray:
        """The point (d,) half way between the bounds."""
        return (self.low + self.high) / 2

    @property
    def usable(self) -> bool:
        """Whether low is below high, and all are so large and so small that sums over rows in the bounds can be computed."""
        # No NaN is either.
        if not ((np.abs(self.low) <= LARGEST).all() and (np.abs(self.high) <= LARGEST).all() and self.radius > 0):
            return False
        return bool((self.low < self.high).all() and self.half >= LEAST_HALF and self._diagonal <= MOST_HALF)

    @property
    def _diagonal(self) -> float:
        return float(np.linalg.norm(self.high - self.low)) / 2

    def clip(self, points: FloatArray) -> FloatArray:
        """Return points (n, d) within the bounds, C-contiguous: each value to its column's, then the point to the ball."""
        within = np.ascontiguousarray(np.maximum(points, self.low))
        np.minimum(within, self.high, out=within)
        if self.radius >= self._diagonal:
            return within
        away = within - self.middle
        length = np.sqrt((away**2).sum(axis=1))
        far = length > self.radius
        within[far] = self.middle + away[far] * (self.radius / length[far])[:, None]
        return within

    def sent(self) -> Message:
        """Return the bounds as arrays of a message."""
        return {"low": self.low, "high": self.high, "radius": np.array(self.half)}

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "Box":
        """Return the bounds in arrays of a message; without a radius they are a box."""
        return cls(arrays["low"], arrays["high"], float(arrays.get("radius", math.inf)))
