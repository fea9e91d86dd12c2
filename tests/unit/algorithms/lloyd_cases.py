"""Rows that the tests of Lloyd's algorithm share."""

import numpy as np


def mixture(n, d, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(n, d)) + 3 * rng.normal(size=(6, d))[rng.integers(6, size=n)]
