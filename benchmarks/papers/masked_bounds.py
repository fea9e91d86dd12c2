"""How far the accuracy can go on a set-up: with the centroids of the true classes, and with each site on its own."""

from collections.abc import Callable

import numpy as np

from benchmarks.papers.masked_setups import ACCURACY, Method, experiment, in_all_columns
from benchmarks.papers.masked_values import SetUp
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import never_abort
from flareclust.core.missing.distances import nearest
from flareclust.core.site_clusters import site_clusters
from flareclust.data.datasets import Dataset
from flareclust.evaluation import metrics
from flareclust.experiment.prepare import OneTable, prepare
from flareclust.experiment.prepared import Prepared, tables_of
from flareclust.experiment.sweeps import trials as study_trials

TRUE, ALONE = "true-centroids", "alone"
#: Rows of a cluster below which a site says nothing of it: the default of the algorithms.
MIN_COUNT = 2

#: What is measured of a set-up and a seed.
Bound = Callable[[SetUp, Prepared, int], study_trials.TrialResult]


def trials(set_up: SetUp, dataset: Dataset, seeds: int) -> list[study_trials.Trial]:
    """Return a run per bound and seed, in the cells (data, assumption, method)."""
    return [
        _trial(set_up, dataset, name, bound, seed)
        for name, bound in ((TRUE, true_centroids), (ALONE, alone))
        for seed in range(seeds)
    ]


def _trial(set_up: SetUp, dataset: Dataset, name: str, bound: Bound, seed: int) -> study_trials.Trial:
    def measure() -> study_trials.TrialResult:
        return bound(
            set_up, prepare(experiment(set_up, Method("masked", "masked"), dataset, seed), OneTable(dataset)), seed
        )

    params = {"measure": name, "data": dataset.name, "partition": set_up.partition}
    return study_trials.Trial({**set_up.cell, "method": name}, seed, params, measure)


def true_centroids(set_up: SetUp, prepared: Prepared, seed: int) -> study_trials.TrialResult:
    """Give each row to the nearest, in its site's columns, of the centroids that the true classes have (equation 1)."""
    rows, classes = in_all_columns(prepared)
    centroids = metrics.optimal_centroids(rows, classes)
    labels = []
    for own in rows:
        has = ~np.isnan(own[0])
        labels.append(nearest(np.ascontiguousarray(own[:, has]), np.ascontiguousarray(centroids[:, has])))
    right = metrics.accuracy(np.concatenate(labels), np.concatenate(classes))
    return study_trials.TrialResult({ACCURACY: 100 * right})


def alone(set_up: SetUp, prepared: Prepared, seed: int) -> study_trials.TrialResult:
    """Cluster each site's rows as `masked` begins, and name the clusters by the site's own true classes."""
    _, classes = in_all_columns(prepared)
    right = 0.0
    for (site, table), true in zip(tables_of(prepared).items(), classes, strict=True):
        k_local = set_up.local.get("k_local")
        rng = stream(seed, 0, site)
        found = site_clusters(
            table.X, prepared.k, rng, k_local=k_local, min_count=MIN_COUNT, aborted=never_abort
        ).labels
        known = found >= 0
        right += metrics.accuracy(found[known], true[known]) * int(known.sum()) if known.any() else 0.0
    return study_trials.TrialResult({ACCURACY: 100 * right / sum(map(len, classes))})
