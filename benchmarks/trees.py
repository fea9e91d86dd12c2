"""Trees of micro-clusters beside those of the pooled rows, and beside portfolio: clusters of any shape, floors, time and memory.

    python -m benchmarks.trees             # ARI with the trees of the pooled rows, and with the classes
    python -m benchmarks.trees --floors    # what larger micro-clusters cost
    python -m benchmarks.trees --large     # 100,000 rows over 20 sites: seconds and memory

The pooled rows have SciPy's Ward and scikit-learn's HDBSCAN, cut to the same number of clusters as ours; HDBSCAN has the
min_cluster_size and min_samples that ours took. Its number of clusters is asked of ours, with the cut into exactly so many. Rows
without a label, of either, are left out of a comparison of both; in one with the classes they are a class of their own.
"""

import argparse
import resource
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.published import data_folder

_PUBLISHED = ("aggregation", "compound", "flame", "jain", "t4_8k")
_SITES = 4
_FLOORS = (5, 10, 20, 50)


class _Set(NamedTuple):
    """Rows (n, d) and their classes (n,)."""

    X: FloatArray
    y: IntArray


def _arcs(n: int, rng: np.random.Generator) -> _Set:
    """Return four half circles, up and down in turn, each of which reaches into the next one."""
    y = np.repeat(np.arange(4), n // 4)
    angle = rng.uniform(0, np.pi, len(y))
    down = y % 2 == 1
    x = np.column_stack([np.cos(angle) + 1.2 * y, np.where(down, 0.5 - np.sin(angle), np.sin(angle))])
    return _Set(x + rng.normal(scale=0.05, size=x.shape), y)


def _sets() -> dict[str, Callable[[], _Set]]:
    """Return the data sets by name."""
    made: dict[str, Callable[[], _Set]] = {
        "moons": lambda: _Set(*make_moons(2000, noise=0.07, random_state=0)),
        "rings": lambda: _Set(*make_circles(2000, noise=0.05, factor=0.4, random_state=0)),
        "arcs": lambda: _arcs(2000, np.random.default_rng(0)),
    }
    return {**{name: partial(_published, name) for name in _PUBLISHED}, **made}


def _published(name: str) -> _Set:
    """Return a set of the folder FLARECLUST_DATA, which has more of them than the package knows by name."""
    with np.load(data_folder() / name / f"{name}.npz", allow_pickle=False) as found:
        return _Set(found["X"].astype(np.float64), found["y"].astype(np.int64))


class _Run(NamedTuple):
    """What a run found: the labels (n,) of the rows, in their order, and the result."""

    labels: IntArray
    result: Any


def _run(algorithm: str, X: FloatArray, seed: int = 0, sites: int = _SITES, **settings: Any) -> _Run:
    """Run an algorithm on rows that are split at random over the sites."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(X)), sites)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = flareclust.run(algorithm, {f"site-{i:02}": X[part] for i, part in enumerate(parts)}, **settings)
    labels = np.empty(len(X), np.int64)
    for i, part in enumerate(parts):
        labels[part] = found.site_labels[f"site-{i:02}"]
    return _Run(labels, found)


def _alike(a: IntArray, b: IntArray) -> float:
    """Return the ARI of two clusterings (n,) over the rows that have a label in both."""
    both = (a >= 0) & (b >= 0)
    return float(adjusted_rand_score(a[both], b[both]))


def _pooled_density(arrays: Mapping[str, Any], X: FloatArray) -> IntArray:
    """Return the labels (n,) of HDBSCAN on the pooled rows, with the sizes that a run took by default."""
    size = round(3 * float(arrays["received_counts"].mean()))
    labels: IntArray = HDBSCAN(min_cluster_size=size, min_samples=size, copy=True).fit(X).labels_
    return labels


def _compare(group_rows: int) -> None:
    """Print a line for each data set."""
    print(f"\nmicro-clusters of {group_rows} rows or more, {_SITES} sites")
    print(
        "set | Ward, pooled Ward | density, pooled HDBSCAN | Ward | density | without k | HDBSCAN | portfolio | in none"
    )
    for name, make in _sets().items():
        X, y = make()
        k = len(set(y.tolist()))
        ward = _run("tree", X, k=k, group_rows=group_rows)
        free = _run("tree", X, shape="density", group_rows=group_rows)
        pooled = _pooled_density(free.result.arrays, X)
        number = max(1, int(pooled.max()) + 1)
        same = _run("tree", X, k=number, shape="density", group_rows=group_rows)
        asked = _run("tree", X, k=k, shape="density", group_rows=group_rows)
        figures = [
            _alike(fcluster(linkage(X, "ward"), k, "maxclust"), ward.labels),
            _alike(pooled, same.labels),
            *(float(adjusted_rand_score(y, labels)) for labels in (ward.labels, asked.labels, free.labels, pooled)),
            float(adjusted_rand_score(y, _run("portfolio", X, k=k).labels)),
        ]
        in_none = float((free.labels < 0).mean())
        print(f"{name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + f" | {in_none:.0%}", flush=True)


def _floors() -> None:
    """Print the ARI with the classes by floor."""
    print("set | shape | " + " | ".join(map(str, _FLOORS)))
    for name, make in _sets().items():
        X, y = make()
        k = len(set(y.tolist()))
        for shape in ("ward", "density"):
            found = [_run("tree", X, k=k, shape=shape, group_rows=floor).labels for floor in _FLOORS]
            print(
                f"{name} | {shape} | " + " | ".join(f"{adjusted_rand_score(y, one):.2f}" for one in found), flush=True
            )


def _large() -> None:
    """Print seconds and memory of a run on 100,000 rows at 20 sites."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-20, 20, (12, 5))
    X = centers[rng.integers(12, size=100_000)] + rng.normal(size=(100_000, 5))
    _run("tree", X[:2000], sites=20, shape="density")  # compiles
    for shape in ("ward", "density"):
        started = time.perf_counter()
        found = _run("tree", X, sites=20, shape=shape, max_groups=500)
        took, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        groups = len(found.result.arrays["received_counts"])
        print(
            f"{shape}: {groups} micro-clusters, k={found.result.centroids_found}, {took:.1f} s, {peak:.2f} GiB",
            flush=True,
        )


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--floors", action="store_true", help="what larger micro-clusters cost")
    parser.add_argument("--large", action="store_true", help="100,000 rows over 20 sites")
    asked = parser.parse_args()
    if asked.large:
        _large()
    elif asked.floors:
        _floors()
    else:
        for group_rows in (5, 10):
            _compare(group_rows)


if __name__ == "__main__":
    main()
