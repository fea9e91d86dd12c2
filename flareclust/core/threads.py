"""Threads over rows, with the same bits for any number of them.

Kernels release Python's lock. What a thread writes belongs to its own rows, and what is added over rows is added row after row, by one
thread at a time.
How many threads there are therefore changes the time and nothing else.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from flareclust._foundation.errors import UserError
from flareclust._foundation.machine import usable_cores
from flareclust.core.arrays import as_count

_T = TypeVar("_T")

#: The environment variable with the number of threads of this process.
THREADS = "FLARECLUST_THREADS"

#: Parts that each thread takes of the same rows, and how many rows a part has at least: each costs some microseconds.
_TURNS, _SHORT = 2, 4096

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

    def each_then(self, work: Callable[[slice], _T], then: Callable[[slice], None], parts: Sequence[slice]) -> list[_T]:
        """Return what the work returns for each part; each thread takes the next one when it is done.

        `then` is called for each part once its work is done, in the order of the parts, and never in two threads at once.
        """
        turns = _Turns(work, then, parts)
        self.each(lambda _: turns.take(), [slice(0)] * min(self.threads, len(parts)))
        return turns.found

    def parts(self, n: int, unit: int = 1) -> list[slice]:
        """Return slices of n things, one for each thread, in whole units as far as there are so many."""
        return _parts(n, unit, self.threads)

    def short_parts(self, n: int, unit: int) -> list[slice]:
        """Return slices of n things for `each_then`: several for each thread, unless they are few."""
        return _parts(n, unit, max(1, min(_TURNS * self.threads, n // _SHORT)))


class _Turns:
    """Parts that threads take one after the other, and what follows in the order of the parts."""

    def __init__(self, work: Callable[[slice], Any], then: Callable[[slice], None], parts: Sequence[slice]) -> None:
        self._work, self._then, self._parts = work, then, parts
        self._next, self._following = iter(range(len(parts))), 0
        self._taking, self._turn = threading.Lock(), threading.Lock()
        self._done = [False] * len(parts)
        self.found: list[Any] = [None] * len(parts)

    def take(self) -> None:
        """Work on parts until there are no more."""
        while True:
            with self._taking:
                i = next(self._next, None)
            if i is None:
                return
            self.found[i] = self._work(self._parts[i])
            self._done[i] = True
            self._finish()

    def _finish(self) -> None:
        """Do what follows the parts that are done, unless another thread does."""
        while self._ready() and self._turn.acquire(blocking=False):
            try:
                while self._ready():
                    self._then(self._parts[self._following])
                    self._following += 1
            finally:
                self._turn.release()

    def _ready(self) -> bool:
        return self._following < len(self._parts) and self._done[self._following]


def _parts(n: int, unit: int, number: int) -> list[slice]:
    units = -(-n // unit)
    ends = [min(n, units * i // number * unit) for i in range(number + 1)]
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
