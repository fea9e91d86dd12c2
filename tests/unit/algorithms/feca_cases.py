"""Clusters and messages of FeCA that several test files use."""

import numpy as np

from flareclust.aggregators.feca import FeCAAggregator
from flareclust.core.lloyd import cluster_statistics
from flareclust.executors.feca import (
    LocalClusters,
)
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task

MODES = ("drop", "merge")

TASK = Task(StepName.CLUSTER, 0, {}, "site-1")


def local_clusters(X, labels, centroids):
    statistics = cluster_statistics(X, labels, centroids)
    return LocalClusters(np.asarray(centroids, dtype=float), statistics.counts, statistics.sse)


def aggregate(k, replies):
    merged = FeCAAggregator(k).merge(Round(), replies, np.random.default_rng(0))
    return merged.task["centroids"], merged.state.arrays()
