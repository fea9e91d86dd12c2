"""Gaussian mixtures over sites beside scikit-learn's on the pooled rows, and beside `portfolio`.

    python -m benchmarks.mixtures             # log-likelihood, ARI and the number of components, on public and generated sets
    python -m benchmarks.mixtures --starts    # what the start and a single message cost
    python -m benchmarks.mixtures --policy    # what a policy's groups do to covariances
    python -m benchmarks.mixtures --private   # what noise costs `dp-gmm`, beside `dp-lloyd`
    python -m benchmarks.mixtures --speed     # a million rows of 16 columns, 20 components, ten sites, one thread each

Columns are scaled to variance 1 first. Both sides get ten starts, of which the likeliest counts, the same `tol` and at most as many
iterations. Likelihoods are computed on the pooled rows, in nats per row.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import flareclust
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.mixtures import log_densities
from flareclust.data.datasets import load
from flareclust.data.partition import partition

_PUBLIC = ("iris", "wine", "breast_cancer", "s2", "s3", "s4")
_PARTITIONS = ("iid", "dirichlet:0.3")
_SITES, _STARTS, _TOL, _ROUNDS = 5, 10, 1e-4, 100

#: Differences of likelihood per row that count as none: a factor of 1.001.
_SAME = 1e-3


class Case(NamedTuple):
    """Rows (n, d) of variance 1, the class of each (n,), the number of components and the type of their covariances."""

    name: str
    X: FloatArray
    y: IntArray
    k: int
    covariance: str


def generated(name: str) -> tuple[FloatArray, IntArray]:
    """Return rows of known components: long ones side by side, overlapping ones (`many` has more rows), unequal ones, or one within another."""
    rng = np.random.default_rng(sum(map(ord, name)))
    if name == "long":
        y = np.repeat(np.arange(3), 400)
        return np.stack([rng.normal(0, 12, 1200), rng.normal(0, 1, 1200) + 6 * y], axis=1), y
    if name in ("overlapping", "many"):
        y = np.repeat(np.arange(4), 400 if name == "overlapping" else 5000)
        axes, means = rng.normal(size=(4, 5, 5)), 3 * rng.normal(size=(4, 5))
        return means[y] + np.einsum("nd,nde->ne", rng.normal(size=(len(y), 5)), axes[y]), y
    if name == "unequal":
        y = np.repeat(np.arange(3), (1200, 200, 100))
        return np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 5.0]])[y] + rng.normal(size=(1500, 2)) * np.array(
            [2.0, 0.7, 0.5]
        )[y, None], y
    y = np.repeat(np.arange(2), (600, 600))  # within
    return rng.normal(size=(1200, 3)) * np.array([0.5, 4.0])[y, None], y


def cases() -> Iterator[Case]:
    """Yield the sets; mixtures of many columns and few rows have diagonal covariances."""
    for name in _PUBLIC:
        data = load(name)
        assert data.y is not None
        yield Case(name, data.X, data.y, len(np.unique(data.y)), "diag" if data.X.shape[1] > 20 else "full")
    for name in ("long", "overlapping", "unequal", "within"):
        X, y = generated(name)
        yield Case(name, X, y, len(np.unique(y)), "full")


def split(case: Case, how: str) -> dict[str, FloatArray]:
    """Return the rows of each site."""
    parts = partition(how, case.X, case.y, _SITES, np.random.default_rng(0))
    return {site: case.X[rows] for site, rows in parts.items()}


def pooled(case: Case, k: int | None = None) -> GaussianMixture:
    """Return scikit-learn's likeliest mixture of ten starts on the pooled rows."""
    settings: dict[str, Any] = {"covariance_type": case.covariance, "tol": _TOL, "max_iter": _ROUNDS, "random_state": 0}
    return GaussianMixture(k or case.k, n_init=_STARTS, **settings).fit(case.X)


def over_sites(case: Case, how: str, **settings: Any) -> tuple[flareclust.Result, float]:
    """Return the likeliest result of ten starts, and its likelihood of a pooled row."""
    return max(_of_starts(case, how, **settings), key=lambda one: one[1])


def likelihoods(case: Case, how: str, **settings: Any) -> list[float]:
    """Return the likelihood of a pooled row of each of ten starts."""
    return [likelihood for _, likelihood in _of_starts(case, how, **settings)]


def _of_starts(case: Case, how: str, **settings: Any) -> list[tuple[flareclust.Result, float]]:
    found = []
    for seed in range(_STARTS):
        asked: dict[str, Any] = {
            "covariance": case.covariance,
            "tol": _TOL,
            "rounds": _ROUNDS,
            "seed": seed,
            **settings,
        }
        result = flareclust.run("gmm", split(case, how), case.k, **asked)
        found.append((result, float(log_densities(case.X, {**result.arrays, "centroids": result.centroids}).mean())))
    return found


def labels_of(case: Case, how: str, result: flareclust.Result) -> tuple[IntArray, IntArray]:
    """Return the classes and the labels of all rows that have one, in the order of the sites."""
    parts = partition(how, case.X, case.y, _SITES, np.random.default_rng(0))
    sites = [site for site in parts if site in result.site_labels]
    return np.concatenate([case.y[parts[s]] for s in sites]), np.concatenate([result.site_labels[s] for s in sites])


def accuracy() -> None:
    """Print a line for each set and partition."""
    print(
        "| set | rows, columns, k | sites | pooled | `gmm` | less | reported | ARI pooled | `gmm` | `portfolio` | k by BIC, pooled | `gmm` |"
    )
    print("| --- " * 12 + "|")
    near = 0
    for case in map(scaled, cases()):
        theirs = pooled(case)
        best = theirs.score(case.X)
        first = 1 if case.k < _MANY else _MANY
        k_theirs = min(range(first, case.k + 3), key=lambda k: pooled(case, k).bic(case.X))
        for how in _PARTITIONS:
            result, likelihood = over_sites(case, how)
            settings: dict[str, Any] = {"covariance": case.covariance, "tol": _TOL, "k_min": first}
            k_ours = flareclust.run("gmm", split(case, how), case.k + 2, **settings).centroids_found
            near += best - likelihood <= _SAME
            agreement = [adjusted_rand_score(*labels_of(case, how, one)) for one in (result, _portfolio(case, how))]
            cells = [
                case.name,
                f"{case.X.shape[0]}, {case.X.shape[1]}, {case.k}",
                how,
                f"{best:.4f}",
                f"{likelihood:.4f}",
            ]
            cells += [f"{best - likelihood:.4f}", f"{result.metrics['log_likelihood']:.4f}"]
            cells += [f"{adjusted_rand_score(case.y, theirs.predict(case.X)):.3f}"]
            cells += [f"{one:.3f}" for one in agreement] + [str(k) for k in (k_theirs, k_ours)]
            print("| " + " | ".join(cells) + " |", flush=True)
    print(f"within {_SAME} nats: {near}")


#: Of sets of more clusters than that, fewer components are not tried, which takes long.
_MANY = 10


def scaled(case: Case) -> Case:
    """Return a case with columns of variance 1."""
    return case._replace(X=np.ascontiguousarray((case.X - case.X.mean(axis=0)) / case.X.std(axis=0)))


def _portfolio(case: Case, how: str) -> flareclust.Result:
    return flareclust.run("portfolio", split(case, how), case.k)


def by_start() -> None:
    """Print what a job loses beside scikit-learn's likelihood, from either start, and with one message."""
    print("| set | sites | start=kmeans, worst of ten | start=mixtures | worst of ten | rounds=0 | worst of ten |")
    print("| --- " * 7 + "|")
    for case in map(scaled, cases()):
        best = pooled(case).score(case.X)
        for how in _PARTITIONS:
            cells = [case.name, how]
            for settings in ({}, {"start": "mixtures"}, {"start": "mixtures", "rounds": 0}):
                found = likelihoods(case, how, **settings)
                cells += [f"{best - max(found):.4f}"] * bool(settings) + [f"{best - min(found):.4f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


def under_policy() -> None:
    """Print likelihood, ARI and how much wider or narrower components are with the groups of the default policy in the place of rows.

    Of ten starts the likeliest, and from the means that are found without a policy: what groups cost where the start is right.
    """
    titles = [
        "set",
        "rows, columns, k",
        "likelihood",
        "policy",
        "policy, same means",
        "ARI",
        "policy",
        "policy, same means",
    ]
    print("| " + " | ".join([*titles, "narrowest axis", "widest axis"]) + " |")
    print("| --- " * 10 + "|")
    for case in map(scaled, cases()):
        plain, likelihood = over_sites(case, "iid")
        usual, of_usual = over_sites(case, "iid", policy=_POLICY)
        same, of_same = over_sites(case, "iid", policy=_POLICY, start=plain.centroids.tolist())
        axes = [np.sqrt(_axes(result.arrays["covariances"])) for result in (plain, same)]
        ratio = np.median(axes[1] / axes[0], axis=0)
        agreement = [adjusted_rand_score(*labels_of(case, "iid", one)) for one in (plain, usual, same)]
        sizes = f"{case.X.shape[0]}, {case.X.shape[1]}, {case.k}"
        cells = [f"{one:.3f}" for one in (likelihood, of_usual, of_same, *agreement)]
        print("| " + " | ".join([case.name, sizes, *cells, f"{ratio[0]:.2f}", f"{ratio[-1]:.2f}"]) + " |", flush=True)


#: That of `flareclust site policy`: groups of ten rows or more.
_POLICY = {"min_count": 10}


def _axes(covariances: FloatArray) -> FloatArray:
    """Return the variances along the main axes of each component (k, d), in order."""
    return np.asarray(np.sort(covariances, axis=1) if covariances.ndim == 2 else np.linalg.eigvalsh(covariances))


#: Of sets with noise, bounds of all columns that do not follow from the rows; and what a job may spend.
_BOUNDED = {"s2": (0.0, 1e6), "s4": (0.0, 1e6), "birch1": (0.0, 1e6), "many": (-20.0, 20.0)}
_EPSILONS, _DELTA, _SEEDS = (0.5, 1.0, 2.0, 4.0), 1e-5, 5

#: How private mixtures are found.
_NOISY: dict[str, dict[str, Any]] = {
    "`dp-gmm`": {},
    "`diag`": {"covariance": "diag"},
    "secure sums": {"secure_sums": True},
}


def with_noise() -> None:
    """Print what noise costs: likelihood below that of the pooled mixture, and ARI, means and deviations over seeds."""
    names = [*_NOISY, "`dp-lloyd`"]
    print(
        "| set | rows, columns, k | epsilon | " + " | ".join(f"less, {one}" for one in names) + " | ARI pooled | ",
        end="",
    )
    print(" | ".join(f"ARI, {one}" for one in names) + " |")
    print("| --- " * (4 + 2 * len(names)) + "|")
    for name in _BOUNDED:
        case = _bounded(name)
        X, y = case.X, case.y
        theirs = _near_truth(case)
        best, known = theirs.score(X), adjusted_rand_score(y, theirs.predict(X))
        for epsilon in _EPSILONS:
            found = [[_noisy(case, epsilon, seed, one) for seed in range(_SEEDS)] for one in (*_NOISY.values(), None)]
            less = [f"{best - np.mean(one, axis=0)[0]:.2f} ± {np.std(one, axis=0)[0]:.2f}" for one in found]
            agreement = [f"{np.mean(one, axis=0)[1]:.2f} ± {np.std(one, axis=0)[1]:.2f}" for one in found]
            sizes = f"{len(X)}, {X.shape[1]}, {case.k}"
            print(
                "| " + " | ".join([name, sizes, f"{epsilon:g}", *less, f"{known:.2f}", *agreement]) + " |", flush=True
            )


def _bounded(name: str) -> Case:
    """Return a set with its columns as they are."""
    if name == "many":
        X, y = generated(name)
        return Case(name, X, y, len(np.unique(y)), "full")
    data = load(name)
    assert data.y is not None
    return Case(name, data.X, data.y, len(np.unique(data.y)), "full")


def _near_truth(case: Case) -> GaussianMixture:
    """Return the mixture that scikit-learn finds on the pooled rows from the means of the classes, columns as they are."""
    means = np.array([case.X[case.y == c].mean(axis=0) for c in range(case.k)])
    return GaussianMixture(case.k, tol=_TOL, max_iter=_ROUNDS, means_init=means, random_state=0).fit(case.X)


def _noisy(case: Case, epsilon: float, seed: int, settings: dict[str, Any] | None) -> tuple[float, float]:
    """Return likelihood of a pooled row and ARI of a mixture with noise, or of round components about the centroids of `dp-lloyd`."""
    terms = {"bounds": list(_BOUNDED[case.name]), "epsilon": epsilon, "delta": _DELTA, "budget": epsilon}
    own: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA, "seed": seed, "policy": {"differential_privacy": terms}}
    result = flareclust.run(
        "dp-lloyd" if settings is None else "dp-gmm", split(case, "iid"), case.k, **own, **settings or {}
    )
    arrays = {**result.arrays, "centroids": result.centroids}
    if settings is None:
        rows = np.maximum(arrays["counts"], 1)
        variance = max(float(result.metrics["inertia"] or 0.0) / rows.sum() / case.X.shape[1], 1e-9)
        arrays |= {"weights": rows / rows.sum(), "covariances": np.full(result.centroids.shape, variance)}
    return float(log_densities(case.X, arrays).mean()), adjusted_rand_score(*labels_of(case, "iid", result))


def speed(n: int, d: int = 16, k: int = 20, sites: int = 10, iterations: int = 2) -> None:
    """Print how long scikit-learn on the pooled rows and a job take for the same iterations from the same start."""
    rng = np.random.default_rng(0)
    axes, means = rng.normal(size=(k, d, d)) / 2, 3 * rng.normal(size=(k, d))
    y = rng.integers(k, size=n)
    X = np.empty((n, d))
    for c in range(k):
        X[y == c] = means[c] + rng.normal(size=((y == c).sum(), d)) @ axes[c]
    parts = {f"site-{i}": np.ascontiguousarray(part) for i, part in enumerate(np.array_split(X, sites))}
    settings: dict[str, Any] = {"start": means.tolist(), "tol": 0.0, "profile": False}
    flareclust.run("gmm", {site: part[:1000] for site, part in parts.items()}, k, rounds=1, **settings)  # compiles
    own = {"weights_init": np.full(k, 1 / k), "means_init": means, "precisions_init": np.tile(np.eye(d), (k, 1, 1))}
    theirs = GaussianMixture(k, tol=0.0, max_iter=iterations, init_params="random", **own)
    with threadpool_limits(1):
        seconds = []
        for job in (lambda: theirs.fit(X), lambda: flareclust.run("gmm", parts, k, rounds=iterations, **settings)):
            started = time.perf_counter()
            job()
            seconds.append(time.perf_counter() - started)
    print(
        f"{n} rows of {d} columns, {k} components, {iterations} iterations: scikit-learn {seconds[0]:.1f} s, a job of {sites} sites {seconds[1]:.1f} s, ratio {seconds[0] / seconds[1]:.1f}"
    )


def main() -> None:
    """Run what was asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="store_true")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of --speed")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    if asked.speed:
        speed(asked.rows)
    elif asked.starts:
        by_start()
    elif asked.policy:
        under_policy()
    elif asked.private:
        with_noise()
    else:
        accuracy()


if __name__ == "__main__":
    main()
