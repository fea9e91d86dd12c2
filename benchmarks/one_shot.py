"""FeCA and k-FED on the S-sets: l2 distance to the true centroids over 30 seeds, and the time it takes.

    FLARECLUST_DATA=<folder> python -m benchmarks.one_shot

Each line is the mean, the population standard deviation and the maximum of l2 / 1e4 over the seeds, with 10 sites,
in-process; the number of centroids found is the smallest of all runs.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import flareclust

SEEDS = 30
SPLITS = ("iid", "dirichlet:0.3", "dirichlet:0.1")
SETS = ("s1", "s2", "s3", "s4")


def cells() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for name in SETS:
        for split in SPLITS:
            yield "feca", name, split, {}
        yield "feca", name, "iid", {"n_init": 10}
    for name in SETS:
        for split in SPLITS:
            yield "kfed", name, split, {"k_local": 5}
    yield "kfed", "s1", "iid", {"k_local": 15}


def main() -> None:
    flareclust.run("feca", data="blobs")  # imports and kernels
    for algorithm, name, split, params in cells():
        started = time.perf_counter()
        results = [flareclust.run(algorithm, data=name, partition=split, seed=seed, **params) for seed in range(SEEDS)]
        seconds = time.perf_counter() - started
        l2 = np.array([result.metrics["l2"] for result in results], dtype=float) / 1e4
        found = min(result.centroids_found for result in results)
        settings = " ".join(f"{key}={value}" for key, value in params.items())
        print(
            f"{algorithm:5} {name} {split:14} {settings:12} {l2.mean():6.2f} ± {l2.std():5.2f}  max {l2.max():6.2f}  "
            f"found >= {found}  {seconds:5.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
