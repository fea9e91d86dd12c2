"""How often each rule finds the number of clusters, on generated sets whose number is known, and on tables with known classes.

    python -m benchmarks.choice_of_k [SEEDS]
    python -m benchmarks.choice_of_k classes    # needs FLARECLUST_DATA for all but the tables of scikit-learn

Every set has 5000 rows and 2, 5, 10 or 20 clusters. It is split in four ways over 10 and 50 sites, which upload as for the
range 2..25; all rules judge the same solutions, from scores of all sites. The rule that a site needs enough values to answer
does not apply here: it concerns the size of the tables, and some rules more than others.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn import datasets, metrics
from sklearn.cluster import KMeans

from flareclust._foundation.errors import Refusal
from flareclust._foundation.seeding import SERVER, stream
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.pooled import PooledAggregator
from flareclust.data.partition import partition
from flareclust.data.tables import Table
from flareclust.evaluation import criteria
from flareclust.evaluation.scores import ALL_SCORES, score_sums
from flareclust.executors.pooled import PooledExecutor
from flareclust.protocol.rows import SiteContext, SiteRows
from flareclust.protocol.task import StepName, Task

ROWS, LEAST, MOST, MIN_COUNT = 5000, 2, 25, 2
_OF_CLASSES = 15
NUMBERS = (2, 5, 10, 20)
SPLITS = ("iid", "dirichlet:0.3", "clusters:2", "power:1")
SITES = (10, 50)

#: Published sets in two columns.
PLANES = ("aggregation", "compound", "flame", "jain", "t4_8k")

#: Columns, and the smallest distance of two centers in standard deviations.
KINDS: dict[str, tuple[int, float]] = {
    "separated": (2, 6.0),
    "overlapping": (2, 3.0),
    "skewed sizes": (2, 5.0),
    "unequal spreads": (2, 5.0),
    "heavy tails": (2, 5.0),
    "8 columns": (8, 5.0),
    "16 columns, overlapping": (16, 3.0),
}


def made(kind: str, k: int, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Return rows (n, d) of k clusters about random centers and their classes (n,)."""
    d, gap = KINDS[kind]
    centers = placed(k, d, gap, rng)
    shares = np.geomspace(1.0, 10.0, k) if kind == "skewed sizes" else np.ones(k)
    labels = rng.choice(k, ROWS, p=shares / shares.sum())
    widths = np.geomspace(0.5, 2.0, k) if kind == "unequal spreads" else np.ones(k)
    tailed = kind == "heavy tails"
    noise = rng.standard_t(3, (ROWS, d)) / np.sqrt(3) if tailed else rng.normal(size=(ROWS, d))
    return centers[labels] + widths[labels, None] * noise, labels


def placed(k: int, d: int, gap: float, rng: np.random.Generator) -> FloatArray:
    """Return k centers (k, d), uniform in a cube that is large enough for them, no two nearer than `gap`."""
    side, centers = 1.5 * gap * k ** (1 / d), np.empty((0, d))
    while len(centers) < k:
        one = rng.uniform(0, side, d)
        if (np.linalg.norm(centers - one, axis=1) >= gap).all():
            centers = np.vstack([centers, one])
    return centers


def chosen(sites: list[FloatArray], seed: int, most: int = MOST) -> dict[str, int]:
    """Return the number of clusters that each rule selects."""
    context = SiteContext(MIN_COUNT)
    executor = PooledExecutor(most, seed, min_count=MIN_COUNT)
    # The step of this criterion asks for the sums of all rules.
    aggregator = PooledAggregator(most, seed, k_min=LEAST, criterion="separation")
    uploads: dict[str, Message] = {}
    for number, rows in enumerate(sites):
        name = f"site-{number:02}"
        try:
            site = SiteRows(Table(rows), stream(seed, 0, name), context=context)
            uploads[name] = executor.local(Task(StepName.CLUSTER, 0, {}, name), site)
        except Refusal:
            continue
    task = aggregator.merge(aggregator.begin(), uploads, stream(seed, 0, SERVER)).task
    sums = [score_sums(task, rows, ALL_SCORES, MIN_COUNT, limited=False) for rows in sites]
    selection = criteria.score_candidates(
        task, {name: np.sum([one[name] for one in sums], axis=0) for name in ALL_SCORES}, mean=True
    )
    return {rule: int(selection.k[criteria.choose(selection, rule)]) for rule in criteria.RULES}


def cases(seeds: int) -> Iterator[tuple[tuple[str, str, int, int], dict[str, int]]]:
    """Yield what each rule selects, by kind of set, split, number of sites and true k."""
    for seed in range(seeds):
        for kind in KINDS:
            for k in NUMBERS:
                X, labels = made(kind, k, np.random.default_rng([seed, k]))
                for split in SPLITS:
                    for m in SITES:
                        index = partition(split, X, labels, m, np.random.default_rng(seed))
                        yield (kind, split, m, k), chosen([X[own] for own in index.values()], seed)


def with_classes() -> Iterator[tuple[str, FloatArray, IntArray]]:
    """Yield tables and their classes: columns in units of their own are scaled, those of a plane and pixels are not."""
    for name in ("iris", "wine", "breast_cancer", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        yield name, X if name == "digits" else (X - X.mean(axis=0)) / X.std(axis=0), y
    for path in PLANES:
        with np.load(Path(os.environ["FLARECLUST_DATA"], path, f"{path}.npz")) as table:
            yield path, table["X"][table["y"] >= 0], table["y"][table["y"] >= 0]  # below 0: noise


def pooled_rules(X: FloatArray) -> dict[str, int | str]:
    """Return what scikit-learn's indices select of its k-means on the pooled rows; a rule that it lacks selects nothing."""
    labels = {k: KMeans(k, n_init=10, random_state=0).fit_predict(X) for k in range(LEAST, _OF_CLASSES + 1)}
    return {
        "calinski-harabasz": max(labels, key=lambda k: metrics.calinski_harabasz_score(X, labels[k])),
        "silhouette": max(labels, key=lambda k: metrics.silhouette_score(X, labels[k])),
        "davies-bouldin": min(labels, key=lambda k: metrics.davies_bouldin_score(X, labels[k])),
    }


def of_classes() -> None:
    """Print what each rule selects of 2 to 15 for tables with known classes, at three sites and of the pooled rows."""
    print(
        "| table | classes | rows | " + " | ".join(criteria.RULES) + " |\n" + "| --- " * (len(criteria.RULES) + 3) + "|"
    )
    for name, X, y in with_classes():
        order = np.random.default_rng(0).permutation(len(X))
        sites = chosen([X[order[i::3]] for i in range(3)], 0, _OF_CLASSES)
        for rows, found in (("three sites", sites), ("pooled", pooled_rules(X))):
            cells = [str(found.get(rule, "-")) for rule in criteria.RULES]
            print(f"| {name} | {len(np.unique(y))} | {rows} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    if sys.argv[1:] == ["classes"]:
        return of_classes()
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    errors: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: {rule: [] for rule in criteria.RULES})
    for (kind, split, m, k), found in cases(seeds):
        for group in (("set", kind), ("split", split), ("sites", str(m)), ("k", str(k)), ("all", "")):
            for rule, number in found.items():
                errors[group][rule].append(abs(number - k))
    print("right in %, mean of |k - true| in brackets\n")
    print("| | | " + " | ".join(criteria.RULES) + " |\n" + "| --- " * (len(criteria.RULES) + 2) + "|")
    for (group, name), by_rule in sorted(
        errors.items(), key=lambda item: list(dict.fromkeys(g for g, _ in errors)).index(item[0][0])
    ):
        cells = [f"{100 * np.mean(np.array(off) == 0):.0f} ({np.mean(off):.1f})" for off in by_rule.values()]
        print(f"| {group} | {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
