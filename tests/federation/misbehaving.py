"""An algorithm whose sites raise, keep silent or are slow, as the job says. It travels with the job."""

import time

import numpy as np

from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.errors import Aborted
from flareclust.executors.base import ClusteringExecutor
from flareclust.message import Schema


class MisbehavingExecutor(ClusteringExecutor):
    """Sends the mean of its rows, unless `faults` says for the site: "raises", "silent", or seconds to wait first."""

    reply = Schema(centroids="k d")

    def __init__(self, k, seed=0, min_count=2, faults=None):
        super().__init__(k, seed, min_count)
        self.faults = faults

    def local(self, task, data, rng, aborted):
        fault = (self.faults or {}).get(task.site, 0)
        if fault == "raises":
            raise ZeroDivisionError(f"the patient's value was {float(data[0, 0])!r}")
        end = time.monotonic() + (float("inf") if fault == "silent" else fault)
        while time.monotonic() < end:
            if fault == "silent" and aborted():
                raise Aborted
            time.sleep(0.05)
        return {"centroids": data.mean(axis=0, keepdims=True)}


class MisbehavingAggregator(ClusteringAggregator):
    """Averages the means."""

    reply = MisbehavingExecutor.reply

    def merge(self, round_, replies, rng):
        return Round({"centroids": np.mean([reply["centroids"] for reply in replies.values()], axis=0)}, done=True)
