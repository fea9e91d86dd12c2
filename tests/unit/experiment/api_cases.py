"""Rows and their clusters for the tests of `flareclust.run`."""

import numpy as np

POINTS = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


def rows(seed=0, n=30):
    """n rows, shuffled, around the three points."""
    rng = np.random.default_rng(seed)
    X = np.repeat(POINTS, n // 3, axis=0) + rng.normal(0, 0.5, (n, 2))
    return rng.permutation(X)


def nearest(X, centroids):
    return ((X[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)


def by_position(centroids):
    return centroids[np.lexsort(np.round(centroids).T)]
