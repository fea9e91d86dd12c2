"""Sites and messages of proxy clusters that several test files use."""

import numpy as np

from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get

#: Columns of three sites that overlap in a chain: the first and the last have none in common.
CHAIN = {"a": (0, 1, 2), "b": (2, 3, 4), "c": (4, 5, 0)}


def names(places):
    return tuple(f"f{j}" for j in places)


def tables(owned, centers, per_cluster=40, seed=0, clusters=None):
    """Return each site's rows of its own columns, around the centers (k, D) of its clusters, and whose each row is."""
    rng = np.random.default_rng(seed)
    sites, classes = {}, {}
    for site, places in owned.items():
        own = (clusters or {}).get(site, range(len(centers)))
        classes[site] = np.repeat(list(own), per_cluster)
        rows = centers[classes[site]] + rng.normal(size=(len(classes[site]), centers.shape[1]))
        sites[site] = Table(rows[:, list(places)], names(places))
    return sites, classes


def far_apart(k, D, seed=0):
    """Return centers (k, D) that are apart in every column."""
    rng = np.random.default_rng(seed)
    return 20.0 * np.stack([rng.permutation(k) for _ in range(D)], axis=1)


def run(sites, k, seed=0, **params):
    return run_inprocess(get("proxy"), params, sites, JobOptions(k=k, seed=seed))


def in_order(outcome, D):
    """Return the outcome's centroids with their columns in the order of their names."""
    known = outcome.arrays["column_names"].tolist()
    return outcome.arrays["centroids"][:, [known.index(f"f{j}") for j in range(D)]]


def two_clusters():
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(size=(20, 2)), 30 + rng.normal(size=(25, 2))])
