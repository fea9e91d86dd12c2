"""BLAS and OpenMP with one thread: sums do not depend on the machine's load or number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from threadpoolctl import threadpool_limits

# The limit holds for the whole process: a second thread that sets and lifts it meanwhile would undo it for the first.
_lock = RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS, and scikit-learn's OpenMP, to one thread; only one thread at a time is inside."""
    with _lock, threadpool_limits(1):
        yield
