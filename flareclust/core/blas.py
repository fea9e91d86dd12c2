"""BLAS and OpenMP with one thread: sums do not depend on the machine's load or number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import OpenBLASController, get_cached_controller

from flareclust._foundation.interrupts import SharedChange


def _take_control() -> None:
    """Let this thread change OpenBLAS's number of threads, which threadpoolctl grants to one thread at a time only."""
    OpenBLASController.clear_controlling_thread(force=True)


@contextmanager
def _limited() -> Iterator[None]:
    """Limit BLAS, for the whole process."""
    _take_control()
    limit = get_cached_controller().select(user_api="blas").limit(limits=1)
    try:
        yield
    finally:
        _take_control()
        limit.restore_original_limits()
        OpenBLASController.clear_controlling_thread()


_SHARED = SharedChange(_limited)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and scikit-learn's OpenMP, to one thread; several threads may be inside at once, each on its own."""
    # Pools that count by calling thread, such as OpenMP's, are limited in each.
    with _SHARED.inside(), get_cached_controller().limit(limits=1):
        yield
