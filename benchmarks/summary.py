"""k-means of rows in a mapped file that is read twice, beside Lloyd's iterations on all rows: `python -m benchmarks.summary [--record]`.

A mixture of 40 normal distributions in 16 columns, shuffled, sorted by distribution, and sorted with three far distributions
of one row in 50,000 each. Every way gets the same mapped file, gives centroids, and is judged by their inertia over all rows
beside the best of ten starts of Lloyd's algorithm. Passes are those that read rows in the search for centroids, and the
last labels; seconds are CPU time. Other ways: mini-batch k-means of scikit-learn, which draws a batch from each
piece of the file in turn from seeds of a sample of all of it, and k-means of a random sample of the rows.

`--record` writes benchmarks/records/summary.json and the table in docs/performance.md.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from benchmarks.speed.page import recorded
from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import pieces
from flareclust.core.lloyd import assign, kmeans
from flareclust.core.local import of_all_rows, summary_kmeans
from flareclust.core.runtime import one_thread

RECORD = Path(__file__).resolve().parent / "records" / "summary.json"

D, K, STARTS, SEEDS = 16, 10, 10, 3
BATCH, SAMPLE, OF_SEEDS = 1024, 50_000, 10_240

#: Returns centroids and how many passes over the rows they took.
Way = Callable[[FloatArray, np.random.Generator], tuple[FloatArray, float]]


def write_rows(file: Path, n: int, order: str) -> None:
    """Write rows (n, 16) in an order: shuffled, sorted, or sorted with small far distributions."""
    rng = np.random.default_rng(0)
    centers, shares = 1.5 * rng.normal(size=(40, D)), rng.dirichlet(np.full(40, 2.0))
    if order.endswith("far"):
        centers[:3] += np.array([40.0, 60.0, 80.0])[:, None]
        shares[:3] = 1 / 50_000
    owner = rng.choice(40, size=n, p=shares / shares.sum())
    if order != "shuffled":
        owner.sort()
    rows = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(n, D))
    for part in pieces(n, D):
        rows[part] = centers[owner[part]] + rng.normal(size=rows[part].shape)
    rows.flush()


def lloyd_of(starts: int) -> Way:
    """Return Lloyd's algorithm on all rows; from a million rows on it asks before each pass but the first and last ones."""

    def way(X: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
        asked = [1]  # the columns' moments

        def aborted() -> bool:
            asked[0] += 1
            return False

        found = kmeans(X, K, rng, n_init=starts, aborted=aborted)
        return found.centroids, asked[0] + 2 * starts  # with the first seed and the last labels of each

    return way


def by_summary(X: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Return centroids of the summary."""
    return summary_kmeans(X, K, rng, n_init=STARTS).centroids, 2


def by_batches(X: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Return centroids of mini-batch k-means: a batch of each piece."""
    seeds = kmeans(_drawn(X, OF_SEEDS, rng), K, rng, n_init=STARTS, max_iter=1).centroids
    model = MiniBatchKMeans(K, init=seeds, n_init=1, random_state=0)
    for part in pieces(*X.shape):
        model.partial_fit(_drawn(X[part], BATCH, rng))
    return of_all_rows(X, model.cluster_centers_).centroids, 2


def by_sample(X: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, float]:
    """Return centroids of k-means on a sample."""
    return of_all_rows(X, kmeans(_drawn(X, SAMPLE, rng), K, rng, n_init=STARTS).centroids).centroids, 2


def _drawn(X: FloatArray, size: int, rng: np.random.Generator) -> FloatArray:
    return np.array(X[np.sort(rng.choice(len(X), size=min(size, len(X)), replace=False))])


WAYS: dict[str, tuple[Way, int]] = {
    f"lloyd, n_init={STARTS}": (lloyd_of(STARTS), 1),
    "lloyd, n_init=1": (lloyd_of(1), SEEDS),
    f"summary, n_init={STARTS}": (by_summary, SEEDS),
    f"mini-batches of {BATCH:,}": (by_batches, SEEDS),
    f"a sample of {SAMPLE:,} rows": (by_sample, SEEDS),
}


def measured(X: FloatArray, order: str) -> Iterator[dict[str, Any]]:
    """Give a line for each way: means over the seeds, and the largest inertia, beside that of the first way."""
    best = 0.0
    for name, (way, seeds) in WAYS.items():
        way(X[:50_000], np.random.default_rng(0))  # compiles
        seconds, passes, inertias = [], [], []
        for seed in range(seeds):
            started = time.process_time()
            centroids, read = way(X, np.random.default_rng(seed))
            seconds.append(time.process_time() - started)
            passes.append(read)
            inertias.append(sum(float(assign(X[part], centroids)[1].sum()) for part in pieces(*X.shape)))
        best = best or inertias[0]
        yield {
            "order": order,
            "way": name,
            "passes": statistics.fmean(passes),
            "cpu": statistics.fmean(seconds),
            "inertia": statistics.fmean(inertias) / best,
            "largest": max(inertias) / best,
        }


def row(line: dict[str, Any]) -> str:
    """Return a line of the table."""
    cells = [line["order"], line["way"], f"{line['passes']:.0f}", f"{line['cpu']:.1f} s"]
    return f"| {' | '.join([*cells, *(f'{line[name]:.3f}' for name in ('inertia', 'largest'))])} |"


def table(record: dict[str, Any]) -> str:
    """Return what stands on the page."""
    size = 8 * record["rows"] * D / 1e6
    about = (
        f"{record['rows']:,} rows in {D} columns in a mapped npy file ({size:,.0f} MB, in the system's cache), 40 normal "
        f"distributions, k = {K}; CPU time, {record['date']}, {record['cores']} cores beside other work."
    )
    rows = [
        about,
        "",
        "| order of the rows | way | passes | time | inertia | largest |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    return "\n".join([*rows, *map(row, record["lines"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--folder", type=Path, help="for the file, 128 bytes a row; removed afterwards")
    parser.add_argument("--record", action="store_true", help="write the record and the page")
    chosen = parser.parse_args()
    lines = []
    for order in ("shuffled", "sorted", "sorted, far"):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, one_thread():
            file = Path(folder) / "rows.npy"
            write_rows(file, chosen.rows, order)
            for line in measured(np.load(file, mmap_mode="r"), order):
                lines.append(line)
                print(row(line), flush=True)
    if chosen.record:
        about = {"date": date.today().isoformat(), "cores": os.cpu_count(), "rows": chosen.rows}
        record = {**about, "lines": lines}
        recorded(RECORD, record, "summary", table(record))


if __name__ == "__main__":
    main()
