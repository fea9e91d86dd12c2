"""The table of sites alone in docs/partial-features.md: the adjusted Rand index within sites of federations and of each site alone.

    python examples/columns/alone.py 1   # or 2, for the other half of the settings

Columns repeat one another where each is a mix of three factors that tell the clusters, with noise; otherwise each tells them by itself.
"""

import sys
from collections import defaultdict
from itertools import product

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

import flareclust
from flareclust.evaluation import metrics


def sites_of(seed, repeated, lacking, shared, k, rows):
    """Return four sites' tables, of eight columns each and `shared` of these in common to all, and the cluster of each row.

    Where sites are `lacking` clusters, each has rows of two thirds of them.
    """
    rng, sites, truth = np.random.default_rng(seed), {}, {}
    d = shared + 4 * (8 - shared)
    centers = 1.2 * rng.normal(size=(k, d))
    if repeated:
        mix = rng.normal(size=(3, d)) / np.sqrt(3)
        centers = 1.2 * np.sqrt(8 / 3) * rng.normal(size=(k, 3)) @ mix
    for i in range(4):
        y = rng.choice(rng.permutation(k)[: 2 * k // 3] if lacking else k, size=rows)
        own = [*range(shared), *range(shared + i * (8 - shared), shared + (i + 1) * (8 - shared))]
        names = [f"c{j}" for j in own]
        sites[f"s{i}"] = pd.DataFrame(centers[y][:, own] + rng.normal(size=(rows, 8)), columns=names)
        truth[f"s{i}"] = y
    return sites, truth


def alone(table, k):
    """Return k-means of a site by itself."""
    return KMeans(k, n_init=10, random_state=0).fit((table - table.mean()) / table.std(ddof=0))


def imputed(sites, k):
    """Return the clusters of the pooled rows, with the mean of all in place of columns that a site lacks, by site."""
    pooled = pd.concat(sites)
    scaled = ((pooled - pooled.mean()) / pooled.std(ddof=0)).fillna(0.0)
    labels = pd.Series(KMeans(k, n_init=10, random_state=0).fit_predict(scaled), scaled.index)
    return {site: labels[site].to_numpy() for site in sites}


def measured(seed, **setting):
    """Give for each site the ARI of four ways, and which runs say that the site is better off alone."""
    sites, truth = sites_of(seed, **setting)
    k = setting["k"]
    runs = {name: flareclust.run(name, data=sites, k=k, seed=seed, scale="standard") for name in ("masked", "proxy")}
    filled = imputed(sites, k)
    for site, y in truth.items():
        found = {name: metrics.ari(run.site_labels[site], y) for name, run in runs.items()}
        found |= {"alone": metrics.ari(alone(sites[site], k).labels_, y), "imputed": metrics.ari(filled[site], y)}
        warned = {
            name: any(text.startswith(f"{site} is better off alone") for text in run.warnings)
            for name, run in runs.items()
        }
        yield {**setting, "seed": seed, "site": site, **found, "warned": warned}


def lines(records):
    """Give a line for each kind of table: mean ARI, sites with a higher and a lower one than alone (by .02), and what was warned."""
    groups = defaultdict(list)
    for record in records:
        kind = f"{'some' if record['lacking'] else 'all'} clusters, columns {'' if record['repeated'] else 'do not '}repeat"
        groups[kind].append(record)
        groups["all"].append(record)
    for kind, own in groups.items():
        means = [f"{np.mean([record[way] for record in own]):.3f}" for way in ("masked", "proxy", "imputed", "alone")]
        yield f"| {kind} | {len(own)} | {' | '.join(means)} | {' | '.join(beside(own, name) for name in ('masked', 'proxy'))} |"
    for name in ("masked", "proxy"):
        gains = [record[name] - record["alone"] for record in records if record["warned"][name]]
        worse = sum(record[name] < record["alone"] - 0.05 for record in records)
        yield f"{name}: {len(gains)} sites named, {sum(gain < -0.05 for gain in gains)} worse by .05, {sum(gain > 0.05 for gain in gains)} better; {worse} worse in all"


def beside(own, name):
    """Return how many sites are better and worse off than alone, by .02."""
    gains = [record[name] - record["alone"] for record in own]
    return f"{sum(gain > 0.02 for gain in gains)} / {sum(gain < -0.02 for gain in gains)}"


if __name__ == "__main__":
    records = []
    kinds = product((False, True), (True, False), (2, 4, 6), (3, 6), (30, 100, 300))
    for number, (lacking, repeated, shared, k, rows) in enumerate(kinds):
        records += measured(
            1000 * int(sys.argv[1]) + number, lacking=lacking, repeated=repeated, shared=shared, k=k, rows=rows
        )
    print("\n".join(lines(records)))
