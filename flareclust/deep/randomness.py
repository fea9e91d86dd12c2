"""Random numbers of libraries that draw from torch's own state: from a seed, and the state comes back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

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
