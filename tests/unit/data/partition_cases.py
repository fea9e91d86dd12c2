"""Splits and rows that the tests of partitions share."""

import numpy as np

SPLITS = [
    "iid",
    "dirichlet:0.3",
    "dirichlet:1e-6",
    "dirichlet:1e6",
    "dirichlet-class:0.3",
    "dirichlet-class:1e-6",
    "clusters:2",
    "power:1.2",
    "beta:0.1",
    "beta:1e-6",
    "beta:0.1,nearest",
]


def _rows(classes: int = 5, each: int = 200) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(classes), each)
    return np.random.default_rng(0).normal(size=(len(y), 2)) + 10 * y[:, None], y
