"""What a network made of a site's rows, kept while network and rows stay the same.

The exchanges of a round share a network: its embeddings give the centroids and then the pseudo-labels, and every step of a
linear evaluation takes the same features.
"""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np

from flareclust._foundation.typing import FloatArray


class LastEmbeddings:
    """The last embeddings of each site; those of one that computes on two threads at once may be computed twice."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, FloatArray]] = {}

    def of(
        self, site: str, part: str, weights: FloatArray, rows: FloatArray, compute: Callable[[], FloatArray]
    ) -> FloatArray:
        """Return what `compute` makes of rows (n, ...), in float64 (n, f); it is called where anything is new.

        The weights (p,) are those of the network, of which `part` is embedded with, such as its backbone. What it returns are
        finite numbers of float32.
        """
        digest = blake2b(part.encode())
        for array in (weights, rows):
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).data)
        before = self._kept.get(site)
        if before is None or before[0] != digest.digest():
            before = digest.digest(), compute().astype(np.float32)  # exact, and half the memory
            self._kept[site] = before
        return before[1].astype(np.float64)
