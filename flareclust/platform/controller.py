"""The one NVFlare workflow: carries `run_federation` over NVFlare's tasks and writes the result files.

It extends NVFlare's `Controller` and not `ModelController`, because the latter drops replies with an error code before
anyone can say which site failed and why (docs/adr/0002-controller.md).
"""

import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask
from nvflare.apis.controller_spec import Task as NVFlareTask
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.wf_comm_spec import WFCommSpec
from nvflare.widgets.info_collector import GroupInfoCollector, InfoCollector

from flareclust._foundation.display import shown
from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.published import published
from flareclust._foundation.typing import Message
from flareclust._foundation.version import __version__, fits, misfit
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.aggregator import ClusteringAggregator, unpack
from flareclust.federation.checkpoint import CHECKPOINT, CheckpointFile, about_job, read, remove_old
from flareclust.platform import receiver
from flareclust.platform.filters import UNBOUNDED
from flareclust.preparation import result as partial
from flareclust.protocol.outcome import Outcome, append_round, write
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import NEEDS, ROUND
from flareclust.sites.job_settings import folder_problem
from flareclust.sites.kit import classes_problem, disabled_sites

#: Name and keys of what the controller answers to requests for the statistics of a running job.
LIVE, EXCHANGES, RECORDS, WAITING = "flareclust", "exchanges", "records", "waiting_for"

#: Why a site is missing that NVFlare has lost.
_LOST = "was lost: its process, its machine or its network is gone"

#: Why a site is neither asked nor waited for, and where the summary of a result names such sites.
DISABLED, DISABLED_SITES = "is disabled at the server (nvflare system disable-client)", "disabled_sites"

#: The id of every job in NVFlare's simulator, and what those of a server are made of.
SIMULATED, _JOB_ID = "simulate_job", re.compile(r"[A-Za-z0-9_-]{1,64}")

#: Where the server keeps the checkpoints of its jobs, in its own folder: a file per job, until its result is complete.
_CHECKPOINTS = "checkpoints"

#: What NVFlare sends tensors with.
_TENSORS = "nvflare.app_opt.pt.tensor_downloader"

#: So many of the last records are sent; who asks less often than that sees gaps until result.json.
_MOST_RECORDS = 50


@published
class ClusteringController(Controller):
    """Runs one federated clustering job.

    Args:
        algorithm: its name, for the result files.
        params: the algorithm's settings, likewise.
        aggregator_id: id of the `ClusteringAggregator` among the server's components.
        min_sites: quorum of a round; None for more than half of the sites.
        task_timeout: seconds a site has for one task.
        assess: whether the final centroids go out for metrics and labels.
        profile: whether the clusters are described after that, where the algorithm can.
        outcomes: the form of the outcomes to ask for at the end (`OutcomeForm.numbers`); None for none.
        task_check_period: seconds between two looks at the state of a task.
        secure_sums: whether sites send sums masked, so that the server learns their total only.
        secure_min_sites: these sums are of at least so many sites; None for three. The sites check it for themselves.
        about: what a job that goes on from this one must agree in, beside its own settings.
        resume: id of the interrupted job to go on from, whose checkpoint the server has. A job brings no file for it, since who
            writes one chooses what sites are asked; in the simulator it does.
        needs: the version of flareclust and the digest of the job's messages, which must fit those of server and sites
            (`flareclust._foundation.version.fits`); None for any.
    """

    def __init__(
        self,
        algorithm: str,
        params: dict[str, Any] | None = None,
        aggregator_id: str = "aggregator",
        min_sites: int | None = None,
        task_timeout: int = 600,
        assess: bool = True,
        task_check_period: float = 0.05,
        needs: str | None = None,
        secure_sums: bool = False,
        secure_min_sites: int | None = None,
        about: dict[str, Any] | None = None,
        resume: str | None = None,
        profile: bool = False,
        outcomes: Sequence[float] | None = None,
    ) -> None:
        super().__init__(task_check_period=task_check_period)
        self.algorithm = algorithm
        self.params = params
        self.aggregator_id = aggregator_id
        self.min_sites = min_sites
        self.task_timeout = task_timeout
        self.assess = assess
        self.task_check_period = task_check_period
        self.needs = needs
        self.secure_sums = secure_sums
        self.secure_min_sites = secure_min_sites
        self.about = about
        self.resume = resume
        self.profile = profile
        self.outcomes = None if outcomes is None else tuple(outcomes)
        self._records: list[Mapping[str, object]] = []
        self._waiting: list[str] = []
        self._lost: set[str] = set()
        self._task: NVFlareTask | None = None
        self._unbounded: str | None = None

    def set_communicator(self, communicator: WFCommSpec) -> None:
        """Take the communicator; NVFlare 2.9.0 gives it `task_check_period` under a name that it does not read.

        At the end of a job it imports PyTorch, where that is installed, to remove tensors that nobody sent: seconds, and half a gigabyte.
        """
        super().set_communicator(communicator)
        if not hasattr(communicator, "_task_check_period"):
            self.logger.warning(
                "NVFlare looks at tasks in its own time, so that each round can take some tenths of a second more"
            )
        communicator._task_check_period = self.task_check_period
        if (clean_up := getattr(communicator, "_cleanup_inflight_tensor_downloads", None)) is not None:
            communicator._cleanup_inflight_tensor_downloads = lambda fl_ctx: (
                clean_up(fl_ctx) if _TENSORS in sys.modules else None
            )

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Find the aggregator."""
        aggregator = fl_ctx.get_engine().get_component(self.aggregator_id)
        if not isinstance(aggregator, ClusteringAggregator):
            kind = type(aggregator).__name__
            words = f"the component that aggregator_id names must be a ClusteringAggregator, got {kind}"
            self.system_panic(words, fl_ctx)
            return
        aggregator.read(Path(fl_ctx.get_workspace().get_app_config_dir(fl_ctx.get_job_id())))
        self._aggregator = aggregator
        self._unbounded = receiver.install(fl_ctx, self._open_task)
        if self._unbounded is not None:
            self.log_warning(fl_ctx, f"the server {self._unbounded}; a reply that cannot be read ends the job")

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Report how far the job is, and note which sites NVFlare has lost."""
        super().handle_event(event_type, fl_ctx)
        if event_type == InfoCollector.EVENT_TYPE_GET_STATS:
            collector = fl_ctx.get_prop(InfoCollector.CTX_KEY_STATS_COLLECTOR)
            if isinstance(collector, GroupInfoCollector):
                state = {EXCHANGES: len(self._records), RECORDS: self._records[-_MOST_RECORDS:]}
                collector.set_info(LIVE, {**state, WAITING: sorted(self._waiting)})
        elif event_type == EventType.CLIENT_DISCONNECTED:
            self._lost.add(str(fl_ctx.get_prop(FLContextKey.DISCONNECTED_CLIENT_NAME)))
        elif event_type == EventType.CLIENT_RECONNECTED:
            self._lost.discard(str(fl_ctx.get_prop(FLContextKey.RECONNECTED_CLIENT_NAME)))

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the job; a failure that was foreseen stops it with its reason."""
        if problem := self._problem(fl_ctx):
            self.system_panic(f"the server {problem}", fl_ctx)
            return
        folder = Path(fl_ctx.get_workspace().get_result_root(fl_ctx.get_job_id()))
        root = Path(fl_ctx.get_workspace().get_root_dir())
        sites = [client.name for client in fl_ctx.get_engine().get_clients()]

        def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> Mapping[str, SiteReply]:
            return self._ask(step, round_, arrays, asked, fl_ctx, abort_signal)

        def on_round(record: Mapping[str, object]) -> None:
            append_round(record, folder)
            self._records.append(record)
            self.log_info(fl_ctx, f"{record['step']} {record['round']}: {len(record['sites'])} sites")  # type: ignore[arg-type]

        kept = CheckpointFile(checkpoint_at(root, fl_ctx.get_job_id()), about=self._about())
        try:
            interrupted = self._interrupted(fl_ctx)
            remove_old(kept.path.parent, interrupted)
            outcome = run_federation(
                self._aggregator,
                ask,
                sites,
                FederationOptions.of(self),
                on_round=on_round,
                resume=None if interrupted is None else read(interrupted, kept.about, self._aggregator),
                on_checkpoint=None if self._aggregator.executor.private else kept.keep,
            )
        except _Stopped:
            self.log_info(fl_ctx, "the job was aborted; no result was written")
        except FlareclustError as error:
            self.system_panic(_inside(root, error), fl_ctx)
        except Exception as error:  # noqa: BLE001 - a fault of the aggregator must end the job with its name, too
            self.log_exception(fl_ctx, "the server's side raised")
            self.system_panic(f"the server's side raised {type(error).__name__}: {_inside(root, error)}", fl_ctx)
        else:
            write(outcome, folder, self._summary(outcome, disabled_sites(root)))
            for file in (kept.path, interrupted):
                if file is not None:
                    file.unlink(missing_ok=True)

    def _problem(self, fl_ctx: FLContext) -> str | None:
        """Return why this server cannot run the job, in words that follow its name; None where it can."""
        if self.needs is not None and not fits(self.needs, installed := self._aggregator.version()):
            return misfit(self.needs, installed)
        if self._unbounded is not None and self.secure_sums:
            return f"{self._unbounded} (the job's secure sums)"
        workspace = fl_ctx.get_workspace()
        # A server whose kit names no validator has not looked; the settings in result.json are those of the lead, not resolved.
        if problem := folder_problem(Path(workspace.get_app_config_dir(fl_ctx.get_job_id())).parent):
            return problem
        local = Path(workspace.get_site_config_dir())
        return classes_problem(local) or classes_problem(local, self._aggregator.imports)

    def _summary(self, outcome: Outcome, disabled: Sequence[str]) -> dict[str, object]:
        """Return what result.json says of the job beside the outcome."""
        p = self._aggregator.params
        about: dict[str, object] = {"algorithm": self.algorithm, "k": p.k, "seed": p.seed}
        about |= {"params": self.params or {}, "flareclust": __version__}
        if (features := partial.summary(outcome.arrays)) is not None:
            about |= {"features": features, "columns": features["names"]}
        return about | ({DISABLED_SITES: list(disabled)} if disabled else {})

    def _about(self) -> dict[str, object]:
        """Return what this job and the one that it goes on from must agree in."""
        own = about_job(self.algorithm, self._aggregator, self.params, secure_sums=self.secure_sums)
        return {**(self.about or {}), **own}

    def _interrupted(self, fl_ctx: FLContext) -> Path | None:
        """Return the checkpoint to go on from; None for a job from the start."""
        if self.resume is None:
            return None
        workspace, job = fl_ctx.get_workspace(), fl_ctx.get_job_id()
        if job == SIMULATED:
            return Path(workspace.get_app_config_dir(job)) / CHECKPOINT
        return checkpoint_at(Path(workspace.get_root_dir()), self.resume)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: a job leaves no open resource."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Ignore a reply that came after its task had ended."""
        self.log_warning(fl_ctx, f"{client.name} answered {task_name!r} too late; the reply was not used")

    def _open_task(self, site: str) -> tuple[str, str] | None:
        """Return name and id of the task that a site has been given and has not answered."""
        task = self._task
        given = () if task is None or task.completion_status is not None else tuple(task.client_tasks)
        mine = (one for one in given if one.client.name == site and one.result_received_time is None)
        return next(((one.task.name, one.id) for one in mine), None)

    def _ask(
        self, step: str, round_: int, arrays: Message, sites: Sequence[str], fl_ctx: FLContext, abort_signal: Signal
    ) -> dict[str, SiteReply]:
        replies: dict[str, SiteReply] = {}

        def receive(client_task: ClientTask, fl_ctx: FLContext) -> None:
            message, problem = unpack(client_task.result, (step, round_))
            replies[client_task.client.name] = SiteReply(message, problem)
            self._waiting = [site for site in self._waiting if site != client_task.client.name]
            client_task.result = None  # NVFlare keeps the task until the round ends; the arrays need not stay as long

        root = Path(fl_ctx.get_workspace().get_root_dir())
        out = {*disabled_sites(root)}
        self._waiting = asked = [site for site in sites if site not in out]
        meta = {ROUND: round_, NEEDS: self.needs, **({UNBOUNDED: True} if self._unbounded else {})}
        data = DXO(DataKind.WEIGHTS, data=dict(arrays), meta=meta).to_shareable()
        self._task = task = NVFlareTask(step, data, result_received_cb=receive)
        if asked:
            self.broadcast(task, fl_ctx, targets=asked, min_responses=len(asked))
            self._await(task, root, abort_signal)
        if abort_signal.triggered:
            raise _Stopped
        why = dict.fromkeys(self._lost, _LOST) | dict.fromkeys(out | {*disabled_sites(root)}, DISABLED)
        missing = {site: SiteReply(problem=why[site], lost=True) for site in set(sites) - set(replies) if site in why}
        return replies | missing

    def _await(self, task: NVFlareTask, root: Path, abort_signal: Signal) -> None:
        """Wait for the end of a task, or until only sites are waited for that are disabled: NVFlare does not take these for lost.

        Its timeout goes by the clock of the machine, which can jump.
        """
        end = time.monotonic() + (self.task_timeout or math.inf)
        while task.completion_status is None:
            waiting, late = {*self._waiting}, time.monotonic() > end
            if late or abort_signal.triggered or (waiting and waiting <= {*disabled_sites(root)}):
                self.cancel_task(task)
                return
            time.sleep(self.task_check_period)


def _inside(root: Path, error: Exception) -> str:
    """Return the text of an error for the lead, who has no business with paths of the server: names and what is in its folder stay."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {Path(str(error.filename)).name}" if error.filename else error.strerror
    return str(error).replace(f"{root}/", "")


def checkpoint_at(root: Path, job: str) -> Path:
    """Return where the server whose folder is `root` keeps the checkpoint of a job.

    Raises:
        UserError: that is no id of a job.
    """
    if not _JOB_ID.fullmatch(job):
        raise UserError(f"resume: {shown(job)} is no id of a job")
    return root / _CHECKPOINTS / f"{job}.npz"


class _Stopped(Exception):
    """The job was aborted while waiting for sites."""
