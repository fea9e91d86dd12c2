"""Sites with different columns, their federations, and exchanges of `masked`, that the tests of `masked` and `proxy` use."""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from flareclust._foundation.typing import never_abort
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.federation.server import ServerJob
from flareclust.protocol.registry import get
from flareclust.protocol.task import StepName, Task

NAN = float("nan")

#: Columns of three sites that overlap in a chain: the first and the last have none in common.
CHAIN = {"a": (0, 1, 2), "b": (2, 3, 4), "c": (4, 5, 0)}


def run(algorithm, sites, k, seed=0, **params):
    return run_inprocess(get(algorithm), params, sites, JobOptions(k=k, seed=seed))


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


def two_clusters():
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(size=(20, 2)), 30 + rng.normal(size=(25, 2))])


def window_sites(k=3, m=4, d=9, width=5, n=40, seed=0, spread=1.0, scale=10.0):
    """Separated clusters at m sites; each sees a window of the columns c0 ... that overlaps the next site's.

    Returns the tables, the true cluster of each row, and the true centers (k, d).
    """
    rng = np.random.default_rng(seed)
    centers = scale * rng.normal(size=(k, d))
    tables, true = {}, {}
    for i, first in enumerate(np.linspace(0, d - width, m).round().astype(int)):
        own = range(first, first + width)
        y = rng.permutation(np.arange(n) % k)
        X = centers[y] + spread * rng.normal(size=(n, d))
        tables[f"site-{i}"] = Table(np.ascontiguousarray(X[:, own]), tuple(f"c{j}" for j in own))
        true[f"site-{i}"] = y
    return tables, true, centers


def chain_sites(seed=0, more=None, n=100):
    """Separated clusters at five sites in a chain: each has five columns, the first two of them also those of the last one's.

    Args:
        more: gives a column (n,), several (n, c) or none for a generator and the number of a site, with the same names everywhere.

    Returns the tables, and the true cluster of each row.
    """
    rng = np.random.default_rng(seed)
    centers = 10.0 * np.stack([rng.permutation(4) for _ in range(17)], axis=1)
    tables, true = {}, {}
    for i in range(5):
        y = rng.integers(4, size=n)
        own = range(3 * i, 3 * i + 5)
        X, names = centers[y][:, own] + rng.normal(size=(n, 5)), tuple(f"c{j}" for j in own)
        if more is not None and (column := more(rng, i)) is not None:
            X = np.column_stack([X, column])
            names += ("more",) if column.ndim == 1 else tuple(f"more{j}" for j in range(column.shape[1]))
        tables[f"site-{i}"], true[f"site-{i}"] = Table(np.ascontiguousarray(X), names), y
    return tables, true


def agreement(found, true):
    """The adjusted Rand index of the labels of all sites with the true clusters."""
    return adjusted_rand_score(*(np.concatenate([of[site] for site in true]) for of in (true, found.labels)))


def in_order(found, D):
    """The centroids with the columns f0 ... of `tables` in this order."""
    known = found.arrays["column_names"].tolist()
    return found.arrays["centroids"][:, [known.index(f"f{j}") for j in range(D)]]


def by_name(found):
    """The final centroids as a list of dicts by column; what is unknown is left out."""
    names = found.arrays["column_names"].tolist()
    return [{n: v for n, v in zip(names, row, strict=True) if not np.isnan(v)} for row in found.centroids.tolist()]


# ---- masked, an exchange at a time ----


def exchange(executor, aggregator, round_, sites):
    """Ask all sites and merge; return the next round and what was sent."""
    replies = {}
    for site, rows in sites.items():
        task = Task(round_.step, round_.index, {name: a.copy() for name, a in round_.sent.items()}, site)
        replies[site] = dict(executor.answer(task, rows, never_abort).arrays)
        replies[site].pop("seconds")
    return ServerJob(aggregator).advance(round_, replies), replies


def started(sites, k, seed=0, **params):
    """Return both sides and the round after the start."""
    executor, aggregator = get("masked").build(k, seed, params)
    round_ = ServerJob(aggregator).first()
    for _ in ("describe", StepName.CLUSTER):
        round_, _ = exchange(executor, aggregator, round_, sites)
    return executor, aggregator, round_


def truth(round_, sites, true):
    """Return the best centroids (k, D), equation 1: of each entry the mean of the cluster's rows that observe it."""
    names = list(round_.columns.names)
    k = 1 + max(y.max() for y in true.values())
    best = np.full((k, len(names)), np.nan)
    for a in range(k):
        for j, name in enumerate(names):
            seen = [t.X[true[s] == a, t.columns.index(name)] for s, t in sites.items() if name in t.columns]
            best[a, j] = np.concatenate(seen).mean()
    return best
