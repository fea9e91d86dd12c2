"""What the papers' re-runs measure of a federation's outcome, where `flareclust.experiment` does not: by site, by round."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.papers.generators import Federation
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.lloyd import assign, labels_of
from flareclust.core.rounds import HISTORY
from flareclust.core.runtime import one_thread
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.engines.pooled import run_pooled
from flareclust.evaluation import metrics
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome


def solve(
    algorithm: str,
    params: Mapping[str, Any],
    federation: Federation,
    k: int,
    seed: int,
    assess: bool = True,
    min_sites: int | None = None,
) -> Outcome:
    """Run an algorithm, or a baseline on the pooled rows, in this process."""
    entry = registry.get(algorithm)
    options = JobOptions(k=k, seed=seed, assess=assess, min_sites=min_sites)
    if entry.federated:
        return run_inprocess(entry, params, federation.sites, options)
    return run_pooled(entry, params, federation.sites, options)


def truth(federation: Federation, labels: Mapping[str, IntArray]) -> dict[str, float | None]:
    """Compare labels by site with the true clusters.

    Returns:
        `ari` over all rows, `ari_sites` the mean of the sites' own ARI weighted by their rows, `accuracy` over all
        rows. Rows of sites without labels are left out.
    """
    if federation.y is None or not labels:
        return {}
    sites = sorted(labels)
    found, true = [labels[site] for site in sites], [federation.y[site] for site in sites]
    own = [metrics.ari(a, b) for a, b in zip(found, true, strict=True)]
    everything = np.concatenate(found), np.concatenate(true)
    return {
        "ari": metrics.ari(*everything),
        "ari_sites": float(np.average(own, weights=[len(one) for one in found])),
        "accuracy": metrics.accuracy(*everything),
    }


def nearest(federation: Federation, centroids: FloatArray) -> dict[str, IntArray]:
    """Return the number of the nearest centroid of each row (n_i,) by site."""
    return {site: labels_of(rows, centroids) for site, rows in federation.sites.items()}


def history(outcome: Outcome) -> list[FloatArray]:
    """Return the centroids (k, d) after each round of an iterative algorithm."""
    return [centroids[np.isfinite(centroids).all(axis=1)] for centroids in outcome.arrays[HISTORY]]


def inertia(X: FloatArray, centroids: FloatArray) -> float:
    """Return the k-means cost of centroids (k, d): the sum of squared distances of rows (n, d) to the nearest."""
    return float(assign(X, centroids)[1].sum())


def clustering_cost(X: FloatArray, labels: IntArray) -> float:
    """Return the k-means cost of a clustering (n,) of rows (n, d): squared distances to the clusters' own means.

    Dennis et al. 2021, equation 1.
    """
    _, labels = np.unique(labels, return_inverse=True)
    counts = np.bincount(labels)
    means = np.column_stack([np.bincount(labels, weights=x) for x in X.T]) / counts[:, None]
    return float(((X - means[labels]) ** 2).sum())


def silhouettes(federation: Federation, outcome: Outcome) -> dict[str, float | None]:
    """Return the silhouette over all rows, each in the cluster of its nearest centroid, and the label-free metrics.

    The silhouette needs distances between rows of different sites, which no federation has; it is None for one cluster.
    """
    from sklearn.metrics import silhouette_score

    labels = np.concatenate(list(nearest(federation, outcome.centroids).values()))
    defined = 1 < len(np.unique(labels)) < len(labels)
    with one_thread():
        value = float(silhouette_score(federation.pooled, labels)) if defined else None
    return {"silhouette": value, **outcome.metrics, "centroids_found": float(len(outcome.centroids))}
