"""How much of a column's variance within clusters lies between the means of sites, without drift and with it.

    python -m benchmarks.drift [--half 1|2]

The tables are those of benchmarks/answers.py, and the clusters those of `portfolio`. With drift every site measures every column from a
zero of its own, so many standard deviations of a round cluster away. Sites are alike or have other shares of the clusters.
"""

import argparse
from collections import defaultdict

import numpy as np

import flareclust
from benchmarks.answers import cells, table
from flareclust._foundation.typing import FloatArray
from flareclust.core.lloyd import labels_of
from flareclust.evaluation.batch_effects import shifted_sites, site_shares

#: Standard deviations of a round cluster.
DRIFTS = (0.0, 0.25, 0.5, 1.0)

#: So many rows of a cluster at a site, in mean, are needed for the warning.
LEAST = 20.0


def shares_of(sites: dict[str, FloatArray], k: int, seed: int) -> tuple[float, bool]:
    """Return the largest share of a column's variance, and whether a result would name the column."""
    centroids = flareclust.run("portfolio", sites, k=k, seed=seed).centroids
    each = [(X, labels_of(X, centroids)) for X in sites.values()]
    rows = np.array([np.bincount(labels, minlength=k) for _, labels in each])
    means = np.zeros((len(each), k, centroids.shape[1]))
    within = np.zeros(centroids.shape[1])
    for i, (X, labels) in enumerate(each):
        for c in np.unique(labels):
            means[i, c] = X[labels == c].mean(axis=0)
            within += ((X[labels == c] - means[i, c]) ** 2).sum(axis=0)
    shares = site_shares(rows, means, within)
    names = [str(j) for j in range(len(shares))]
    return float(shares.max()), bool(shifted_sites(names, rows, shares, LEAST))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", type=int, choices=(1, 2), default=1)
    found = defaultdict(list)
    for cell in cells(parser.parse_args().half, 4, (30, 60), (5, 20)):
        sites = table(cell)[0]
        zeros = np.random.default_rng(cell.seed).normal(size=(len(sites), cell.d))
        for drift in DRIFTS:
            moved = {site: X + drift * zero for (site, X), zero in zip(sites.items(), zeros, strict=True)}
            found[drift, "skewed" if cell.skewed else "alike"].append(shares_of(moved, cell.k, cell.seed))
    print(
        "| drift | sites | tables | least share | median | largest | named |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for (drift, kind), own in sorted(found.items()):
        shares = [share for share, _ in own]
        numbers = " | ".join(f"{number:.2f}" for number in (min(shares), np.median(shares), max(shares)))
        print(f"| {drift:g} | {kind} | {len(own)} | {numbers} | {sum(named for _, named in own)} |")


if __name__ == "__main__":
    main()
