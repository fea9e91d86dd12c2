"""An algorithm with sites that misbehave, for tests with real processes. NVFlare copies this module into the job."""

import time

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.errors import Aborted
from flareclust.executors.base import ClusteringExecutor
from flareclust.message import Schema

SECRET = 123456.789


class FaultyExecutor(ClusteringExecutor):
    """Sends the mean, except that the sites named in `faults` do what is said there; a number is seconds to wait first."""

    reply = Schema(centroids="k d")

    def __init__(self, k, seed=0, min_count=2, faults=None):
        super().__init__(k, seed, min_count)
        self.faults = faults

    def local(self, task, data, rng, aborted):
        fault = (self.faults or {}).get(task.site)
        if fault == "raises":
            raise ZeroDivisionError(f"the patient's value was {SECRET}, and the first one {float(data[0, 0])!r}")
        if fault == "never answers":
            while not aborted():
                time.sleep(0.05)
            raise Aborted
        if isinstance(fault, int):
            time.sleep(fault)  # longer than the task may take, and blind to its end
        if fault == "wrong columns":
            return {"centroids": np.ones((1, data.shape[1] + 1))}
        return {"centroids": data.mean(axis=0, keepdims=True)}

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        fault = (self.faults or {}).get(fl_ctx.get_identity_name())
        if fault == "missing array":
            return DXO(DataKind.WEIGHTS, data={"rows": np.ones(3)}).to_shareable()
        if fault == "wrong kind":
            return DXO(DataKind.METRICS, data={"centroids": np.ones((1, 2))}).to_shareable()
        if fault == "error code":
            return make_reply(ReturnCode.BAD_TASK_DATA)
        return super().execute(task_name, shareable, fl_ctx, abort_signal)


class FaultyAggregator(ClusteringAggregator):
    """Averages the means."""

    reply = FaultyExecutor.reply

    def merge(self, round_, replies, rng):
        return Round({"centroids": np.mean([reply["centroids"] for reply in replies.values()], axis=0)}, done=True)
