"""How often "Can the clusters be trusted?" of a report is right, on published sets with known classes and on generated ones.

    FLARECLUST_DATA=... python -m benchmarks.verdict

Each set is clustered by portfolio with four sites, eight repeats and 19 runs on rows without clusters: about five minutes on one core.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust.data.datasets import load
from flareclust.evaluation.verdict import verdict_on

NAMED = {"iris": 3, "wine": 3, "breast_cancer": 2, "s1": 15, "s2": 15, "s3": 15, "s4": 15, "dim032": 16, "dim128": 16}
NAMED |= {"blobs": 5, "grid16": 16}
#: Those that are in files only, by their numbers of clusters.
SHAPES = {"jain": 2, "flame": 2, "compound": 6}
SCALED = ("wine", "breast_cancer")


def gaussians(k: int, d: int, deviation: float, rows: list[int], seed: int) -> tuple[Any, Any]:
    """Return rows (n, d) about k centers that are uniform in a cube of side 20, and their clusters (n,)."""
    rng = np.random.default_rng(seed)
    centers, y = rng.uniform(-10, 10, (k, d)), np.repeat(np.arange(k), rows)
    return centers[y] + rng.normal(size=(len(y), d)) * deviation, y


def without_clusters() -> Iterator[tuple[str, Any, int]]:
    """Give names, rows, and the number of clusters that is asked for."""
    rng = np.random.default_rng(7)
    yield "uniform, 2 columns", rng.uniform(size=(1500, 2)), 4
    yield "uniform, 10 columns", rng.uniform(size=(1500, 10)), 4
    yield "one Gaussian, 2 columns", rng.normal(size=(1500, 2)), 3
    yield "one Gaussian, 8 columns", rng.normal(size=(1500, 8)), 3
    yield "one long Gaussian", rng.normal(size=(1500, 2)) * [3, 1], 2
    yield "log-normal columns", np.exp(rng.normal(size=(1500, 3))), 3
    yield "a band", np.column_stack([rng.uniform(0, 10, 1500), rng.normal(size=1500) * 0.3]), 4


def with_clusters() -> Iterator[tuple[str, Any, Any, int]]:
    """Give names, rows, their clusters, and the number of clusters that is asked for."""
    for name, k in NAMED.items():
        yield name, load(name).X, load(name).y, k
    for name, k in SHAPES.items():
        with np.load(Path(os.environ["FLARECLUST_DATA"]) / name / f"{name}.npz") as file:
            yield name, file[file.files[0]].astype(float), file[file.files[1]], k
    rng, y = np.random.default_rng(8), np.repeat([0, 1], 750)
    yield "2 overlap, 2.5 deviations", rng.normal(size=(1500, 2)) + np.outer(y * 2.5, [1, 0]), y, 2
    yield "2 long bands", rng.normal(size=(1500, 2)) * [6, 0.4] + np.outer(y, [0, 3]), y, 2
    y = np.repeat(np.arange(4), 400)
    yield "4 touch, 5 columns", rng.normal(size=(1600, 5)) + np.eye(5)[:4][y] * 3, y, 4
    y = np.repeat(np.arange(16), 100)
    yield "16 in 30 columns", rng.normal(size=(16, 30))[y] * 1.3 + rng.normal(size=(1600, 30)), y, 16
    y = np.repeat(np.arange(8), 200)
    yield "8 in 50 columns", rng.normal(size=(8, 50))[y] * 0.8 + rng.normal(size=(1600, 50)), y, 8
    yield "10 apart", *gaussians(10, 3, 0.6, [200] * 10, 3), 10
    yield "3 unbalanced", *gaussians(3, 2, 1.0, [1400, 140, 40], 5), 3
    yield "5 apart, k too small", *gaussians(5, 2, 0.5, [300] * 5, 6), 3
    yield "5 apart, k too large", *gaussians(5, 2, 0.5, [300] * 5, 6), 8
    yield "3 apart, k too large", *gaussians(3, 4, 0.7, [500] * 3, 9), 6
    X, y = gaussians(3, 2, 0.5, [300] * 3, 12)
    yield "3 in uniform noise", np.vstack([X, rng.uniform(-12, 12, (600, 2))]), np.append(y, np.full(600, 3)), 3


def row(name: str, X: Any, y: Any, k: int) -> str:
    """Return the line of a set: k, adjusted Rand index (0 without clusters), silhouette, smallest Jaccard index, p, and the verdict."""
    scale = {"scale": "standard"} if name in SCALED else {}
    found = flareclust.stability("portfolio", X, k=k, n_sites=4, repeats=8, null=19, **scale)
    labels, silhouette = found.result.labels, found.result.metrics["simplified_silhouette"]
    assert found.null is not None
    assert silhouette is not None
    ari = 0.0 if y is None else adjusted_rand_score(y[labels >= 0], labels[labels >= 0])
    worst = min(one.jaccard for one in found.clusters)
    verdict = verdict_on(found.clusters, found.null, silhouette)
    return f"| {name} | {k} | {ari:.2f} | {silhouette:.2f} | {worst:.2f} | {found.null.p:.2f} | {verdict.word} |"


def main() -> None:
    print(
        "| rows | k | ARI | silhouette | smallest Jaccard index | p | verdict |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for name, X, k in without_clusters():
        print(row(name, X, None, k), flush=True)
    for name, X, y, k in with_clusters():
        print(row(name, X, y, k), flush=True)


if __name__ == "__main__":
    main()
