"""What rows that are far from all others cost, and what `trim_rows` saves: ten clusters, ten sites, five rows in a hundred spoilt.

    python -m benchmarks.spoilt_rows [ALGORITHM ...]

Printed for each share of trimmed rows and over five seeds: how many of the ten true centers have a centroid within one
standard deviation, and the adjusted Rand index of the good rows.
"""

import sys
from collections.abc import Iterator

import numpy as np
from sklearn.metrics import adjusted_rand_score

import flareclust

SITES, CLUSTERS, EACH, SPOILT, SEEDS, SHARES = 10, 10, 200, 0.05, 5, (0.0, 0.05, 0.1)


def measured(algorithm: str, seed: int) -> Iterator[tuple[float, int, float]]:
    """Yield for each share of trimmed rows how many centers were found, and the index of the good rows."""
    rng = np.random.default_rng(seed)
    side = 8.0 * CLUSTERS**0.5
    centers = np.array([[8.0 * (c % 4), 8.0 * (c // 4)] for c in range(CLUSTERS)])
    y = rng.permutation(np.repeat(np.arange(CLUSTERS), EACH))
    X = centers[y] + rng.normal(size=(len(y), 2))
    good = rng.random(len(y)) >= SPOILT
    X[~good] = centers.mean(axis=0) + rng.uniform(-5 * side, 5 * side, ((~good).sum(), 2))
    sites = {f"site-{i}": X[i::SITES] for i in range(SITES)}
    for share in SHARES:
        found = flareclust.run(algorithm, sites, k=CLUSTERS, seed=seed, trim_rows=share)
        labels = np.empty(len(y), np.int64)
        for i in range(SITES):
            labels[i::SITES] = found.site_labels[f"site-{i}"]
        away = np.linalg.norm(centers[:, None] - found.centroids, axis=2).min(axis=1)
        yield share, int((away < 1).sum()), float(adjusted_rand_score(y[good], labels[good]))


def main() -> None:
    """Print a line per algorithm and share."""
    for algorithm in sys.argv[1:] or ("portfolio", "lloyd"):
        for share, *runs in zip(SHARES, *(list(measured(algorithm, seed)) for seed in range(SEEDS)), strict=True):
            centers, index = [run[1] for run in runs], [run[2] for run in runs]
            print(
                f"{algorithm} trim_rows={share}: {min(centers)} to {max(centers)} of {CLUSTERS} centers, "
                f"adjusted Rand index {min(index):.2f} to {max(index):.2f}"
            )


if __name__ == "__main__":
    main()
