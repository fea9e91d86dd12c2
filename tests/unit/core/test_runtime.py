"""Kernels are compiled, and numba is imported, when they are first called."""

import copy
import subprocess
import sys

from flareclust.core.runtime import imported_later, kernel
from tests.patience import PATIENCE


@kernel()
def twice(x: float) -> float:
    """Return the double."""
    return 2.0 * x


@kernel()
def four_times(x: float) -> float:
    return float(twice(twice(x)))


@kernel()
def factorial(n: int) -> int:
    return 1 if n <= 1 else n * factorial(n - 1)


def test_a_kernel_calls_kernels_and_itself():
    assert four_times(1.5) == 6.0
    assert factorial(5) == 120
    assert twice.__doc__ == "Return the double."
    assert len(four_times.signatures) == 1


def test_a_kernel_can_be_copied_before_it_is_called():
    @kernel()
    def half(x: float) -> float:
        return x / 2.0

    assert copy.deepcopy(half)(5.0) == 2.5


def test_what_is_imported_later_is_what_the_module_has():
    assert imported_later("math", "hypot")(3.0, 4.0) == 5.0


CODE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from flareclust.core.screen import screen_of
from flareclust.core.arrays import extent
from flareclust.core import kernels, lloyd, seeds
print("numba" in sys.modules)
X = np.arange(12.0).reshape(6, 2)
with ThreadPoolExecutor(8) as pool:
    print({tuple(found) for found in pool.map(lambda _: extent(X), range(8))})
print("numba" in sys.modules)
"""


def test_numba_is_imported_with_the_first_call_also_by_several_threads():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout.splitlines()
    assert done == ["False", "{(0.0, 11.0)}", "True"]
