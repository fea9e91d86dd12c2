"""How much memory something takes, by Python's own account."""

import tracemalloc
from collections.abc import Callable


def peak_of(action: Callable[[], object]) -> int:
    """Return the most bytes that the action has at a time."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
