"""Selections and sites for the tests of the choice of k."""

import numpy as np

from flareclust.evaluation import criteria

NAN = float("nan")


def selection_with(**columns):
    """A judgement of k = 2, 3, 4, 5 in which everything is the same unless stated."""
    arrays = {
        name: np.ones(4) for name in ("inertia", "calinski_harabasz", "silhouette", "davies_bouldin", "separated")
    }
    arrays |= {name: np.array(values, dtype=float) for name, values in columns.items()}
    k = np.array([2, 3, 4, 5])
    pairs = np.repeat(k, k * (k - 1) // 2)
    return criteria.KSelection(k=k, ratios=np.linspace(0.1, 1.0, len(pairs)), ratios_of=pairs, **arrays)


def sites(k=4, m=4, n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    centers = 30 * np.array(list(np.ndindex(*(2,) * d)))[:k]
    return {f"site-{i}": np.repeat(centers, n, axis=0) + rng.normal(size=(k * n, d)) for i in range(m)}
