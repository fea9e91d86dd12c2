"""Small Gaussians that stand in for the data sets of the paper on different columns."""

import numpy as np

from flareclust.data.datasets import Dataset


def gaussians(name, classes, rows, d, owners):
    """Return classes far apart, in rows that every owner has some of."""
    rng = np.random.default_rng(classes)
    means = rng.uniform(20, 100, (classes, d))
    y = np.tile(np.arange(classes), rows)
    X = means[y] + rng.standard_normal((len(y), d))
    return Dataset(name, X, y, owners=np.arange(len(y)) // classes % owners)


STAND_INS = {
    "har": gaussians("har", 6, 300, 90, 30),
    "qmnist": gaussians("qmnist", 10, 120, 60, 12),
    "dim128": gaussians("dim128", 16, 20, 128, 1),
    "dim032": gaussians("dim032", 16, 20, 32, 1),
}
