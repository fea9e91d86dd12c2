"""Trees of micro-clusters beside those of the pooled rows, and beside portfolio: clusters of any shape, floors, time and memory.

    python -m benchmarks.trees             # ARI with the trees of the pooled rows
    python -m benchmarks.trees --classes   # ARI with the classes, beside HDBSCAN on the pooled rows and portfolio
    python -m benchmarks.trees --floors    # what larger micro-clusters cost
    python -m benchmarks.trees --large     # 100,000 rows over 20 sites: seconds and memory

The pooled rows have SciPy's Ward and scikit-learn's HDBSCAN, cut to the same number of clusters as ours; HDBSCAN has the
min_cluster_size and min_samples that ours took. Its number of clusters is asked of ours, with the cut into exactly so many. Rows
without a label, of either, are left out of a comparison of both; in one with the classes they are a class of their own. How far
the trees of the pooled rows can be trusted is said by their agreement with themselves: Ward's without each tenth row, HDBSCAN's with
sizes that are a tenth smaller and larger. Figures are means over the partitions to sites of three seeds.
"""

import argparse
import itertools
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.cluster import HDBSCAN
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.published import data_folder

_PUBLISHED = ("aggregation", "compound", "flame", "jain", "t4_8k")
_SITES, _SEEDS = 4, 3
_COMPARED, _FLOORS = (3, 5, 10), (3, 5, 10, 20, 50)


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


def _blobs(n: int, rng: np.random.Generator) -> _Set:
    """Return twelve round clusters in five columns."""
    centers, y = rng.uniform(-20, 20, (12, 5)), rng.integers(12, size=n)
    return _Set(centers[y] + rng.normal(size=(n, 5)), y)


def _sets() -> dict[str, Callable[[], _Set]]:
    """Return the data sets by name."""
    made: dict[str, Callable[[], _Set]] = {
        "moons": lambda: _Set(*make_moons(2000, noise=0.07, random_state=0)),
        "rings": lambda: _Set(*make_circles(2000, noise=0.05, factor=0.4, random_state=0)),
        "arcs": lambda: _arcs(4000, np.random.default_rng(0)),
        "blobs": lambda: _blobs(4000, np.random.default_rng(0)),
    }
    return {**{name: partial(published, name) for name in _PUBLISHED}, **made}


def published(name: str) -> _Set:
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


def _size(run: _Run) -> int:
    """Return the least rows of a cluster that a run took by default."""
    arrays = run.result.arrays
    received = float(run.result.outcome.rounds[0]["diagnostics"]["received"])
    return round(3 * float(arrays["labelled_rows"] + arrays["noise_rows"]) / received)


def _hdbscan(X: FloatArray, size: int) -> IntArray:
    """Return the labels (n,) of HDBSCAN on the pooled rows."""
    labels: IntArray = HDBSCAN(min_cluster_size=size, min_samples=size, copy=True).fit(X).labels_
    return labels


def _ward(X: FloatArray, k: int) -> IntArray:
    """Return the labels (n,) of Ward's tree on the pooled rows."""
    labels: IntArray = fcluster(linkage(X, "ward"), k, "maxclust")
    return labels


def _with_pooled(X: FloatArray, k: int, group_rows: int, seed: int) -> list[float]:
    """Return agreement of Ward's trees, of the pooled one with itself, and the same of HDBSCAN's."""
    ward = _run("tree", X, seed, k=k, group_rows=group_rows)
    kept = np.arange(len(X)) % 10 != seed
    own = _ward(X, k)
    found = [_alike(own, ward.labels), _alike(own[kept], _ward(X[kept], k))]
    size = _size(_run("tree", X, seed, k=k, shape="density", group_rows=group_rows))
    pooled = _hdbscan(X, size)
    number = int(pooled.max()) + 1
    if not number:
        return [*found, np.nan, np.nan]
    ours = _run("tree", X, seed, k=number, shape="density", group_rows=group_rows).labels
    others = [_hdbscan(X, max(2, round(part * size))) for part in (0.9, 1.1)]
    return [*found, _alike(pooled, ours), min(_alike(pooled, other) for other in others)]


def _with_classes(X: FloatArray, y: IntArray, group_rows: int, seed: int) -> list[float]:
    """Return agreement with the classes of Ward, density, density without k, pooled HDBSCAN and portfolio; and rows in none."""
    k = len(set(y.tolist()))
    free = _run("tree", X, seed, shape="density", group_rows=group_rows)
    asked = (_run("tree", X, seed, k=k, shape=shape, group_rows=group_rows) for shape in ("ward", "density"))
    labels = [*(one.labels for one in asked), free.labels, _hdbscan(X, _size(free))]
    labels.append(_run("portfolio", X, seed, k=k).labels)
    return [*(float(adjusted_rand_score(y, one)) for one in labels), float((free.labels < 0).mean())]


def _table(head: str, figures: Callable[[_Set, int], list[float]]) -> None:
    """Print a line for each data set, of means over the seeds; - where a seed has no figure."""
    print(f"set | {head}")
    for name, make in _sets().items():
        data = make()
        means = np.mean([figures(data, seed) for seed in range(_SEEDS)], axis=0)
        print(f"{name} | " + " | ".join("-" if np.isnan(one) else f"{one:.2f}" for one in means), flush=True)


def _compare() -> None:
    """Print the agreement with the trees of the pooled rows."""
    for floor in _COMPARED:
        print(f"\nmicro-clusters of {floor} rows or more, {_SITES} sites")
        _table(
            "Ward | pooled Ward with itself | density | pooled HDBSCAN with itself",
            lambda data, seed, floor=floor: _with_pooled(data.X, len(set(data.y.tolist())), floor, seed),  # type: ignore[misc]
        )


def _classes() -> None:
    """Print the agreement with the classes."""
    for floor in _COMPARED:
        print(f"\nmicro-clusters of {floor} rows or more, {_SITES} sites")
        _table(
            "Ward | density | without k | HDBSCAN | portfolio | in none",
            lambda data, seed, floor=floor: _with_classes(data.X, data.y, floor, seed),  # type: ignore[misc]
        )


def _floors() -> None:
    """Print the ARI with the classes by floor, with the true k."""
    for shape in ("ward", "density"):
        print(f"\n{shape}")

        def by_floor(data: _Set, seed: int, shape: str = shape) -> list[float]:
            k = len(set(data.y.tolist()))
            return [_floor(data, k, shape, floor, seed) for floor in _FLOORS]

        _table(" | ".join(map(str, _FLOORS)), by_floor)


def _floor(data: _Set, k: int, shape: str, floor: int, seed: int) -> float:
    try:
        labels = _run("tree", data.X, seed, k=k, shape=shape, group_rows=floor).labels
    except JobFailed:  # sites have a single micro-cluster each
        return np.nan
    return float(adjusted_rand_score(data.y, labels))


def _large() -> None:
    """Print seconds and memory of runs on 100,000 rows at 20 sites, with up to 500 and 1,000 micro-clusters of a site."""
    X = _blobs(100_000, np.random.default_rng(0)).X
    _run("tree", X[:2000], sites=20, shape="density")  # compiles
    for most, shape in itertools.product((500, 1000), ("ward", "density")):
        started = time.perf_counter()
        found = _run("tree", X, sites=20, shape=shape, max_groups=most)
        took, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        groups = found.result.outcome.rounds[0]["diagnostics"]["received"]
        print(
            f"{shape}, max_groups={most}: {groups:,.0f} micro-clusters, k={found.result.centroids_found}, {took:.1f} s, {peak:.2f} GiB",
            flush=True,
        )


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", action="store_true", help="agreement with the classes")
    parser.add_argument("--floors", action="store_true", help="what larger micro-clusters cost")
    parser.add_argument("--large", action="store_true", help="100,000 rows over 20 sites")
    asked = parser.parse_args()
    chosen = [_large] * asked.large + [_floors] * asked.floors + [_classes] * asked.classes
    for one in chosen or [_compare]:
        one()


if __name__ == "__main__":
    main()
