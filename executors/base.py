"""The site's side of the seam: everything about NVFlare that an algorithm's executor does not have to know."""

import logging
import os
import traceback
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from flareclust.core.assessment import assessment_sums
from flareclust.core.lloyd import assign
from flareclust.errors import Aborted, BadMessage, Refusal
from flareclust.message import SECONDS, Schema, counts, real
from flareclust.seeding import stream
from flareclust.sites import SiteData, write_labels
from flareclust.typing import AbortCheck, FloatArray, IntArray, Message
from flareclust.validation import check_int

log = logging.getLogger(__name__)

#: The steps a server can ask for; they are also the names of the NVFlare tasks.
CLUSTER, ASSESS = "cluster", "assess"

#: Keys of a reply's meta. Numbers never travel there, because sites' filters look at the arrays only.
REFUSED, ROUND = "refused", "round"

#: Larger values than anybody measures; sums of squares of smaller ones stay finite.
LARGEST = 1e140

#: Where a site keeps what went wrong in its own words, in the job's folder.
TRACEBACK_FILE = "flareclust_error.txt"

#: What every site answers to `assess`: sums over the rows nearest to each of the k final centroids.
ASSESSMENT = Schema(counts=counts("k"), sse=real("k", least=0), silhouette=real("k"), scatter=real("k", least=0))


@dataclass(frozen=True)
class Task:
    """What the server asks one site for.

    Attributes:
        step: `CLUSTER` or `ASSESS`.
        round: number of the round, from 0.
        arrays: what the server sends along; empty in round 0 unless the algorithm starts otherwise.
        site: the name of the site that is asked.
    """

    step: str
    round: int
    arrays: Message
    site: str


@dataclass(frozen=True)
class Answer:
    """What a site computed: `arrays` leave it, `labels` (n,) stay (None unless the step was `ASSESS`)."""

    arrays: Message
    labels: IntArray | None = None


class ClusteringExecutor(Executor, ABC):
    """An NVFlare executor around one pure function, `local`.

    Args:
        k: number of clusters wanted in the whole federation.
        seed: of the job; a site's generators follow from it, the round and the site's name.
        min_count: clusters with fewer rows never leave a site.
    """

    #: Exactly what `local` returns, and so what leaves the site.
    reply: ClassVar[Schema]

    def __init__(self, k: int, seed: int = 0, min_count: int = 2) -> None:
        super().__init__()
        self.k = check_int("k", k, least=1)
        self.seed = check_int("seed", seed, least=0)
        self.min_count = check_int("min_count", min_count, least=1)
        self._rows: FloatArray | None = None

    @abstractmethod
    def local(self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> Message:
        """Compute the site's reply of one round from its rows (n, d).

        Pure: it depends on its arguments and the constructor's only. Raises `Refusal` when the site cannot take part.
        """

    def labels(self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> IntArray:
        """Return the final cluster (n,) of each row; unless overridden, that of the nearest final centroid.

        Args:
            task: carries the arrays of the last `Round`, `centroids` (k, d) among them.
            data: rows (n, d).
            rng: the generator that `local` got in round 0, so that a local clustering can be repeated.
            aborted: as in `local`.
        """
        return assign(data, task.arrays["centroids"])[0]

    # ---- the same for every engine ----

    def answer(self, task: Task, data: FloatArray, aborted: AbortCheck) -> Answer:
        """Answer `task` from the rows (n, d): the one entry that all engines use.

        Raises:
            Refusal: the site cannot take part, in words that hold no data.
            BadMessage: `local` returned something else than `reply` promises.
            Aborted: `aborted()` became true.
        """
        started = perf_counter()
        self._check_rows(task, data)
        if task.step == ASSESS:
            rng = stream(self.seed, 0, task.site)
            labels: IntArray | None = self.labels(task, data, rng, aborted)
            arrays = ASSESSMENT.pack(assessment_sums(data, task.arrays["centroids"])[1])
        else:
            labels = None
            arrays = self.reply.pack(self.local(task, data, stream(self.seed, task.round, task.site), aborted))
        return Answer({**arrays, SECONDS: np.array(perf_counter() - started)}, labels)

    @staticmethod
    def _check_rows(task: Task, data: FloatArray) -> None:
        if len(data) == 0:
            raise Refusal("has no rows")
        if not np.isfinite(data).all():
            raise Refusal("has rows with NaN or infinite values; remove or impute them at the site")
        if np.abs(data).max() > LARGEST:
            raise Refusal(f"has values beyond {LARGEST:g}, whose squares cannot be added up; rescale them at the site")
        centroids = task.arrays.get("centroids")
        if centroids is not None and centroids.shape[1] != data.shape[1]:
            raise Refusal(f"has rows of {data.shape[1]} columns where the federation has {centroids.shape[1]}")

    # ---- NVFlare ----

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer an NVFlare task. Expected trouble travels as a refusal; tracebacks stay in the site's own file."""
        site = fl_ctx.get_identity_name()
        try:
            dxo = from_shareable(shareable)
            task = Task(task_name, int(dxo.meta[ROUND]), dict(dxo.data), site)
            if self._rows is None:
                self._rows = SiteData.of(fl_ctx.get_workspace().get_site_config_dir(), site).rows()
            answer = self.answer(task, self._rows, lambda: bool(abort_signal.triggered))
            if answer.labels is not None:
                write_labels(_run_dir(fl_ctx), answer.labels)
        except Aborted:
            return make_reply(ReturnCode.TASK_ABORTED)
        except (Refusal, BadMessage) as reason:
            log.warning("refused the task %s: %s", task_name, reason)
            return _refuse(str(reason))
        except Exception as error:  # noqa: BLE001 - its text may hold data, and NVFlare streams logs to the server
            path = _keep_traceback(_run_dir(fl_ctx))
            log.warning("the task %s raised %s; traceback in %s", task_name, type(error).__name__, path)
            return _refuse(f"raised {type(error).__name__}; the traceback is at the site, in {path.name}")
        return DXO(DataKind.WEIGHTS, data=answer.arrays, meta={ROUND: task.round}).to_shareable()


def _refuse(reason: str) -> Shareable:
    return DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: reason[:400]}).to_shareable()


def _run_dir(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_workspace().get_run_dir(fl_ctx.get_job_id()))


def _keep_traceback(folder: Path) -> Path:
    path = folder / TRACEBACK_FILE
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        file.write(traceback.format_exc())
    return path
