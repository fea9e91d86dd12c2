"""The table of useless columns in docs/partial-features.md: adjusted Rand indices over a chain of five sites, mean over seeds."""

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

import flareclust
from flareclust.evaluation import metrics

useless = {
    "none": lambda rng, i: {},
    "constant": lambda rng, i: {"more": np.full(200, 7.0)} if i % 2 == 0 else {},
    "noise": lambda rng, i: {"more": rng.normal(size=200)},
    "category": lambda rng, i: dict(zip("abcd", np.eye(4)[rng.integers(4, size=200)].T, strict=True)),
    "skewed": lambda rng, i: {"more": rng.lognormal(0, 2, size=200)},
}


def chain(seed, kind):
    """Return the sites' tables with one kind of column more, and the cluster of each row."""
    rng, sites, truth = np.random.default_rng(seed), {}, {}
    centers = rng.uniform(0, 10, (4, 17))
    for i in range(5):
        y, own = rng.integers(4, size=200), range(3 * i, 3 * i + 5)
        rows = centers[y][:, own] + rng.normal(size=(200, 5))
        sites[f"s{i}"] = pd.DataFrame(rows, columns=[f"c{j}" for j in own]).assign(**useless[kind](rng, i))
        truth[f"s{i}"] = y
    return sites, truth


def alone(table, one):
    """Return the clusters of a site that clusters alone."""
    spread = table.std(ddof=0).replace(0, 1)
    for group in one.get("categories", []):
        spread[group] = np.sqrt((spread[group] ** 2).sum())
    return KMeans(4, n_init=10, random_state=0).fit_predict((table - table.mean()) / spread)


for kind in (*useless, "category as one"):
    found, one = [], {"categories": [list("abcd")]} if kind == "category as one" else {}
    for seed in range(5):
        sites, truth = chain(seed, kind.split()[0])
        y = np.concatenate(list(truth.values()))
        figures = []
        for algorithm, setting in (
            ("masked", {}),
            ("masked", {"method": "A"}),
            ("masked", {"method": "B"}),
            ("proxy", {}),
            ("proxy", {"w": 1.05}),
        ):
            run = flareclust.run(algorithm, data=sites, k=4, seed=seed, scale="standard", **setting, **one)
            figures.append(metrics.ari(np.concatenate([run.site_labels[site] for site in sites]), y))
        found.append([*figures, np.mean([metrics.ari(alone(sites[site], one), truth[site]) for site in sites])])
    print(kind, np.mean(found, axis=0).round(3))
