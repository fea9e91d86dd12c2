"""Whether results under a policy are right, or say that they may not be: cells of generated tables, in two halves.

    python -m benchmarks.answers groups [--half 1|2]   # portfolio under the recommended policy, by rows of a cluster at each site
    python -m benchmarks.answers choice [--half 1|2]   # a range of k under it
    python -m benchmarks.answers noise [--half 1|2]    # groups beside dp-lloyd with secure sums
    python -m benchmarks.answers message [--half 1|2]  # algorithms with one message, without a policy
    python -m benchmarks.answers exchanges [--half 1|2]  # portfolio alone and with secure sums, lloyd with two clusters
    python -m benchmarks.answers zeros [--half 1|2]    # four rows in ten are the same one
    python -m benchmarks.answers faults [--half 1|2]   # outliers, codes for missing cells, drift over sites, a noisy column

Rows come from six families (round, unequal numbers, unequal widths, elongated, heavy tails, boxes), at sites with the same
clusters or skewed ones. A cell is bad where its inertia over all rows is above 1.1 times that of scikit-learn's k-means on the
pooled rows, its adjusted Rand index .1 below that of the latter, before rows were made faulty, or its k not the true one. The warnings were written with the
first half in view; the second is for the figures in docs/policies.md.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import assign

FAMILIES = ("round", "unequal", "widths", "elongated", "tails", "boxes")

#: A family of its own: this share of the rows is one row, repeated.
ZEROS, ALIKE = "zeros", 0.4

#: Rows of a cluster at each site: the first number of each line of the table.
LEAST = (0, 4, 10, 25, 50)


class Cell(NamedTuple):
    """A table: its family, k clusters in d columns at m sites, so many rows of a cluster at each, and whether sites are skewed."""

    family: str
    k: int
    d: int
    m: int
    rows: int
    skewed: bool
    seed: int


def table(cell: Cell) -> tuple[dict[str, FloatArray], dict[str, IntArray]]:
    """Return the rows (n, d) by site, and their clusters (n,)."""
    rng = np.random.default_rng([cell.seed, *cell[1:5]])
    k, d, n = cell.k, cell.d, cell.m * cell.rows * cell.k
    centers = rng.normal(size=(k, d)) * 4 / np.sqrt(2) * (k**0.5 / 1.5 if d == 2 else 1)
    shares = rng.dirichlet(np.full(k, 2.0)) if cell.family == "unequal" else np.full(k, 1 / k)
    y = rng.choice(k, n, p=shares)
    X = centers[y] + _around(cell.family, y, d, rng)
    if cell.skewed:
        of_cluster = rng.dirichlet(np.full(cell.m, 0.5), size=k)
        site = np.array([rng.choice(cell.m, p=of_cluster[c]) for c in y])
    else:
        site = rng.integers(0, cell.m, n)
    if cell.family == ZEROS:
        y[rng.random(n) < ALIKE] = 0
        X[y == 0] = 0.0
    names = {f"site-{i:03d}": site == i for i in range(cell.m) if (site == i).any()}
    return {name: X[own] for name, own in names.items()}, {name: y[own] for name, own in names.items()}


def _around(family: str, y: IntArray, d: int, rng: np.random.Generator) -> FloatArray:
    """Return how far rows (n, d) of the clusters y (n,) lie from their centers."""
    n, k = len(y), int(y.max()) + 1
    if family == "tails":
        return rng.standard_t(3, size=(n, d)) / 1.5
    if family == "boxes":
        return rng.uniform(-1.7, 1.7, size=(n, d))
    noise = rng.normal(size=(n, d))
    if family == "widths":
        return noise * rng.uniform(0.4, 1.6, k)[y][:, None]
    if family == "elongated":
        long = np.r_[2.0, np.full(d - 1, 0.6)]
        turned = np.stack([np.linalg.qr(rng.normal(size=(d, d)))[0] * long for _ in range(k)])
        return np.einsum("nij,nj->ni", turned[y], noise)
    return noise


def measured(
    cell: Cell,
    algorithm: str = "portfolio",
    k_range: tuple[int, int] | None = None,
    spoilt: Callable[[dict[str, FloatArray], np.random.Generator], dict[str, FloatArray]] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return how good a run is beside k-means of the pooled rows, whether it is bad, and what it warns of."""
    sites, classes = table(cell)
    X, y = np.concatenate(list(sites.values())), np.concatenate(list(classes.values()))
    best = KMeans(cell.k, n_init=10, random_state=0).fit(X)
    record: dict[str, Any] = {**cell._asdict(), "algorithm": algorithm}
    if spoilt is not None:
        sites = spoilt(sites, np.random.default_rng(cell.seed))
    try:
        result = flareclust.run(algorithm, sites, k=k_range or cell.k, seed=cell.seed, **settings)
    except (JobFailed, UserError) as error:
        return record | {"failed": str(error)[:200]}
    labels, squared = assign(np.concatenate(list(sites.values())), result.centroids)
    ratio = float(squared.sum() / best.inertia_) if spoilt is None else np.nan  # inertia of faulty rows says nothing
    ari = adjusted_rand_score(y, labels)
    bad = ari < adjusted_rand_score(y, best.labels_) - 0.1
    if spoilt is None:
        bad |= ratio > 1.1 if k_range is None else result.k != cell.k
    return record | {"ratio": ratio, "ari": ari, "found": result.k, "bad": bool(bad), "warnings": list(result.warnings)}


def cells(half: int, number: int, rows: tuple[int, ...], sites: tuple[int, ...], most: int = 25_000) -> Iterator[Cell]:
    """Give `number` cells for each number of rows and of sites, drawn for the half."""
    rng = np.random.default_rng([half, number, *rows])
    for m in sites:
        for each in rows:
            for _ in range(number):
                k, d = int(rng.choice([3, 5, 8, 12])), int(rng.choice([2, 4, 10]))
                k = k if m * each * k <= most else 3
                yield Cell(str(rng.choice(FAMILIES)), k, d, m, each, bool(rng.integers(2)), int(rng.integers(1000)))


def groups(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 3, (3, 6, 12, 30, 60, 150), (5, 20, 50)):
        yield measured(cell, policy={})


def choice(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 4, (5, 10, 15, 25, 50), (20, 50)):
        for policy in ({}, None):
            record = measured(cell, "pooled", (2, cell.k + 5), policy=policy)
            yield record | {"kind": "no policy" if policy is None else "groups of 10"}


def noise(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 1, (5, 10, 25, 50, 100, 200), (10, 50, 200), most=60_000):
        if cell.m * cell.rows * cell.k > 60_000:
            continue
        cell = cell._replace(d=min(cell.d, 4), skewed=False)
        yield measured(cell, policy={}) | {"kind": "groups of 10"}
        bound = float(np.ceil(1.1 * np.quantile(np.abs(np.concatenate(list(table(cell)[0].values()))), 0.999)))
        for epsilon in (0.5, 1.0, 2.0):
            stated = {"bounds": [-bound, bound], "epsilon": epsilon, "delta": 1e-6, "budget": epsilon}
            own = {"policy": {"differential_privacy": stated}, "epsilon": epsilon, "delta": 1e-6, "secure_sums": True}
            yield measured(cell, "dp-lloyd", **own) | {"kind": f"epsilon {epsilon:g}"}


def message(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 4, (10, 30, 60), (5, 10, 20)):
        for algorithm, settings in ONE_MESSAGE.items():
            name = algorithm.split(",")[0]
            yield measured(cell, name, **settings) | {"kind": f"{algorithm}, {'skewed' if cell.skewed else 'alike'}"}


def exchanges(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 6, (10, 30, 60), (5, 20, 50)):
        yield measured(cell) | {"kind": "portfolio"}
        yield measured(cell, secure_sums=True) | {"kind": "portfolio, secure sums"}
        yield measured(cell._replace(k=2), "lloyd") | {"kind": "lloyd, k=2"}


def zeros(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 2, (10, 30, 60), (5, 20)):
        for algorithm in (
            "portfolio",
            "pooled",
            "fkm",
            "minibatch",
            "dkmpp",
            "masked",
            "feca",
            "mavg",
            "kfed",
            "proxy",
            "gmm",
        ):
            yield measured(cell._replace(family=ZEROS), algorithm) | {"kind": algorithm}


def faults(half: int) -> Iterator[dict[str, Any]]:
    for cell in cells(half, 3, (30, 60), (5, 20)):
        for kind, spoilt in FAULTS.items():
            yield measured(cell._replace(skewed=False), spoilt=spoilt) | {"kind": kind}


def _outliers(sites: dict[str, FloatArray], rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows of which 5 % are spread ten times as wide."""
    far = {site: rng.random(len(X)) < 0.05 for site, X in sites.items()}
    return {
        site: np.where(far[site][:, None], 10 * X.std(axis=0) * rng.normal(size=X.shape), X)
        for site, X in sites.items()
    }


def _code(sites: dict[str, FloatArray], rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows with -999 in 5 % of the first column at the first site."""
    first = next(iter(sites))
    X = sites[first].copy()
    X[rng.random(len(X)) < 0.05, 0] = -999
    return {**sites, first: X}


def _drift(sites: dict[str, FloatArray], rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows whose columns every site measures from another zero, two standard deviations of all rows apart."""
    spread = 2 * np.concatenate(list(sites.values())).std(axis=0)
    return {site: X + spread * rng.normal(size=X.shape[1]) for site, X in sites.items()}


def _noisy(sites: dict[str, FloatArray], rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return rows with one more column, of noise that is thirty times as wide as the others."""
    return {site: np.column_stack([X, 30 * X.std() * rng.normal(size=len(X))]) for site, X in sites.items()}


#: What rows may have that clusters are not to be about.
FAULTS = {"outliers": _outliers, "code": _code, "drift": _drift, "noisy column": _noisy}

#: Algorithms with one message of each site, with their settings; `polish=0` has a second, small one.
ONE_MESSAGE: Mapping[str, dict[str, Any]] = {
    "pooled": {},
    "portfolio, polish=0": {"polish": 0},
    "feca": {},
    "kfed": {},
    "mavg": {},
    "dkmpp": {},
}

SUBJECTS: Mapping[str, Callable[[int], Iterator[dict[str, Any]]]] = {
    "groups": groups,
    "choice": choice,
    "noise": noise,
    "message": message,
    "exchanges": exchanges,
    "zeros": zeros,
    "faults": faults,
}


def lines(records: list[dict[str, Any]]) -> Iterator[str]:
    """Give a line of a table for each kind of cell: how many are right, how far off the worst is, and which bad ones are silent."""
    kinds = defaultdict(list)
    for record in records:
        least = max(one for one in LEAST if one <= record["rows"])
        kinds[record.get("kind", ""), least].append(record)
    yield "| protection | rows of a cluster at a site | cells | no result | within 2 % | within 5 % | worst | bad | bad, no warning | good, more than one |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for (kind, least), own in sorted(kinds.items()):
        done = [one for one in own if "failed" not in one]
        ratios, bad = [one["ratio"] for one in done], [one for one in done if one["bad"]]
        silent = sum(not one["warnings"] for one in bad)
        worried = sum(len(one["warnings"]) > 1 for one in done if not one["bad"])
        near = [sum(ratio <= 1 + share for ratio in ratios) for share in (0.02, 0.05)]
        numbers = (
            len(own),
            len(own) - len(done),
            *near,
            f"{max(ratios, default=np.nan):.2f}",
            len(bad),
            silent,
            worried,
        )
        yield f"| {kind} | {least} or more | {' | '.join(map(str, numbers))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--half", type=int, choices=(1, 2), default=1)
    asked = parser.parse_args()
    records = []
    for record in SUBJECTS[asked.subject](asked.half):
        records.append(record)
        print(json.dumps(record), flush=True)
    print("\n".join(lines(records)))


if __name__ == "__main__":
    main()
