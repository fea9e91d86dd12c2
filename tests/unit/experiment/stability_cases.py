"""Rows for studies of stability."""

import numpy as np

from flareclust._foundation.typing import FloatArray


def blobs(sites: int = 3, n: int = 40) -> dict[str, FloatArray]:
    """Return rows of three separated clusters, the same number of each at every site."""
    rng = np.random.default_rng(0)
    centers = [(0, 0), (20, 0), (0, 20)]
    return {f"s{i}": np.concatenate([rng.normal(c, 1, (n, 2)) for c in centers]) for i in range(sites)}
