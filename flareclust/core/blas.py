"""BLAS and OpenMP with one thread: sums do not depend on the machine's load or number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from threadpoolctl import OpenBLASController, get_cached_controller


class _SharedLimit:
    """The limit of BLAS, which holds for the whole process: the first thread inside sets it, the last one out lifts it."""

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                _take_control()
                self._limit = get_cached_controller().select(user_api="blas").limit(limits=1)
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _take_control()
                self._limit.restore_original_limits()
                OpenBLASController.clear_controlling_thread()


def _take_control() -> None:
    """Let this thread change OpenBLAS's number of threads, which threadpoolctl grants to one thread at a time only."""
    OpenBLASController.clear_controlling_thread(force=True)


_SHARED = _SharedLimit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and scikit-learn's OpenMP, to one thread; several threads may be inside at once, each on its own."""
    _SHARED.enter()
    try:
        # Pools that count by calling thread, such as OpenMP's, are limited in each.
        with get_cached_controller().limit(limits=1):
            yield
    finally:
        _SHARED.leave()
