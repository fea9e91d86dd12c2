"""How kernels are compiled: they release Python's lock, and later processes load them from disk where there is a place for them."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

_R = TypeVar("_R")


def kernel(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Return what compiles a function with numba; `options` are further ones of `numba.njit`."""

    def compiled(function: Callable[..., _R]) -> Callable[..., _R]:
        try:
            made: Callable[..., _R] = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            warnings.warn(
                "kernels are compiled anew in each process, since neither the folder of flareclust nor the home folder can be "
                "written to; set NUMBA_CACHE_DIR to a folder that only your account can write to",
                RuntimeWarning,
                stacklevel=1,
            )
            made = njit(nogil=True, **options)(function)
        return made

    return compiled
