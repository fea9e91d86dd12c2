"""Names for the arrays and callables that cross module borders."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Array = NDArray[Any]

#: What crosses the wire: named, contiguous float64, int64 or bool arrays.
Message = dict[str, Array]

#: How the columns asked for and those of a file are to agree: the file must have them, must have no others, or may lack some.
Agreement = Literal["has", "exact", "may-lack"]

#: How the files of sites are read: names of their columns, and how the files must agree with them. None: all columns.
Reading = tuple[tuple[str, ...], Agreement] | None

#: Says whether the job was stopped; long local computations ask it between pieces of work.
AbortCheck = Callable[[], bool]


def never_abort() -> bool:
    """Return False: the abort check of a computation that nobody can stop."""
    return False
