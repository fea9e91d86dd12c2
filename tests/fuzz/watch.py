"""Limits on what is done with one input: seconds of this process, and memory."""

import gc
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds of processor time (not of the clock, so that a busy machine does not matter) for one input.
LIMIT = 5.0


class Hang(BaseException):
    """An input took too long. No Exception, so that nothing under test takes it for one of its own."""


@contextmanager
def limited(seconds: float = LIMIT) -> Iterator[None]:
    """Raise Hang where the block takes more processor time than that."""

    def stop(number: int, frame: object) -> None:
        raise Hang(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def traced() -> Iterator[None]:
    """Count what Python and NumPy allocate in the block."""
    gc.freeze()  # collecting what is new takes little time then; a collection of all objects can take seconds
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.unfreeze()


def peak_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a call returned, and the most bytes that it held at one time; within `traced`."""
    gc.collect()  # cycles of an earlier call that this one frees would hide what it holds
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    result = call()
    return result, tracemalloc.get_traced_memory()[1] - before
