"""Torch on one thread: sums do not depend on the machine's load or number of cores."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch


class _OneThread:
    """Counts running computations; the last one to end restores the number of torch's threads."""

    def __init__(self) -> None:
        self._lock, self._inside, self._threads = Lock(), 0, 1

    def enter(self) -> None:
        with self._lock:
            if not self._inside:
                self._threads = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)  # each time: OpenMP counts by calling thread

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.set_num_threads(self._threads)


_ONE = _OneThread()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute on one thread; several threads may be inside at once, each on its own."""
    _ONE.enter()
    try:
        yield
    finally:
        _ONE.leave()
