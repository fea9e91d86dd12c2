"""Data sets on which k-means is hard to reach from parts of the rows: skewed, heavy-tailed, overlapping, many or few rows.

None of them was used to choose the defaults of an algorithm alone: every set has seeds of its own, and `--offset` gives
other draws of all of them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray


class Made(NamedTuple):
    """Rows (n, d) with the cluster or class (n,) that each was drawn from, and the k that is asked for."""

    X: FloatArray
    y: IntArray
    k: int


def _mixture(
    rng: np.random.Generator, sizes: IntArray, d: int, apart: float, spread: FloatArray | float = 1.0
) -> tuple[FloatArray, IntArray]:
    """Return normal clusters of the sizes given, with centers uniform in a cube of edge `apart`."""
    k = len(sizes)
    centers = rng.uniform(0, apart, (k, d))
    y = np.repeat(np.arange(k), sizes)
    scale = np.broadcast_to(spread, (k,))[y][:, None]
    return centers[y] + scale * rng.normal(size=(len(y), d)), y


def _skewed(rng: np.random.Generator) -> Made:
    sizes = np.maximum(20, (4000 * np.arange(1, 21) ** -1.3 / 2.5)).astype(np.int64)
    return Made(*_mixture(rng, sizes, 2, 30.0), 20)


def _heavy_tails(rng: np.random.Generator) -> Made:
    y = np.repeat(np.arange(10), 300)
    centers = rng.uniform(0, 25, (10, 5))
    return Made(centers[y] + rng.standard_t(3, (len(y), 5)), y, 10)


def _sixty(rng: np.random.Generator) -> Made:
    return Made(*_mixture(rng, np.full(60, 60), 2, 60.0), 60)


def _small_sites(rng: np.random.Generator) -> Made:
    return Made(*_mixture(rng, np.full(16, 63), 64, 4.0), 16)


def _overlapping(rng: np.random.Generator) -> Made:
    return Made(*_mixture(rng, np.full(10, 300), 3, 5.0), 10)


def _ellipsoids(rng: np.random.Generator) -> Made:
    k, d, each = 8, 8, 250
    parts = []
    for _ in range(k):
        axes = np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.3, 4.0, d)
        parts.append(rng.uniform(0, 12, d) + rng.normal(size=(each, d)) @ axes.T)
    return Made(np.concatenate(parts), np.repeat(np.arange(k), each), k)


def _tight(rng: np.random.Generator) -> Made:
    return Made(*_mixture(rng, np.full(30, 40), 10, 40.0, 0.3), 30)


def _scales(rng: np.random.Generator) -> Made:
    return Made(*_mixture(rng, np.full(12, 200), 2, 40.0, rng.uniform(0.2, 5.0, 12)), 12)


def _noise(rng: np.random.Generator) -> Made:
    X, y = _mixture(rng, np.full(15, 150), 2, 40.0)
    noise = rng.uniform(-10, 50, (450, 2))
    return Made(np.concatenate([X, noise]), np.concatenate([y, rng.integers(0, 15, 450)]), 15)


def _counts(rng: np.random.Generator) -> Made:
    y = np.repeat(np.arange(9), 200)
    means = rng.lognormal(1.0, 1.0, (9, 12))
    return Made(rng.poisson(means[y]).astype(np.float64), y, 9)


def _standardized(name: str, k: int, scale: bool = True) -> Callable[[np.random.Generator], Made]:
    def load(rng: np.random.Generator) -> Made:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        X = found.data.astype(np.float64)
        if scale:
            X = (X - X.mean(axis=0)) / X.std(axis=0)
        return Made(X, found.target.astype(np.int64), k)

    return load


#: By name, how each set is drawn.
SETS: Mapping[str, Callable[[np.random.Generator], Made]] = MappingProxyType(
    {
        "skewed": _skewed,
        "heavy-tails": _heavy_tails,
        "sixty": _sixty,
        "small-sites": _small_sites,
        "overlapping": _overlapping,
        "ellipsoids": _ellipsoids,
        "tight": _tight,
        "scales": _scales,
        "noise": _noise,
        "counts": _counts,
        "wine": _standardized("wine", 3),
        "cancer": _standardized("breast_cancer", 8),
        "digits": _standardized("digits", 10, scale=False),
    }
)


def made(name: str, offset: int = 0) -> Made:
    """Return the set of that name; another draw of it with another offset, unless it is a real one."""
    return SETS[name](np.random.default_rng([sorted(SETS).index(name), offset]))
