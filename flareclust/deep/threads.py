"""What torch has one of for all threads: the number of its own threads, and its random state."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from flareclust._foundation.interrupts import SharedChange


@contextmanager
def _number_kept() -> Iterator[None]:
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


_KEPT = SharedChange(_number_kept)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch compute on one thread: sums do not depend on the machine's load or number of cores.

    Several threads may be inside at once, each on its own.
    """
    with _KEPT.inside():
        torch.set_num_threads(1)  # in each: OpenMP counts by calling thread
        yield


# Random numbers of libraries that draw from torch's own state: from a seed, and the state comes back afterwards.

#: Torch's random state is shared by all threads; this lock is held from seeding to the last draw.
_ALONE = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch draw from a seed, one thread at a time; on the CPU, where all of our random numbers are drawn."""
    with _ALONE:
        state = torch.random.get_rng_state()
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            torch.random.set_rng_state(state)
