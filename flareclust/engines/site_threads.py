"""Sites of one exchange in threads of this process: kernels release Python's lock, so that sites compute side by side.

Results are the same for any number of threads: a step depends on its site's rows only, BLAS has one thread in it, and what
the steps return is taken in the order of the sites.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Event
from typing import TypeVar

from flareclust._foundation.typing import AbortCheck
from flareclust.core.runtime import one_thread
from flareclust.core.threads import allowed_threads, sharing, side_by_side

_T = TypeVar("_T")

#: Bytes of a site's rows from which on a thread gains more than it costs.
_LARGE = 300_000


def computed(works: Iterable[tuple[int, Callable[[AbortCheck], _T]]], workers: int | None) -> list[_T]:
    """Return what the works of sites return, in their order.

    Large works run in threads, small ones in the calling thread. An exception is that of the first site that has one, as
    in a loop; works that have not begun are dropped then, and those that run are asked to stop.

    Args:
        works: the bytes of a site's rows, and what to call with a check whether to stop.
        workers: most threads; None for as many as the process may use.
    """
    stopped, works = Event(), list(works)
    large = sum(size >= _LARGE for size, _ in works)
    if not large:
        return [work(stopped.is_set) for _, work in works]
    workers = workers or allowed_threads()
    at_once = sharing() * min(workers, large)

    def alone(work: Callable[[AbortCheck], _T]) -> _T:
        with one_thread(), side_by_side(at_once):
            return work(stopped.is_set)

    def start(size: int, work: Callable[[AbortCheck], _T]) -> Callable[[], _T]:
        if size < _LARGE:
            return lambda: work(stopped.is_set)
        return pool.submit(copy_context().run, alone, work).result  # with the loggers of the caller's flow

    pool = ThreadPoolExecutor(workers)
    try:
        started = [start(size, work) for size, work in works]
        return [result() for result in started]
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
