"""What a site's policy costs where cells are missing: adjusted Rand index and inertia of complete rows, with and without a policy.

    FLARECLUST_DATA=<folder> python -m benchmarks.policy_gaps

It prints a table in Markdown: docs/adr/0017-microaggregation.md has it. Cells are missing at random (10 %, 30 %), or half of the rows
lack the same half of the columns (block). Columns have variance 1; jobs say `missing=mean`; means over seeds 0 to 4.
"""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import assign
from flareclust.data.datasets import load

DATA = {"iris": (3, 3), "wine": (3, 3), "breast_cancer": (2, 3), "s1": (15, 10)}
ALGORITHMS, GAPS, SEEDS = ("portfolio", "lloyd", "feca"), ("10 %", "30 %", "block"), range(5)


def with_gaps(X: FloatArray, gaps: str, rng: np.random.Generator) -> FloatArray:
    """Return the rows X (n, d) with cells missing; every row keeps one."""
    n, d = X.shape
    if gaps == "block":
        missing = (rng.random((n, 1)) < 0.5) & (rng.permutation(d) < d // 2)
    else:
        missing = rng.random((n, d)) < float(gaps.split()[0]) / 100
        missing[np.arange(n), rng.integers(d, size=n)] = False
    return np.where(missing, np.nan, X)


def measured(data: str, gaps: str, algorithm: str, policy: dict[str, int] | None) -> tuple[float, float]:
    """Return the adjusted Rand index, and the inertia over that of k-means of all complete rows: means over seeds."""
    dataset, (k, sites) = load(data), DATA[data]
    X = (dataset.X - dataset.X.mean(axis=0)) / dataset.X.std(axis=0)
    best = KMeans(k, n_init=10, random_state=0).fit(X).inertia_
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        parts = np.array_split(rng.permutation(len(X)), sites)
        rows = with_gaps(X, gaps, rng)
        tables = {f"site-{i}": rows[part] for i, part in enumerate(parts)}
        centroids = flareclust.run(algorithm, tables, k=k, missing="mean", seed=seed, policy=policy).centroids
        labels, squared = assign(X, centroids)
        found.append((adjusted_rand_score(dataset.y, labels), squared.sum() / best))
    return float(np.mean([one for one, _ in found])), float(np.mean([two for _, two in found]))


def main() -> None:
    print("| data | gaps | " + " | ".join(f"`{name}`" for name in ALGORITHMS) + " |")
    print("| --- | --- |" + " --- |" * len(ALGORITHMS))
    for data in DATA:
        for gaps in GAPS:
            cells = []
            for name in ALGORITHMS:
                free, held = measured(data, gaps, name, None), measured(data, gaps, name, {})
                cells.append(f"{free[0]:.3f}, {held[0]:.3f}; {free[1]:.3f}, {held[1]:.3f}")
            print(f"| {data} | {gaps} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
