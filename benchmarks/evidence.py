"""How often `select_k(null=19)` finds evidence of clusters, on generated tables without and with clusters.

    python -m benchmarks.evidence SEED [TABLES]

TABLES is that of each of eight shapes without clusters and of eight kinds of clusters, 25 by default. They differ in rows (300, 600
or 1200), sites (3, 5 or 10), columns (2, 3, 5 or 8), range of k (2..6 or 2..12) and scale. Seed 1 is what the comparison was
developed with, seed 2 was looked at once it was done.
"""

import sys
from collections import Counter

import numpy as np

import flareclust
from benchmarks.choice_of_k import placed
from flareclust._foundation.typing import FloatArray
from flareclust.evaluation.null_reference import NullTest

RUNS, SIZES, COLUMNS, LAST, SCALES = (
    19,
    ((300, 3), (600, 5), (1200, 10)),
    (2, 3, 5, 8),
    (6, 12),
    ("none", "standard", "robust"),
)

SHAPES = (
    "normal",
    "correlated normal",
    "uniform",
    "two log-normal columns",
    "exponential",
    "heavy tails",
    "skewed and discrete",
    "ball, arc, parabola",
)
CLUSTERS = (
    "round",
    "unequal sizes",
    "correlated",
    "unequal spreads",
    "heavy tails",
    "ten with heavy tails",
    "8 columns",
    "along one column",
)

#: Smallest distance of two centers in standard deviations.
GAPS = (4.0, 5.0, 6.0)


def cloud(shape: str, n: int, d: int, rng: np.random.Generator) -> FloatArray:
    """Return rows (n, d) without clusters; heavy tails are those of t with three degrees of freedom, each column's or all rows'."""
    z = rng.normal(size=(n, d))
    if shape == "correlated normal":
        return z @ (rng.normal(size=(d, d)) + np.eye(d))
    if shape == "uniform":
        return rng.uniform(size=(n, d))
    if shape == "two log-normal columns":
        return np.column_stack([np.exp(z[:, :2]), z[:, 2:]])
    if shape == "exponential":
        return rng.exponential(size=(n, d))
    if shape == "heavy tails":
        return rng.standard_t(3, (n, d)) if rng.integers(2) else z / np.sqrt(rng.chisquare(3, (n, 1)) / 3)
    if shape == "skewed and discrete":
        of = (np.exp, lambda x: np.maximum(x - 0.5, 0), lambda x: np.floor(np.exp(x / 2)), lambda x: x)
        return np.column_stack([of[j % len(of)](z[:, j]) for j in range(d)])
    if shape == "ball, arc, parabola":
        kind = rng.integers(3)
        if kind == 0:
            return z / np.linalg.norm(z, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / d)
        angle = rng.uniform(-1.2, 1.2, n)
        x, y = (2 * np.sin(angle), 2 * np.cos(angle)) if kind == 1 else (z[:, 0], z[:, 0] ** 2 / 2)
        bent = (0.15 if kind == 1 else 0.3) * rng.normal(size=(n, d))
        bent[:, 0] += x
        bent[:, 1] += y
        return bent
    return z


def groups(kind: str, n: int, d: int, k: int, gap: float, rng: np.random.Generator) -> FloatArray:
    """Return rows (n, d) of k clusters, of one standard deviation in every column but for unequal spreads."""
    centers = placed(k, d, gap, rng)
    if kind == "along one column":
        centers = gap * np.outer(np.arange(k), np.eye(d)[0])
    shares = np.geomspace(1, 10, k) if kind == "unequal sizes" else np.ones(k)
    labels = rng.choice(k, n, p=shares / shares.sum())
    noise = rng.standard_t(3, (n, d)) / np.sqrt(3) if "heavy" in kind else rng.normal(size=(n, d))
    if kind == "unequal spreads":
        noise *= np.geomspace(0.5, 1.5, k)[labels, None]
    X = centers[labels] + noise
    return X @ (np.eye(d) + 0.9 * rng.normal(size=(d, d)) / np.sqrt(d)) if kind == "correlated" else X


def found(name: str, clusters: bool, seed: int, i: int) -> NullTest:
    """Return the comparison of one table."""
    rng = np.random.default_rng([seed, int(clusters), (CLUSTERS if clusters else SHAPES).index(name), i])
    (n, m), d, last = SIZES[i % len(SIZES)], int(rng.choice(COLUMNS)), int(rng.choice(LAST))
    scale, gap = str(rng.choice(SCALES)), float(rng.choice(GAPS))
    k = int(rng.choice((2, 3, 5) if name != "along one column" else (2, 3)))
    if name == "ten with heavy tails":
        k, last = 10, 12
    X = groups(name, n, 8 if name == "8 columns" else d, k, gap, rng) if clusters else cloud(name, n, d, rng)
    sites = {f"site-{j}": own for j, own in enumerate(np.array_split(X, m))}
    null = flareclust.select_k("pooled", sites, (2, last), null=RUNS, scale=scale, seed=i).null
    assert null is not None
    return null


def main() -> None:
    seed, tables = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 25
    for clusters, names in ((False, SHAPES), (True, CLUSTERS)):
        total = Counter[str]()
        print(f"\n{'clusters' if clusters else 'no clusters'}, seed {seed}: tables with evidence, of {tables}\n")
        for name in names:
            counts = Counter[str]()
            for i in range(tables):
                null = found(name, clusters, seed, i)
                counts["all"] += null.evidence
                for one in null.comparisons:
                    counts[f"{one.criterion}, {one.reference}"] += one.p <= 0.05
            if not total:
                print(f"| | {' | '.join(counts)} |\n| --- {'| --- ' * len(counts)}|")
            print(f"| {name} | {' | '.join(map(str, counts.values()))} |", flush=True)
            total.update(counts)
        of = tables * len(names)
        print(f"| of {of} | {' | '.join(f'{count} ({count / of:.1%})' for count in total.values())} |", flush=True)


if __name__ == "__main__":
    main()
