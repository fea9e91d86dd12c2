"""Who is timed: each contender is a function of a case's input that returns what it found."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import sklearn.cluster
from sklearn.cluster import KMeans

from benchmarks.speed.cases import Case
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import Clustering, kmeans, lloyd
from flareclust.core.seeds import kmeans_plusplus
from flareclust.core.threads import allowed_threads, side_by_side


class Input(NamedTuple):
    """What all contenders get."""

    case: Case
    X: FloatArray
    weights: FloatArray | None
    start: FloatArray


class Found(NamedTuple):
    """Labels (n,), centroids (k, d) and iterations; for k-means++ the rows chosen (k,) and the seeds (k, d)."""

    labels: IntArray
    centroids: FloatArray
    iterations: int = 0


Contender = Callable[[Input], Found]


def ours(given: Input) -> Found:
    found = lloyd(given.X, given.start, weights=given.weights, max_iter=given.case.max_iter, tol=0)
    return Found(found.labels, found.centroids, found.n_iter)


def ours_in_one_thread(given: Input) -> Found:
    with side_by_side(allowed_threads()):
        return ours(given)


def ours_on_halves(given: Input) -> Found:
    """Cluster each half of the rows in a thread of its own: what two threads reach that share nothing but the machine."""
    halves = np.array_split(np.arange(given.case.n), 2)

    def fit(half: IntArray) -> Found:
        rows = slice(half[0], half[-1] + 1)
        weights = None if given.weights is None else given.weights[rows]
        return ours_in_one_thread(given._replace(X=given.X[rows], weights=weights))

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fit, halves)
    return Found(
        np.concatenate([first.labels, second.labels]), first.centroids, max(first.iterations, second.iterations)
    )


def scikit_learn(algorithm: str) -> Contender:
    def fit(given: Input) -> Found:
        model = KMeans(
            given.case.k, init=given.start, n_init=1, max_iter=given.case.max_iter, tol=0, algorithm=algorithm
        ).fit(given.X, sample_weight=given.weights)
        return Found(model.labels_, model.cluster_centers_, model.n_iter_)

    return fit


def faiss(given: Input) -> Found:
    """In float32, from the same start, for `max_iter` iterations: it does not stop where no label changes."""
    import faiss

    X = given.X.astype(np.float32)
    options = {"niter": given.case.max_iter, "max_points_per_centroid": given.case.n, "seed": 1}
    model = faiss.Kmeans(given.case.d, given.case.k, **options)
    model.train(X, init_centroids=given.start.astype(np.float32), weights=given.weights)
    return Found(model.index.search(X, 1)[1][:, 0], model.centroids.astype(np.float64), given.case.max_iter)


def one_dal(given: Input) -> Found:
    """By scikit-learn-intelex, whose KMeans leaves rows with weights to scikit-learn."""
    from sklearnex.cluster import KMeans as OneDAL

    model = OneDAL(given.case.k, init=given.start, n_init=1, max_iter=given.case.max_iter, tol=0).fit(given.X)
    return Found(model.labels_, model.cluster_centers_, model.n_iter_)


def limit_threads(threads: int) -> None:
    """Let oneDAL, which has threads of its own, use so many."""
    with suppress(ImportError):
        from daal4py import daalinit

        daalinit(threads)


def our_starts(given: Input) -> Found:
    found = _best_of(given, given.case.starts, np.random.RandomState(3))
    return Found(found.labels, found.centroids)


def single_runs(given: Input) -> Found:
    rng = np.random.RandomState(3)
    found = min((_best_of(given, 1, rng) for _ in range(given.case.starts)), key=lambda run: run.inertia)
    return Found(found.labels, found.centroids)


def _best_of(given: Input, starts: int, rng: np.random.RandomState) -> Clustering:
    case = given.case
    # Random rows are drawn by weights as scikit-learn's always are, so that they are the same.
    weights = np.ones(case.n) if case.init == "random" else None
    return kmeans(given.X, case.k, rng, n_init=starts, init=case.init, max_iter=case.max_iter, tol=0, weights=weights)


def their_starts(given: Input) -> Found:
    case = given.case
    options = {"init": case.init, "n_init": case.starts, "max_iter": case.max_iter}
    model = KMeans(case.k, tol=0, random_state=3, **options).fit(given.X)
    return Found(model.labels_, model.cluster_centers_)


def our_seeds(given: Input) -> Found:
    seeds, rows = kmeans_plusplus(given.X, given.case.k, np.random.RandomState(3), weights=given.weights)
    return Found(rows, seeds)


def their_seeds(given: Input) -> Found:
    seeds, rows = sklearn.cluster.kmeans_plusplus(given.X, given.case.k, random_state=3, sample_weight=given.weights)
    return Found(rows, seeds)


#: The first is who the others are compared with.
LLOYD: dict[str, Contender] = {
    "scikit-learn lloyd": scikit_learn("lloyd"),
    "flareclust": ours,
    "scikit-learn elkan": scikit_learn("elkan"),
}
if find_spec("sklearnex") is not None:
    LLOYD["oneDAL"] = one_dal
if find_spec("faiss") is not None:
    LLOYD["faiss (float32)"] = faiss
#: With more threads than one, beside our own one, and beside threads that need not wait for each other.
THREADS: dict[str, Contender] = {
    **LLOYD,
    "flareclust, one thread": ours_in_one_thread,
    "flareclust, each half of the rows on its own": ours_on_halves,
}
#: Who takes no weights.
UNWEIGHTED = ("oneDAL",)
SITES = {name: LLOYD[name] for name in ("scikit-learn lloyd", "flareclust")}
STARTS: dict[str, Contender] = {
    "scikit-learn": their_starts,
    "flareclust": our_starts,
    "flareclust, runs of one start": single_runs,
}
SEEDS: dict[str, Contender] = {"scikit-learn": their_seeds, "flareclust": our_seeds}
