"""How numeric code runs: compiled kernels, which release Python's lock, and BLAS with one thread."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, get_cached_controller

from flareclust._foundation.interrupts import SharedChange

_R = TypeVar("_R")


def kernel(**options: Any) -> Callable[[Callable[..., _R]], Callable[..., _R]]:
    """Return what compiles a function with numba; `options` are further ones of `numba.njit`."""

    from numba import njit  # not where BLAS alone is used

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


@contextmanager
def _limited() -> Iterator[None]:
    """Limit BLAS, for the whole process."""
    # threadpoolctl lets one thread at a time change OpenBLAS's number of threads: this one now, and at the end again.
    OpenBLASController.clear_controlling_thread(force=True)
    limit = get_cached_controller().select(user_api="blas").limit(limits=1)
    try:
        yield
    finally:
        OpenBLASController.clear_controlling_thread(force=True)
        limit.restore_original_limits()
        OpenBLASController.clear_controlling_thread()


_SHARED = SharedChange(_limited)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and scikit-learn's OpenMP, to one thread; several threads may be inside at once, each on its own."""
    # Pools that count by calling thread, such as OpenMP's, are limited in each.
    with _SHARED.inside(), get_cached_controller().limit(limits=1):
        yield
