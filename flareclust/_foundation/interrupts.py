"""What the whole process has one of, changed for a while: signals that end it, such as Ctrl-C, and what its threads share."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType

#: What ends a program from outside, and lets it clean up. Windows has no SIGHUP.
ENDING = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Put off the signals that end a program until the block is left: a second one must not break off a cleanup."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals do not come here
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


class SharedChange:
    """A change of what all threads share: the first thread inside makes it, the last one out takes it back.

    Args:
        change: makes it where it is entered, and takes it back where it is left.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change, self._lock, self._inside, self._made = change, threading.Lock(), 0, ExitStack()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Keep the change made; several threads may be inside at once."""
        with self._lock:
            if not self._inside:
                self._made.enter_context(self._change())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._made.close()
