"""k-means of rows in a mapped file that is read twice, beside Lloyd's iterations on all rows: `python -m benchmarks.summary`.

A mixture of 40 normal distributions in 16 columns, shuffled, sorted by distribution, and sorted with three far distributions
of one row in 50,000 each. Every way gets the same mapped file, gives centroids, and is judged by their inertia over all rows
beside the best of ten starts of Lloyd's algorithm. Passes are those that read rows in the search for centroids, and the
last labels; seconds are CPU time. Other ways: mini-batch k-means of scikit-learn, which draws a batch from each
piece of the file in turn from seeds of a sample of all of it, and k-means of a random sample of the rows.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from flareclust._foundation.typing import FloatArray
from flareclust.core.blas import one_thread
from flareclust.core.chunks import pieces
from flareclust.core.lloyd import assign, kmeans
from flareclust.core.summary import of_all_rows, summary_kmeans

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


def measured(X: FloatArray, order: str) -> Iterator[str]:
    """Give a line of the table for each way: means over the seeds, and the worst inertia."""
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
        mean, worst = statistics.fmean(inertias) / best, max(inertias) / best
        yield (
            f"| {order} | {name} | {statistics.fmean(passes):.0f} | {statistics.fmean(seconds):.1f} s "
            f"| {mean:.3f} | {worst:.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--folder", type=Path, help="for the file, 128 bytes a row; removed afterwards")
    chosen = parser.parse_args()
    for order in ("shuffled", "sorted", "sorted, far"):
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder, one_thread():
            file = Path(folder) / "rows.npy"
            write_rows(file, chosen.rows, order)
            for line in measured(np.load(file, mmap_mode="r"), order):
                print(line, flush=True)


if __name__ == "__main__":
    main()
