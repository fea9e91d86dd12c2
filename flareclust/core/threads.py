"""Threads over rows, with the same bits for any number of them.

Kernels release Python's lock. What a thread writes belongs to its own rows, and what is added over the rows of a cluster is added row
after row, by one thread at a time. How many threads there are therefore changes the time and nothing else.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

from flareclust._foundation.errors import UserError
from flareclust._foundation.machine import usable_cores
from flareclust.core.arrays import as_count

_T = TypeVar("_T")

#: The environment variable with the number of threads of this process.
THREADS = "FLARECLUST_THREADS"

#: Coordinate differences below which starting threads takes longer than they save: some milliseconds of work.
_SMALL = 10_000_000


class _Share(threading.local):
    """By how many this thread divides the process's threads with others that compute beside it."""

    by = 1


_SHARE = _Share()


def sharing() -> int:
    """Return by how many the calling thread divides the process's threads."""
    return _SHARE.by


@contextmanager
def side_by_side(n: int) -> Iterator[None]:
    """Let this thread be one of n that compute at once, and take its share of the process's threads."""
    before, _SHARE.by = _SHARE.by, max(1, n)
    try:
        yield
    finally:
        _SHARE.by = before


def allowed_threads() -> int:
    """Return how many threads this process may compute with: `FLARECLUST_THREADS`, or one for each core that it may use.

    Raises UserError where the variable is no integer from 1 on.
    """
    text = os.environ.get(THREADS, "")
    if not text:
        return usable_cores()
    if not (text.isdecimal() and int(text) > 0):
        raise UserError(f"{THREADS} must be an integer from 1 on, got {text[:40]!r}")
    return int(text)


def set_threads(threads: int) -> None:
    """Let this process, and those that it starts, compute with so many threads.

    Raises UserError where it is no integer from 1 on.
    """
    os.environ[THREADS] = str(as_count(threads, "threads"))


class Team:
    """Threads that work on parts of the same rows.

    Args:
        threads: how many, the calling one among them.
        pool: has the others.
    """

    def __init__(self, threads: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.threads, self._pool = threads, pool

    def each(self, work: Callable[[slice], _T], parts: Sequence[slice]) -> list[_T]:
        """Return what the work returns for each part, in their order."""
        if self._pool is None:
            return [work(part) for part in parts]
        others = [self._pool.submit(work, part) for part in parts[1:]]
        return [work(parts[0]), *(other.result() for other in others)]

    def parts(self, n: int, unit: int = 1) -> list[slice]:
        """Return slices of n things, one for each thread, in whole units as far as there are so many."""
        units = -(-n // unit)
        ends = [min(n, units * i // self.threads * unit) for i in range(self.threads + 1)]
        found = [slice(a, b) for a, b in pairwise(ends) if a < b]
        return found or [slice(0, n)]


#: The calling thread.
ALONE = Team()


@contextmanager
def team(work: int) -> Iterator[Team]:
    """Give threads for so many coordinate differences at a time; the calling one alone where that is little."""
    threads = max(1, allowed_threads() // _SHARE.by) if work >= _SMALL else 1
    if threads == 1:
        yield ALONE
        return
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="flareclust") as pool:
        yield Team(threads, pool)
