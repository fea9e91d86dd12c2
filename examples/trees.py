"""`python trees.py`: where calls to an ambulance come from, along two bent roads in three districts, and without a number of clusters.

k-means cuts bent roads into round parts; the tree of HDBSCAN over the districts' micro-clusters follows them, says how many there
are, and leaves single calls from elsewhere without a label. No district shows its calls. The docs page is docs/algorithms/tree.md.
"""

import numpy as np
import pandas as pd
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

import flareclust

#: Calls of each district, and the share of them from somewhere off the roads.
DISTRICTS, ELSEWHERE = {"north": 700, "centre": 900, "south": 400}, 0.03


def calls(seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the calls of each district in km, with the column `road` that no district would have; -1 is off the roads."""
    rng, n = np.random.default_rng(seed), sum(DISTRICTS.values())
    places, road = make_moons(n, noise=0.06, random_state=seed)
    away = rng.random(n) < ELSEWHERE
    places[away] = rng.uniform(places.min(axis=0) - 0.5, places.max(axis=0) + 0.5, (away.sum(), 2))
    table = pd.DataFrame(10 * places, columns=["east", "north"]).assign(road=np.where(away, -1, road))
    parts = np.split(rng.permutation(n), np.cumsum(list(DISTRICTS.values()))[:-1])
    return {district: table.iloc[rows] for district, rows in zip(DISTRICTS, parts, strict=True)}


def main() -> None:
    """Find the roads, and say which calls are on none."""
    tables = calls()
    sites = {district: table.drop(columns="road") for district, table in tables.items()}
    road = pd.concat(tables[district] for district in sorted(tables))["road"].to_numpy()
    result = flareclust.run("tree", sites, shape="density")
    labels = np.concatenate([result.site_labels[district] for district in sorted(tables)])
    print(f"clusters: {result.k}, of {', '.join(map(str, result.cluster_rows.tolist()))} calls")
    print(f"without a label: {(labels < 0).sum()} of {len(labels)} calls; off the roads are {(road < 0).sum()}")
    range_of_k = flareclust.run("tree", sites, "2..8", shape="density")
    print(f"of 2 to 8 clusters the tree takes {range_of_k.k}, k-means {flareclust.run('portfolio', sites, '2..8').k}")
    k_means = flareclust.run("portfolio", sites, 2)
    both = np.concatenate([k_means.site_labels[district] for district in sorted(tables)])
    for name, found in (("tree", labels), ("k-means with k=2", both)):
        on = (road >= 0) & (found >= 0)
        print(
            f"agreement of {name} with the roads (adjusted Rand index): {adjusted_rand_score(road[on], found[on]):.2f}"
        )
    new = pd.DataFrame({"east": [0.0, 40.0], "north": [10.0, -30.0]})
    print(f"clusters of two new calls: {result.predict(new).tolist()}")


if __name__ == "__main__":
    main()
