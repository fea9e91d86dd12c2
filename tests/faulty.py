"""An algorithm with sites that misbehave, for tests with real processes. NVFlare copies this module into the job."""

import json
import os
import time
from importlib import import_module
from pathlib import Path

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from flareclust._foundation.errors import Aborted
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation import settings
from flareclust.privacy.session import MADE_UNDER
from flareclust.protocol.params import server, site
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.steps import Step
from flareclust.protocol.task import REFUSED, ROUND, STEP, StepName

SECRET = 123456.789

#: What a terminal obeys: to clear the screen, and to give the window a title.
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\nFATAL_SYSTEM_ERROR received: done\u202e"


class Unknown:
    """Nothing that NVFlare lets a message hold; it is found out where the message is decoded."""

    def __init__(self):
        self.secret = SECRET


#: Lies in the arrays of a reply, by name: what replaces those of an honest one.
LIES = {
    "absurd count": lambda: {"counts": np.array([2**60])},
    "NaN": lambda: {"centroids": np.full((1, 3), np.nan)},
    "too many centroids": lambda: {"centroids": np.full((5000, 3), SECRET), "counts": np.ones(5000, np.int64)},
    "huge coordinates": lambda: {"centroids": np.full((1, 3), 1e300)},
    "gigabyte": lambda: {"centroids": np.zeros((2**26, 2))},
    "unknown object": lambda: {"centroids": Unknown()},
    "many objects": lambda: {"centroids": [{}] * 200_000},
}


class FaultyParams(settings.ClusteringParams):
    """Parameters of the faulty, and of what its subclasses open or import."""

    faults: dict[str, str | int] | None = site(None, "What sites do, by name.")
    rounds: int = server(1, "How often the means are averaged.", ge=1)
    table: str | None = site(None, "A file.")
    mode: str | None = site(None, "How to open it.")
    module: str | None = server(None, "A module to import.")


class FaultyExecutor(ClusteringExecutor):
    """Sends the mean, except that the sites named in `faults` do what is said there; a number is seconds to wait first."""

    params: FaultyParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k")))}
    _first = None

    def local(self, task, rows):
        fault = (self.params.faults or {}).get(task.site)
        if fault == "raises":
            raise ZeroDivisionError(f"the patient's value was {SECRET}, and the first one {float(rows.X[0, 0])!r}")
        if fault == "never answers":
            while not rows.aborted():
                time.sleep(0.05)
            raise Aborted
        if isinstance(fault, int):
            time.sleep(fault)  # longer than the task may take, and blind to its end
        if fault == "wrong columns":
            return {"centroids": np.ones((1, rows.X.shape[1] + 1)), "counts": np.array([len(rows.X)])}
        return {"centroids": rows.X.mean(axis=0, keepdims=True), "counts": np.array([len(rows.X)])}

    def handle_event(self, event_type, fl_ctx):
        if (self.params.faults or {}).get(fl_ctx.get_identity_name()) != "references":
            super().handle_event(event_type, fl_ctx)

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        fault = (self.params.faults or {}).get(fl_ctx.get_identity_name())
        if fault in LIES:
            honest = from_shareable(super().execute(task_name, shareable, fl_ctx, abort_signal))
            return DXO(DataKind.WEIGHTS, data=honest.data | LIES[fault](), meta=honest.meta).to_shareable()
        if fault == "replayed round":
            self._first = self._first or from_shareable(super().execute(task_name, shareable, fl_ctx, abort_signal))
            return DXO(DataKind.WEIGHTS, data=dict(self._first.data), meta=dict(self._first.meta)).to_shareable()
        if fault == "escapes":
            return DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: ESCAPES + "x" * 2**20}).to_shareable()
        if fault == "missing array":
            meta = {STEP: task_name, ROUND: 0}
            return DXO(DataKind.WEIGHTS, data={"rows": np.ones(3)}, meta=meta).to_shareable()
        if fault == "wrong kind":
            return DXO(DataKind.METRICS, data={"centroids": np.ones((1, 2))}).to_shareable()
        if fault == "error code":
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = super().execute(task_name, shareable, fl_ctx, abort_signal)
        if fault == "states kfed" and (stated := reply.get_header(MADE_UNDER)) is not None:
            reply.set_header(MADE_UNDER, json.dumps({**json.loads(stated), "algorithm": "kfed"}))
        return reply


class CountingExecutor(FaultyExecutor):
    """Remembers how often it was asked, where no copy of it forgets that."""

    asked: list[str] = []

    def local(self, task, rows):
        self.asked.append(task.site)
        return {"centroids": rows.X.mean(axis=0)[None] + len(self.asked), "counts": np.array([len(rows.X)])}


class FaultyAggregator(ClusteringAggregator):
    """Averages the means, as often as there are `rounds`."""

    params: FaultyParams
    executor = FaultyExecutor

    def merge(self, round_, replies, rng):
        means = np.mean([reply["centroids"] for reply in replies.values()], axis=0)
        return Round({"centroids": means}, done=round_.index + 1 >= self.params.rounds)


class OpeningExecutor(FaultyExecutor):
    """Reads a file that the job names while NVFlare constructs it."""

    def __init__(self, k, seed=0, min_count=2, faults=None, table=None):
        super().__init__(k, seed, min_count=min_count, faults=faults)
        self.table = table
        if isinstance(table, str) and table:
            with open(table) as file:
                self.first = file.readline()


class ImportingAggregator(FaultyAggregator):
    """Imports the module that the job names."""

    def __init__(self, k, seed=0, rounds=1, module=None):
        super().__init__(k, seed, rounds=rounds)
        self.module = module
        if isinstance(module, str) and module.isidentifier():
            import_module(module)


class OpeningTogetherExecutor(FaultyExecutor):
    """Reads a file that the job names, where it names two things at once, of which it keeps both."""

    def __init__(self, k, seed=0, min_count=2, faults=None, table="", mode=""):
        super().__init__(k, seed, min_count=min_count, faults=faults)
        self.table, self.mode = table, mode
        if self.table and self.mode:
            open(self.table).close()


class OpeningOrRefusingExecutor(FaultyExecutor):
    """The same, and refuses either alone."""

    def __init__(self, k, seed=0, min_count=2, table=None, mode=None):
        super().__init__(k, seed, min_count=min_count)
        self.table, self.mode = table, mode
        if (table is None) != (mode is None):
            raise ValueError("expected both or none")
        if isinstance(table, str):
            open(table).close()


class OpeningBesideNameExecutor(FaultyExecutor):
    """Reads a file where a table is no text, beside a mode that may not be a path."""

    def __init__(self, k, seed=0, min_count=2, mode="", table=None):
        super().__init__(k, seed, min_count=min_count)
        if "/" in str(mode):
            raise ValueError("expected a name")
        if mode and isinstance(table, dict):
            open(__file__).close()


class OpeningBesideAddressExecutor(FaultyExecutor):
    """The same, beside an address."""

    def __init__(self, k, seed=0, min_count=2, mode="", table=None):
        super().__init__(k, seed, min_count=min_count)
        if str(mode).startswith("http") and isinstance(table, dict):
            open(__file__).close()


class OpeningTextExecutor(FaultyExecutor):
    """Reads a file that the job must name, and a mode beside it."""

    def __init__(self, k, seed, table, mode, min_count=2):
        super().__init__(k, 0, min_count=min_count)
        self.table, self.mode = table, mode
        if not isinstance(mode, str) or not isinstance(table, str):
            raise TypeError("expected texts")
        open(table).close()


class OpeningRestExecutor(FaultyExecutor):
    """Reads a file that the job names as an argument of any other name."""

    def __init__(self, k, seed=0, min_count=2, **rest):
        super().__init__(k, seed, min_count=min_count)
        self.rest = rest
        if "file" in rest:
            open(rest["file"]).close()


class OpeningMoreExecutor(FaultyExecutor):
    """Takes further arguments by their places."""

    def __init__(self, k, seed=0, min_count=2, *rest):
        super().__init__(k, seed, min_count=min_count)
        self.rest = rest


class RefusingExecutor(FaultyExecutor):
    """Takes a mapping only, so that it is constructed with nothing else."""

    def __init__(self, k, settings):
        super().__init__(k)
        self.settings = dict(settings.items())


class LookingExecutor(FaultyExecutor):
    """Looks whether a file is there."""

    def __init__(self, k, seed=0, min_count=2, table=""):
        super().__init__(k, seed, min_count=min_count)
        self.table = table
        self.there = bool(table) and Path(str(table)).exists()


class EnvironmentExecutor(FaultyExecutor):
    """Looks into the environment."""

    def __init__(self, k, seed=0, min_count=2, table=""):
        super().__init__(k, seed, min_count=min_count)
        self.table = table
        self.home = os.getenv(table) if isinstance(table, str) else None


class EndingExecutor(FaultyExecutor):
    """Does something when it is gone."""

    def __init__(self, k, seed=0, min_count=2, table=""):
        super().__init__(k, seed, min_count=min_count)
        self.table = table

    def __del__(self):
        if isinstance(self.table, str) and os.path.isfile(self.table):
            open(self.table).close()
