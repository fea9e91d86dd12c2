"""Names for the arrays and callables that cross module borders."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Array = NDArray[Any]

#: What crosses the wire: named, contiguous float64, int64 or bool arrays.
Message = dict[str, Array]

#: The rows (n, d) of one site, or the file they are in.
Rows = FloatArray | Path

#: How the files of sites are read: names of their columns, and whether they may have no others. None: all columns.
Reading = tuple[tuple[str, ...], bool] | None

#: Says whether the job was stopped; long local computations ask it between pieces of work.
AbortCheck = Callable[[], bool]


def never() -> bool:
    """Return False: the abort check of a computation that nobody can stop."""
    return False
