"""What is timed at the server: merging the centroids of all sites."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import KMeans

from benchmarks.speed import twins
from benchmarks.speed.server_measure import Line, Trial
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.aggregators.feca import group_by_radius, group_in_turn
from flareclust.core import robust
from flareclust.core.agglomeration import agglomerate
from flareclust.core.forces import pair_forces
from flareclust.core.lloyd import kmeans
from flareclust.core.missing.distances import extremes
from flareclust.core.missing.grouping import _seeds_a, method_a
from flareclust.core.seeds import farthest_first

_MILLION = 1_000_000


def centres(n: int, d: int, clusters: int, spread: float, seed: int = 0) -> FloatArray:
    """Return centroids (n, d) that sites sent, scattered about as many true ones as there are clusters, in random order."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 1, (clusters, d))
    found: FloatArray = truth[rng.integers(clusters, size=n)] + spread * rng.normal(size=(n, d))
    return found


def _farthest(n: int, d: int, k: int, plain: bool = False) -> Trial:
    points = centres(n, d, 50, 0.05)
    some = points[:20_000]
    start = np.array([0])

    def equal() -> str:
        return _yes(np.array_equal(farthest_first(some, k, start), twins.farthest_first(some, k)), "20,000")

    if plain:
        return Trial(lambda: farthest_first(points, k, start), lambda: twins.farthest_first(points, k), 1, equal)
    return Trial(lambda: farthest_first(points, k, start), points.sum, k - 1, equal)


def _feca(n: int, d: int, clusters: int) -> Trial:
    spread = 0.02 * clusters ** (-1 / d)
    points = centres(n, d, clusters, spread)
    radii = 6 * np.sqrt(d) * spread * np.random.default_rng(1).uniform(0.5, 1, n)
    some = slice(0, 10_000)

    def equal() -> str:
        found = group_by_radius(points[some], radii[some])
        plain = group_in_turn(points[some], radii[some], np.argsort(-radii[some], kind="stable"))
        groups = len(group_by_radius(points, radii)[1])
        return _yes(all(map(np.array_equal, found, plain)), "10,000") + f"; {groups:,} groups"

    return Trial(lambda: group_by_radius(points, radii), lambda: np.argsort(-radii, kind="stable"), 1, equal)


def _attraction(c: int, each: int, d: int, share: float) -> Trial:
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(c), each)
    points = rng.normal(size=(c, d))[cluster] * 3 + rng.normal(size=(c * each, d))
    masks = rng.random((10, d)) < share
    points[~masks[cluster % 10]] = np.nan
    # Products of matrices over the columns that two sites have in common, each pair of points once.
    common = (masks[cluster % 10].astype(float) @ masks.T.astype(float))[:, cluster % 10].sum()
    A = rng.normal(size=(2048, 2048))

    def equal() -> str:
        few = cluster < 10
        force = pair_forces(points[few], cluster[few]).force
        ends, values = extremes(points[few]), points[few]
        scale = (ends.high - ends.low) ** 2
        plain = np.zeros_like(force)
        for x, i in zip(values, cluster[few], strict=True):
            both = ~np.isnan(x) & ~np.isnan(values)
            away = np.where(both, (np.nan_to_num(values) - np.nan_to_num(x)) ** 2, 0.0).sum(axis=1)
            other = cluster[few] != i
            np.add.at(
                plain[i],
                cluster[few][other],
                (np.where(both, scale, 0.0).sum(axis=1) / np.maximum(away, 1e-300))[other],
            )
        worst = np.abs(force / np.where(plain > 0, plain, 1) - (plain > 0)).max()
        return f"to {worst:.0e}"

    return Trial(lambda: pair_forces(points, cluster), lambda: A @ A, common / 2048**3 / 2, equal)


def _agglomeration(c: int) -> Trial:
    rng = np.random.default_rng(0)
    force = np.triu(rng.random((c, c)), 1)
    force += force.T
    far, pairs, total = force.max() + 1, np.full((c, c), 6), 6 * force

    def equal() -> str:
        tree, theirs = agglomerate(total, pairs), linkage(squareform(far - force, checks=False), "average")
        return _yes(
            np.array_equal(np.sort(theirs[:, :2], axis=1), np.stack([tree.left, tree.right], axis=1)), "all merges"
        )

    return Trial(
        lambda: agglomerate(total, pairs), lambda: linkage(squareform(far - force, checks=False), "average"), 1, equal
    )


def _kmeans(n: int, d: int, k: int) -> Trial:
    points = centres(n, d, k, 0.1)
    weights = np.random.default_rng(1).integers(2, 1000, n).astype(float)

    def ours() -> float:
        return kmeans(points, k, np.random.RandomState(3), weights=weights, tol=0.0, max_iter=30).inertia

    def theirs() -> float:
        model = KMeans(k, n_init=1, random_state=3, tol=0, max_iter=30).fit(points, sample_weight=weights)
        return float(model.inertia_)

    return Trial(ours, theirs, 1, lambda: f"inertia to {abs(ours() / theirs() - 1):.0e}")


def _method_a(sites: int, k: int, d: int) -> Trial:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(k, d)) * 3
    points = np.concatenate([truth + rng.normal(size=(k, d)) for _ in range(sites)])
    site = np.repeat(np.arange(sites), k)
    points[(rng.random((sites, d)) < 0.4)[site]] = np.nan
    counts = rng.integers(5, 100, len(points))
    seeds = _seeds_a(points, site, k, extremes(points), "euclidean")

    def theirs() -> IntArray:
        return twins.method_a(points, counts, site, seeds)

    return Trial(
        lambda: method_a(points, counts, site, k),
        theirs,
        1,
        lambda: _yes(np.array_equal(method_a(points, counts, site, k).group, theirs()), "all groups"),
    )


def outliers(m: int, k: int, d: int) -> tuple[FloatArray, IntArray]:
    """Return centroids of m sites, (m k, d), and whose each is."""
    rng = np.random.default_rng(0)
    points = np.tile(rng.uniform(0, 10, (k, d)), (m, 1)) + 0.1 * rng.normal(size=(m * k, d))
    return points, np.repeat(np.arange(m), k)


def _outlier_time(m: int, k: int, d: int) -> Trial:
    given = outliers(m, k, d)
    return Trial(
        lambda: robust.outlier_score(*given),
        lambda: twins.outlier_score(*given),
        1,
        lambda: _same(robust.outlier_score(*given), twins.outlier_score(*given)),
    )


def _yes(same: bool, of: str) -> str:
    return f"yes ({of})" if same else f"NO ({of})"


def _same(found: tuple[Any, ...], plain: tuple[Any, ...]) -> str:
    return _yes(all(map(np.array_equal, found, plain)), "bit for bit")


def line(what: str, size: str, against: str, goal: float, make: Callable[[], Trial], **more: Any) -> Line:
    """Return a line; see `Line`."""
    return Line(what, size, against, goal, make, **more)


_FECA = [(2, 30, 8), (2, 9_000, 8), (2, 140_000, 8), (16, 30, 25), (16, 10_000, 25), (16, 200_000, 25)]

LINES = (
    line(
        "farthest-first",
        "1,000,000 centres, d = 2, k = 100",
        "NumPy, a pass for each point",
        5,
        lambda: _farthest(_MILLION, 2, 100, plain=True),
        faster=True,
    ),
    *(
        line(
            "farthest-first",
            f"1,000,000 centres, d = {d}, k = 100",
            "99 passes of memory",
            2,
            lambda d=d: _farthest(_MILLION, d, 100),
        )
        for d in (16, 64)
    ),
    *(
        line(
            "FeCA's groups",
            f"1,000,000 centres, d = {d}, {true:,} clusters",
            "stable argsort",
            goal,
            lambda d=d, true=true: _feca(_MILLION, d, true),
        )
        for d, true, goal in _FECA
    ),
    *(
        line(
            "attraction",
            f"200 clusters of 50 points, d = {d}, sites know {share:.0%}",
            "GEMM of as many products",
            2.5,
            lambda d=d, share=share: _attraction(200, 50, d, share),
        )
        for d, share in ((128, 1.0), (128, 0.7), (561, 0.7))
    ),
    line("agglomeration", "3,000 clusters", "SciPy's linkage", 1, lambda: _agglomeration(3000)),
    line(
        "k-means, weighted",
        "1,000,000 centres, d = 2, k = 15, 30 iterations",
        "scikit-learn",
        2,
        lambda: _kmeans(_MILLION, 2, 15),
        faster=True,
    ),
    line(
        "k-means, weighted",
        "1,000,000 centres, d = 16, k = 30, 30 iterations",
        "scikit-learn",
        2,
        lambda: _kmeans(_MILLION, 16, 30),
        faster=True,
    ),
    line(
        "method A",
        "60 sites of 8 clusters, d = 64",
        "naive, all anew in each step",
        1,
        lambda: _method_a(60, 8, 64),
        faster=True,
    ),
    line(
        "outlier scores",
        "500 sites of 8 centroids, d = 2",
        "tables of sites times points",
        1,
        lambda: _outlier_time(500, 8, 2),
        faster=True,
    ),
)
