"""Seeds and their clustering that the tests of distributed k-means++ share."""

import numpy as np

from flareclust._foundation.typing import never_abort
from flareclust.aggregators.dkmpp import DKMPPAggregator
from flareclust.executors.dkmpp import DKMPPExecutor
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import StepName, Task
from tests.computed import computed

TASK = Task(StepName.CLUSTER, 0, {}, "site-1")

LETTER = {"seeds": "rows", "greedy": False}


def line(*numbers):
    return np.array(numbers, dtype=float).reshape(-1, 1)


def sent(rows, k, rng=None, **params):
    return computed(DKMPPExecutor(k, **params), TASK, rows, rng or np.random.default_rng(0), never_abort)


def merge(k, replies, clusterer="kmeans"):
    return DKMPPAggregator(k, clusterer=clusterer).merge(Round(), replies, np.random.default_rng(0))
