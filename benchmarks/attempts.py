"""What the start from totals and the attempts to split and merge do to `lloyd`: inertia over the best of k-means on the pooled rows.

    python -m benchmarks.attempts           # sets by split, ten sites; generated and small sets, five sites
    python -m benchmarks.attempts --two     # two clusters, long or unequal, at few sites

Printed are the mean (smallest, largest) over seeds or sets, and in square brackets the mean number of rounds.
"""

import argparse
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import flareclust
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import kmeans
from flareclust.data.datasets import load
from flareclust.data.partition import partition

_SPLITS = ("iid", "dirichlet:0.3", "dirichlet:0.1")
_SECURE: dict[str, Any] = {"secure_sums": True}


def generated(kind: str, seed: int) -> tuple[FloatArray, int]:
    """Return rows and k: clusters of unequal sizes and widths (3,000 rows, 7 in 5 columns), alike (12 in 8), or elongated (6 in 4)."""
    rng = np.random.default_rng(seed)
    n, k, d, width = {"unequal": (3000, 7, 5, 4), "equal": (3000, 12, 8, 2), "elongated": (2000, 6, 4, 5)}[kind]
    y = rng.choice(k, n, p=[0.5, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02] if kind == "unequal" else None)
    means = width * rng.normal(size=(k, d))
    if kind == "elongated":
        shapes = rng.normal(size=(k, d, d))
        return means[y] + np.einsum("nd,nde->ne", rng.normal(size=(n, d)), shapes[y]), k
    noise = rng.normal(size=(n, d))
    return means[y] + (noise * rng.uniform(0.5, 1.5, k)[y][:, None] if kind == "unequal" else noise), k


def two(kind: str, seed: int, m: int) -> dict[str, FloatArray]:
    """Return the rows of m sites with unlike shares of two clusters: long ones side by side, or of 450 and 50 rows."""
    rng = np.random.default_rng([seed, m, len(kind)])
    y = np.repeat([0, 1], [250, 250] if kind == "long" else [450, 50])
    X = rng.normal(size=(500, 2)) * ([1.0, 6.0] if kind == "long" else [2.0, 2.0])
    X[y == 1, 0] += 11.5
    shares = [rng.dirichlet([0.3] * m) for _ in range(2)]
    own = np.array([rng.choice(m, p=shares[side]) for side in y])
    return {f"site-{i}": X[own == i] for i in range(m) if np.count_nonzero(own == i) > 1}


def line(ratios: Iterable[tuple[float, int]]) -> str:
    """Return mean (smallest, largest) of ratios, and the mean number of rounds."""
    values, rounds = np.array(list(ratios)).T
    spread = f" ({values.min():.3f}, {values.max():.3f})" if len(values) > 1 else ""
    return f"{values.mean():.3f}{spread} [{rounds.mean():.0f}]"


def run(sites: dict[str, FloatArray], k: int, seed: int, best: float, **settings: Any) -> tuple[float, int]:
    """Return the inertia of a run in units of the best, and its rounds."""
    result = flareclust.run("lloyd", sites, k, seed=seed, min_sites=3, **settings)
    assert result.metrics["inertia"] is not None
    return result.metrics["inertia"] / best, result.rounds


def by_split() -> None:
    """Print a line for each set and split: seeds 0 to 9, ten sites."""
    print("| data | split | plain, from seeds | secure sums, from totals |")
    for name in ("s1", "s2", "s3", "s4", "digits"):
        data = load(name)
        k = 10 if name == "digits" else 15
        best = kmeans(data.X, k, np.random.default_rng(0), n_init=50).inertia
        for how in _SPLITS:
            cells = []
            for settings in ({}, _SECURE):
                found = []
                for seed in range(10):
                    parts = partition(how, data.X, data.y, 10, np.random.default_rng(seed))
                    found.append(run({site: data.X[own] for site, own in parts.items()}, k, seed, best, **settings))
                cells.append(line(found))
            print(f"| {name} | {how} | " + " | ".join(cells) + " |", flush=True)


def small() -> Iterator[tuple[str, list[tuple[FloatArray, int]]]]:
    """Yield the sets of a line, and how many clusters are asked for."""
    for kind in ("unequal", "equal", "elongated"):
        yield kind, [generated(kind, seed) for seed in range(8)]
    asked = (("iris", 3), ("iris", 8), ("wine", 3), ("wine", 8), ("breast_cancer", 2), ("grid16", 16))
    for name, k in (*asked, ("dim032", 16), ("digits", 10), ("s3", 15), ("s4", 15)):
        X = load(name).X
        yield name, [(X / X.std(axis=0) if name in ("wine", "breast_cancer") else X, k)]


def by_attempts() -> None:
    """Print a line for each kind of set: rows at random at five sites, seed 0."""
    print("| data, k | plain, from seeds | secure sums, `split_merge=0` | secure sums, default |")
    for name, sets in small():
        cells = []
        for settings in ({}, {**_SECURE, "split_merge": 0}, _SECURE):
            found = []
            for X, k in sets:
                parts = partition("iid", X, None, 5, np.random.default_rng(0))
                best = kmeans(X, k, np.random.default_rng(0), n_init=20).inertia
                found.append(run({site: X[own] for site, own in parts.items()}, k, 0, best, **settings))
            cells.append(line(found))
        print(f"| {name}, {sets[0][1]} | " + " | ".join(cells) + " |", flush=True)


def by_two() -> None:
    """Print how many runs of two clusters end more than 2 % above the best, with and without the attempt."""
    for kind in ("long", "unequal"):
        for settings in ({}, {"split_merge": 0}):
            found = []
            for seed in range(21):
                for m in (3, 5):
                    sites = two(kind, seed, m)
                    if len(sites) < 3:
                        continue
                    best = kmeans(np.concatenate(list(sites.values())), 2, np.random.default_rng(0), n_init=20).inertia
                    found.append(run(sites, 2, seed, best, **settings))
            worse = sum(ratio > 1.02 for ratio, _ in found)
            print(f"{kind} {settings}: {worse} of {len(found)} above 2 %; {line(found)}", flush=True)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--two", action="store_true")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    if asked.two:
        by_two()
        return
    by_split()
    by_attempts()


if __name__ == "__main__":
    main()
