"""Fuzzy c-means, slow and literal, and problems for it."""

from fractions import Fraction

import numpy as np


def twin_row(x, centroids, m):
    """Memberships of one row; exact for fractions and m = 2."""
    squared = [sum((a - b) * (a - b) for a, b in zip(x, c, strict=True)) for c in centroids]
    if 0 in squared:
        return [(1 if s == 0 else 0) / (Fraction(squared.count(0))) for s in squared]
    if m == 2:
        return [1 / sum(own / other for other in squared) for own in squared]
    return [1 / sum((own / other) ** (1 / (m - 1)) for other in squared) for own in squared]


def twin(X, start, m, max_iter, tol):
    """Centroids, memberships that they are the means of, and iterations."""
    centroids, before = np.array(start), None
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        u = np.array([[float(v) for v in twin_row(x, centroids, m)] for x in X])
        weights = u**m
        centroids = np.array(
            [sum(w * x for w, x in zip(weights[:, c], X, strict=True)) / weights[:, c].sum() for c in range(u.shape[1])]
        )
        if before is not None and np.abs(u - before).max() <= tol:
            break
        before = u
    return centroids, u, n_iter


def problem(seed, n=30, d=2, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 4 * rng.normal(size=(k, d))[rng.integers(k, size=n)]
    return X, 3 * rng.normal(size=(k, d))
