"""`masked` and `proxy` on known tables whose columns are dealt to a chain of sites: the defaults beside the papers' settings.

    python -m benchmarks.chains [SEEDS]

The rows of wine, iris, breast cancer and digits are dealt to three and five sites at random, and their columns, in random
order, so that each two neighbours share one, two or three of them. Printed is the adjusted Rand index over all rows, the
mean over the seeds, and in how many runs the default of `proxy` was better or worse than with w set by more than .01.
"""

import logging
import sys
from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

import flareclust
from flareclust._foundation.typing import IntArray
from flareclust.core.exponent import LEAST_W, PAPER_W
from flareclust.evaluation import metrics

TABLES = MappingProxyType(
    {
        "wine": datasets.load_wine,
        "iris": datasets.load_iris,
        "cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }
)
SITES, COMMON = (3, 5), (1, 2, 3)
SETTINGS = ("masked", "masked A", "masked B", "proxy", "proxy w")
Chain = tuple[dict[str, pd.DataFrame], dict[str, IntArray]]


def chain(name: str, m: int, common: int, seed: int) -> Chain | None:
    """Return the tables of m sites and the classes of their rows; None where there are too few columns."""
    X, y = TABLES[name](return_X_y=True)
    rng = np.random.default_rng(seed)
    order, rows = rng.permutation(X.shape[1]), np.array_split(rng.permutation(len(X)), m)
    own = (X.shape[1] - common) // m
    if not own:
        return None
    parts = [order[i * own : (i + 1) * own + common] for i in range(m)]
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    names = [f"s{i}" for i in range(m)]
    sites = {name: frame.iloc[rows[i], parts[i]] for i, name in enumerate(names)}
    return sites, {name: y[rows[i]] for i, name in enumerate(names)}


def settings_of(name: str, common: int) -> Mapping[str, Any]:
    """Return what is set beside the defaults; for `proxy` the w that follows from the columns in common."""
    if name == "proxy w":
        return {"w": PAPER_W if common > PAPER_W else LEAST_W}
    return {"method": name[-1]} if name in ("masked A", "masked B") else {}


def indices(drawn: Chain, common: int, seed: int) -> list[float]:
    """Return the adjusted Rand index with each of the settings."""
    sites, classes = drawn
    y = np.concatenate(list(classes.values()))
    found = []
    for name in SETTINGS:
        setting = settings_of(name, common)
        ran = flareclust.run(name.split()[0], data=sites, k=len(np.unique(y)), seed=seed, scale="standard", **setting)
        found.append(metrics.ari(np.concatenate([ran.site_labels[site] for site in sites]), y))
    return found


def main() -> None:
    """Run everything and print the table."""
    logging.getLogger("flareclust").setLevel(logging.ERROR)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    every = []
    print(f"{'set':8} {'sites':>5} {'common':>6} " + " ".join(f"{name:>9}" for name in SETTINGS))
    for name, m, common in product(TABLES, SITES, COMMON):
        found = [
            indices(drawn, common, seed) for seed in range(seeds) if (drawn := chain(name, m, common, seed)) is not None
        ]
        if found:
            every += found
            print(f"{name:8} {m:5} {common:6} " + " ".join(f"{value:9.3f}" for value in np.mean(found, axis=0)))
    gain = np.array(every)[:, 3] - np.array(every)[:, 4]
    print(f"{'mean':22}" + " ".join(f"{value:9.3f}" for value in np.mean(every, axis=0)))
    print(f"proxy: better in {(gain > 0.01).sum()}, worse in {(gain < -0.01).sum()} of {len(gain)} runs")


if __name__ == "__main__":
    main()
