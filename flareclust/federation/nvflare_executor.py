"""The NVFlare side of executors: turns a task into a call of `answer` on the site's rows, and the answer into a reply."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell

from flareclust._foundation.errors import Aborted, BadMessage, Refusal
from flareclust._foundation.typing import AbortCheck, FloatArray
from flareclust._foundation.version import fits, misfit
from flareclust.data.labels import keep_labels
from flareclust.data.tables import Table
from flareclust.privacy.job_folder import TRACEBACK_FILE, keep_traceback, run_dir
from flareclust.privacy.job_sums import SECURE_SUMS, SecureSums
from flareclust.privacy.secure_aggregation.client import SiteSums
from flareclust.privacy.session import MADE_UNDER, QUESTION, SiteSession
from flareclust.protocol.parametrized import Parametrized
from flareclust.protocol.rows import OtherRows
from flareclust.protocol.task import NEEDS, REFUSED, ROUND, STEP, Answer, StepName, Task
from flareclust.sites.account import session_of
from flareclust.sites.cluster import ClusterTable
from flareclust.sites.held_rows import keep_rows
from flareclust.sites.kit import classes_problem
from flareclust.sites.part_rows import check_in_parts
from flareclust.sites.rows import SiteData

_log = logging.getLogger(__name__)

#: Attributes that hold the site's rows and session; algorithms have no access to them.
HELD = ("_rows", "_site", "sums")


class ExecutorShell(Executor, ABC):
    """An NVFlare executor whose replies are computed by `answer`."""

    #: Whether every array that leaves the site goes through `SiteContext.dp`, and so is differentially private.
    private: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[SiteData, Table | ClusterTable] | None = None
        self._site: SiteSession | None = None
        self.sums = SiteSums()

    @property
    @abstractmethod
    def gaps(self) -> bool | None:
        """Return whether the job takes rows with missing cells, which are NaN; None for an algorithm that never does."""

    @abstractmethod
    def version(self) -> str:
        """Return the version of flareclust, and behind a plus the digest of the job's messages."""

    @abstractmethod
    def answer(
        self, task: Task, data: FloatArray | Table | OtherRows, aborted: AbortCheck, session: SiteSession | None = None
    ) -> Answer:
        """Answer `task` from the rows (n, d); `session` holds the site's policy, None where it has none."""

    def hold_to(self, job: SecureSums | None) -> None:
        """Mask sums as the job's configuration says, whatever a server requests; None for a job without secure sums."""
        self.sums.hold_to(job)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Make NVFlare put arrays into the reply itself, instead of references that the server has to fetch."""
        if event_type == EventType.START_RUN and isinstance(cell := fl_ctx.get_engine().get_cell(), Cell):
            cell.update_fobs_context({"native": True})
        if event_type == EventType.END_RUN and self._rows is not None and isinstance(self._rows[1], ClusterTable):
            self._rows[1].parts.close()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer an NVFlare task. Expected errors are sent as a refusal; tracebacks stay in the site's own file."""
        site = fl_ctx.get_identity_name()

        def aborted() -> bool:
            return bool(abort_signal.triggered)

        try:
            dxo = from_shareable(shareable)
            if REFUSED in dxo.meta:  # refused by the site's own filter, which wrote the reason
                return shareable
            local = Path(fl_ctx.get_workspace().get_site_config_dir())
            if self._rows is None:
                job, named = str(fl_ctx.get_job_id()), self.imports if isinstance(self, Parametrized) else ()
                self._site = session_of(local, site, job, private=False)  # under it the site says why it refuses below
                if problem := classes_problem(local, named):
                    raise Refusal(problem)
                self._site = session_of(local, site, job, private=self.private)
                self.hold_to(_secure_sums(fl_ctx))
            if self._site is not None and fl_ctx.get_prop(QUESTION) is None:
                raise Refusal("has a policy that is not in force; see flareclust site check there")
            _check_version(dxo.meta.get(NEEDS), self.version())
            task = Task(task_name, int(dxo.meta[ROUND]), dict(dxo.data), site)
            if self._rows is None:
                self._rows = self._read(SiteData.of(local, site), aborted, fl_ctx)
            site_data, table = self._rows
            if task_name == StepName.KEYS:
                startup = Path(fl_ctx.get_workspace().get_startup_kit_dir())
                self.sums.is_at(startup, str(fl_ctx.get_job_id()), run_dir(fl_ctx), self._site)
            answer = self._answer(task, table, site_data, aborted, fl_ctx)
            if answer.unplaced is not None:
                keep_traceback(fl_ctx, answer.unplaced)
                _log.warning("rows got no labels: %s; traceback in %s", type(answer.unplaced).__name__, TRACEBACK_FILE)
        except Aborted:
            return make_reply(ReturnCode.TASK_ABORTED)
        except (Refusal, BadMessage) as reason:
            _log.warning("refused the task %s: %s", task_name, reason)
            return self._stated(_refuse(str(reason)), task_name)
        except Exception as error:  # noqa: BLE001 - its text may hold data, and NVFlare streams logs to the server
            keep_traceback(fl_ctx, error)
            _log.warning("the task %s raised %s; traceback in %s", task_name, type(error).__name__, TRACEBACK_FILE)
            text = f"raised {type(error).__name__}; the traceback is at the site, in {TRACEBACK_FILE}"
            return self._stated(_refuse(text), task_name)
        meta = {STEP: task.step, ROUND: task.round}
        return self._stated(DXO(DataKind.WEIGHTS, data=answer.arrays, meta=meta).to_shareable(), task_name)

    def _read(self, data: SiteData, aborted: AbortCheck, fl_ctx: FLContext) -> tuple[SiteData, Table | ClusterTable]:
        kit, job = Path(fl_ctx.get_workspace().get_site_config_dir()).parent, str(fl_ctx.get_job_id())
        if data.compute is not None:
            check_in_parts(self, self._site)
            found = data.on_cluster(aborted=aborted)
            keep_rows(kit, job, None if data.id is None else found.parts.ids(aborted), found.withdrawn)
            return data, found
        grouped = self._site is not None and not self.private
        table = data.table(scratch=run_dir(fl_ctx), gaps=bool(self.gaps), marked=grouped)
        keep_rows(kit, job, table.ids_used, table.rows_read.withdrawn)
        return data, table

    def _answer(
        self, task: Task, table: Table | ClusterTable, data: SiteData, aborted: AbortCheck, fl_ctx: FLContext
    ) -> Answer:
        """Return the answer, after the labels that came with it are in their file."""
        answer = self.answer(task, table, aborted, self._site)
        if answer.labels is not None:
            ids: Iterable[str] | None = table.ids_used if isinstance(table, Table) else None
            labels, details = answer.labels, dict(answer.details)
            if isinstance(table, ClusterTable):
                ids = None if data.id is None else table.parts.ids(aborted)
            elif (withdrawn := table.withdrawn) is not None:
                labels, details = labels[~withdrawn], {name: values[~withdrawn] for name, values in details.items()}
            keep_labels(run_dir(fl_ctx), data.labels, labels, ids, data.id, details)
        return answer

    @abstractmethod
    def sender(self, step: str) -> str | None:
        """Return the name of the algorithm whose message the reply to a step is; None where it is not registered."""

    def _stated(self, reply: Shareable, step: str) -> Shareable:
        """Add a header for the site's own filter, which removes it: the policy that the reply was computed under."""
        if self._site is not None:
            reply.set_header(MADE_UNDER, self._site.statement(self.sender(step), private=self.private))
        return reply


def _secure_sums(fl_ctx: FLContext) -> SecureSums | None:
    """Return the job's settings of secure sums; None where it has none."""
    component = fl_ctx.get_engine().get_component(SECURE_SUMS)
    if isinstance(component, FLComponent) and not isinstance(component, SecureSums):
        raise Refusal(f"was sent a job whose component {SECURE_SUMS!r} is none of flareclust's")
    return component if isinstance(component, SecureSums) else None


def _check_version(needs: str | None, installed: str) -> None:
    """Raise Refusal where the job states a version of flareclust that does not fit that of the site."""
    if needs is not None and not fits(needs, installed):
        raise Refusal(f"{misfit(needs, installed)}; install that version at the site")


def _refuse(reason: str) -> Shareable:
    return DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: reason[:400]}).to_shareable()
