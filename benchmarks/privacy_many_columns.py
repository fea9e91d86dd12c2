"""What differential privacy costs with a hundred columns: two mixtures of Gaussians that others publish figures on.

    python -m benchmarks.privacy_many_columns [SEEDS]

In-process, delta = 1e-6. Writes benchmarks/records/privacy_many_columns.json and the table in docs/differential-privacy.md (means and
standard deviations over the seeds, 10 by default). Noise follows no seed. No files are needed.

- `ball`: 64 centers uniformly in a ball of radius 7/8, 100,000 rows in 100 columns with the deviation 1/8 from their center, in the
  ball of radius 1, ten sites, epsilon = 1: the synthetic data of Google's differentially private clustering (2021), ratio 8.
- `cube`: 10 centers uniformly in the unit cube, rows with the deviation 0.71 by column, 100 sites of 1,000 rows, epsilon = 3.13: the
  mixture of Scott, Lampert, Saulpic, Differentially Private Federated k-Means Clustering with Server-Side Data (2025).
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

import flareclust

ROOT = Path(__file__).resolve().parent.parent
DELTA = 1e-6


class Case(NamedTuple):
    """A mixture: its rows and classes by seed, and the job over it."""

    draw: Callable[[np.random.Generator], tuple[Any, Any]]
    k: int
    sites: int
    epsilon: float
    bounds: dict[str, float]


def in_ball(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return rows (100,000, 100) of 64 narrow clusters in the unit ball, and their classes."""
    k, n, d, ratio = 64, 100_000, 100, 8.0
    centers = rng.normal(size=(k, d))
    centers *= ((1 - 1 / ratio) * rng.uniform(size=k) ** (1 / d) / np.linalg.norm(centers, axis=1))[:, None]
    y = np.minimum(np.arange(n) // (n // k), k - 1)
    X = centers[y] + rng.normal(size=(n, d)) / (ratio * np.sqrt(d))
    return X / np.maximum(np.linalg.norm(X, axis=1), 1)[:, None], y


def in_cube(rng: np.random.Generator) -> tuple[Any, Any]:
    """Return rows (100,000, 100) of 10 wide clusters with centers in the unit cube, and their classes."""
    centers, y = rng.uniform(size=(10, 100)), rng.integers(10, size=100_000)
    return centers[y] + 0.71 * rng.normal(size=(len(y), 100)), y


CASES = {
    "ball": Case(in_ball, 64, 10, 1.0, {"norm": 1.0}),
    "cube": Case(in_cube, 10, 100, 3.13, {"norm": 9.0, "center": 0.5}),
}


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    figures: dict[str, dict[str, Any]] = {}
    for data, case in CASES.items():
        runs = {name: [one(case, seed, secure=name == "secure sums") for seed in range(seeds)] for name in NAMES}
        figures[data] = {
            name: {
                key: [float(np.mean(v)), float(np.std(v))]
                for key, v in zip(KEYS, zip(*found, strict=True), strict=True)
            }
            for name, found in runs.items()
        }
        print(data, figures[data], flush=True)
    record = {"seeds": seeds, "delta": DELTA, "figures": figures}
    (ROOT / "benchmarks" / "records" / "privacy_many_columns.json").write_text(json.dumps(record, indent=1) + "\n")
    page = ROOT / "docs" / "differential-privacy.md"
    page.write_text(with_table(page.read_text(encoding="utf-8"), record), encoding="utf-8")


NAMES, KEYS = ("noise at each site", "secure sums"), ("inertia", "accuracy")


def one(case: Case, seed: int, *, secure: bool) -> tuple[float, float]:
    """Return the inertia over that of the classes' means, and the share of rows in the cluster of their class."""
    X, y = case.draw(np.random.default_rng(seed))
    order = np.random.default_rng(seed).permutation(len(X))
    sites = {f"site-{i}": X[part] for i, part in enumerate(np.array_split(order, case.sites))}
    granted = {"bounds": case.bounds, "epsilon": case.epsilon, "delta": DELTA, "budget": case.epsilon}
    settings: dict[str, Any] = {"epsilon": case.epsilon, "delta": DELTA, "policy": {"differential_privacy": granted}}
    result = flareclust.run("dp-lloyd", sites, k=case.k, seed=seed, secure_sums=secure, **settings)
    labels, inertia = nearest(X, result.centroids)
    _, least = nearest(X, np.array([X[y == j].mean(axis=0) for j in range(case.k)]))
    table = np.zeros((case.k, case.k))
    np.add.at(table, (y, labels), 1)
    return inertia / least, float(table[linear_sum_assignment(-table)].sum() / len(y))


def nearest(X: Any, centroids: Any) -> tuple[Any, float]:
    """Return the nearest centroid of each row, and the sum of squared distances."""
    squares = (centroids**2).sum(axis=1) - 2 * X @ centroids.T
    return squares.argmin(axis=1), float(squares.min(axis=1).sum() + (X**2).sum())


def with_table(page: str, record: dict[str, Any]) -> str:
    """Return the text of the page with its table written anew."""
    lines = ["| data | noise | inertia / that of the classes' means | accuracy |", "| --- | --- | --- | --- |"]
    for data, found in record["figures"].items():
        for name, measures in found.items():
            cells = [f"{mean:.3f} ± {spread:.3f}" for mean, spread in (measures[key] for key in KEYS)]
            lines.append(f"| {data} | {name} | {' | '.join(cells)} |")
    before, rest = page.split("<!-- many columns -->")
    return (
        f"{before}<!-- many columns -->\n"
        + "\n".join(lines)
        + "\n<!-- /many columns -->"
        + rest.split("<!-- /many columns -->")[1]
    )


if __name__ == "__main__":
    main()
