"""What a site's Dask cluster costs beside the site alone: processor seconds of the same computation.

    python -m benchmarks.dask_site [ROWS_PER_PART] [PARTS]

Rows of 16 columns, k = 20, in parquet parts that two worker processes of this machine read. `alone` is one process with all rows in
memory; `workers` is what both workers take together, `site` what the site's process takes with the scheduler, which runs in it.
Processor time says how much work there is, whatever else the machine does. docs/adr/0028-sites-on-dask-clusters.md has the figures.
"""

import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from flareclust._foundation.typing import FloatArray, never_abort
from flareclust.core import assessment, local, part_kmeans, part_sums
from flareclust.data.tables import File
from flareclust.sites.cluster import DaskParts, parts_on

COLUMNS, K = 16, 20


def rows_of(n: int) -> FloatArray:
    """Return n rows of K groups."""
    rng = np.random.default_rng(0)
    return 4 * rng.normal(size=(K, COLUMNS))[rng.integers(K, size=n)] + rng.normal(size=(n, COLUMNS))


@contextmanager
def on_workers(X: FloatArray, parts: int) -> Iterator[DaskParts]:
    """Give the rows on a cluster of two workers."""
    from distributed import LocalCluster

    names = [f"c{j}" for j in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        files = [File(Path(folder) / f"part.{i}.parquet", f"part.{i}", "parquet") for i in range(parts)]
        for file, part in zip(files, np.array_split(X, parts), strict=True):
            pa.parquet.write_table(pa.table({name: part[:, j] for j, name in enumerate(names)}), file.path)
        quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
        with LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", **quiet) as cluster:
            found = parts_on(cluster.scheduler_address.replace("tcp", "dask"), files, names, None)
            try:
                yield found
            finally:
                found.close()


def seconds(compute: Callable[[], object], parts: DaskParts | None = None) -> tuple[float, float]:
    """Return processor seconds of this process and of the workers, the second time that something is computed."""

    def elsewhere() -> float:
        return 0.0 if parts is None else sum(parts._client.run(time.process_time).values())

    compute()
    here, there = time.process_time(), elsewhere()
    compute()
    return time.process_time() - here, elsewhere() - there


def main(per_part: int = 250_000, n_parts: int = 8) -> None:
    """Print the table."""
    X = rows_of(per_part * n_parts)
    centroids = X[:K].copy()

    def rng() -> np.random.Generator:
        return np.random.default_rng(0)

    print(f"{n_parts} parts of {per_part:,} rows")
    print(f"{'':10}{'alone':>8}{'workers':>9}{'site':>7}  seconds of processors")
    with on_workers(X, n_parts) as parts:
        cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "update": (
                lambda: local.lloyd_update(X, centroids, 2),
                lambda: part_sums.lloyd_update(parts, centroids, 2),
            ),
            "assess": (lambda: assessment.assessment_sums(X, centroids), lambda: part_sums.assessed(parts, centroids)),
            "k-means": (
                lambda: local.local_clusters(X, K, rng(), n_init=1, min_count=2, aborted=never_abort),
                lambda: part_kmeans.local_clusters(parts, K, rng(), n_init=1, min_count=2),
            ),
        }
        for name, (alone, over_parts) in cases.items():
            one, (site, workers) = seconds(alone)[0], seconds(over_parts, parts)
            print(f"{name:10}{one:8.2f}{workers:9.2f}{site:7.2f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
