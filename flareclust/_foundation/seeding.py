"""Independent random streams: one per seed, round and site, the same in every engine."""

from zlib import crc32

import numpy as np

#: The server's own stream; no site can have this name, since NVFlare reserves it.
SERVER = "server"


def owner_key(owner: str) -> int:
    """Return the number below 2^32 that a name stands for in the seed of its stream."""
    return crc32(owner.encode())


def stream(seed: int, round_: int, owner: str) -> np.random.Generator:
    """Return the generator of `owner` (a site's name, `SERVER` or a purpose) in round `round_`.

    A site's stream depends on its name and not on its place in a list, so that adding or losing a site leaves the
    others' random choices as they were.
    """
    words = [seed, round_, owner_key(owner)]
    # An array of 32-bit words is the same seed, which NumPy need not look through.
    return np.random.default_rng(np.array(words, np.uint32) if max(words) < 2**32 else words)
