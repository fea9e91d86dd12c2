"""Random numbers of libraries that draw from torch's own state: from a seed, and the state comes back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

#: Torch has one state for all threads; whoever seeds it must be alone.
_ALONE = Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch draw from a seed, one thread at a time."""
    with _ALONE, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
