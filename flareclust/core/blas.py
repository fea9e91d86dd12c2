"""BLAS and OpenMP with one thread: sums do not depend on the machine's load or number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import OpenBLASController, get_cached_controller

from flareclust._foundation.interrupts import SharedChange


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
