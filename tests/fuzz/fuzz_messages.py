"""Messages to the server, under atheris."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.run import fuzz, watched

with watched():
    from tests.fuzz.attack import Attack


def make(folder: Path) -> Callable[[bytes], object]:
    """Return what sends a message; it needs no folder."""
    del folder
    tracemalloc.start()
    return Attack()


if __name__ == "__main__":
    fuzz(make)
