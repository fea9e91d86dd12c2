"""What a federation's server loads of ours from its own `local/resources.json`, beside the jobs.

All of it stands there by its name, so that it works wherever the kit lies and however the server is started: by the kit's
scripts, in a container, by another supervisor.
"""

import ctypes
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, RunProcessKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import Job, JobMetaKey, RunStatus
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

from flareclust.platform import _private
from flareclust.protocol.schema import plain

#: How long a finished job waits for sites that no longer answer, as an environment variable: NVFlare has no file for it.
_OUTCOME_WAIT = "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"

#: From so many bytes on audit.log is audit.log.1, and so many older ones are kept: as of NVFlare's other logs.
_AUDIT_BYTES, _AUDIT_FILES = 20_000_000, 10

#: Between two tries to write down what became of a job; and the age from which on the empty folder of a download is left over.
_AGAIN_SECONDS, _DOWNLOAD_SECONDS = 1.0, 60.0

_log = logging.getLogger(__name__)


class WorkspaceStorage(FilesystemStorage):
    """NVFlare's storage, whose relative names are those of the server's own workspace.

    NVFlare starts them at the root of the file system, and a kit cannot name an absolute path before it has its place.
    The server makes the workspace its current folder before it reads its configuration, and so do its jobs' processes.
    Absolute names, such as those that `nvflare deploy prepare` writes, mean what they do for NVFlare.

    Args:
        root_dir: where the names of what is stored begin; None for the workspace, or the root for absolute names.
        uri_root: the part of those names that stands for `root_dir`.
    """

    def __init__(self, root_dir: str | None = None, uri_root: str = os.sep) -> None:
        workspace = os.getcwd()
        super().__init__(root_dir=os.path.join(workspace, root_dir) if root_dir else os.sep, uri_root=uri_root)
        self._base = os.sep if root_dir else workspace

    def _object_path(self, uri: str) -> str:
        return str(super()._object_path(os.path.join(self._base, uri)))


class OutcomeWait(FLComponent):
    """Sets how long the server waits for sites that vanished from a job whose work is done, unless the environment does.

    NVFlare waits 900 seconds, in which the job counts as running.
    """

    def __init__(self, seconds: float = 20.0) -> None:
        super().__init__()
        self.seconds = seconds
        os.environ.setdefault(_OUTCOME_WAIT, str(seconds))


class LostJobs(FLComponent):
    """Ends, in NVFlare's store, jobs that a server lost when it crashed, or that were about to start; and keeps the start of jobs going.

    NVFlare takes up none of them, and lists them as running, so that they can be neither aborted nor deleted. It also starts no job any
    more, until the server is started again, once it could not write down what became of one, as on a full disk; and a job that it
    could not start while the clock was ahead only when that time has come again.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Before a server starts its first job, give those of its predecessor an end; processes of jobs have no such event."""
        if event_type != EventType.SYSTEM_BOOTSTRAP:
            return
        _end_lost_jobs(fl_ctx)
        engine = fl_ctx.get_engine()
        manager, runner = engine.get_component(SystemComponents.JOB_MANAGER), engine.job_runner
        manager.get_jobs_to_schedule = partial(_waiting_jobs, manager.get_jobs_to_schedule)
        runner.run = partial(_start_jobs, runner, runner.run)


def _waiting_jobs(ask: Callable[[FLContext], list[Job]], fl_ctx: FLContext) -> list[Job]:
    """Return the jobs that wait for their start; the next try is due for those whose last one lies in the future."""
    jobs = ask(fl_ctx)
    for job in jobs:
        if job.meta.get(JobMetaKey.LAST_SCHEDULE_TIME.value, 0.0) > time.time():
            job.meta[JobMetaKey.LAST_SCHEDULE_TIME.value] = 0.0
    return jobs


def _start_jobs(runner: Any, start_jobs: Callable[[FLContext], None], fl_ctx: FLContext) -> None:
    """Do what NVFlare's runner of jobs does until the server ends, whatever happens on the way."""
    while not runner.ask_to_stop:
        try:
            start_jobs(fl_ctx)
        except Exception:  # noqa: BLE001 - nobody but the operator would start the server again
            _log.exception("a job was not started; the server goes on trying")
            runner._job_complete_process = lambda engine: None  # the first one still runs, in a thread of its own
            while not runner.ask_to_stop:
                with suppress(OSError):  # still nothing can be written
                    _end_lost_jobs(fl_ctx)
                    break
                time.sleep(_AGAIN_SECONDS)


def _end_lost_jobs(fl_ctx: FLContext) -> None:
    """Give jobs an end in NVFlare's store that are listed as started and have no process."""
    engine = fl_ctx.get_engine()
    manager = engine.get_component(SystemComponents.JOB_MANAGER)
    for job in manager.get_jobs_by_status([RunStatus.RUNNING, RunStatus.DISPATCHED], fl_ctx):
        if job.job_id not in engine.run_processes and job.job_id not in engine.job_runner.running_jobs:
            manager.set_status(job.job_id, RunStatus.ABANDONED, fl_ctx)
            _log.warning("the server has lost the job %s: it was started again, or could not write", job.job_id)


class ReturnedMemory(FLComponent):
    """Gives the memory that finished jobs needed back to the operating system, and keeps audit.log and the folder of downloads small.

    The C library keeps it, in pieces too small for the next job's messages, so that a server grew by a megabyte with each job.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Do so at the end of each job; no memory where the C library is not that of GNU."""
        if event_type in (EventType.JOB_COMPLETED, EventType.JOB_ABORTED):
            with suppress(AttributeError):
                ctypes.CDLL(None).malloc_trim(0)
            with suppress(AttributeError, ImportError, OSError):
                _rotate_audit(_private.AuditService.get_auditor())
            _remove_downloads(Path("transfer"))


def _remove_downloads(downloads: Path) -> None:
    """Remove the folders of downloads that are over: NVFlare empties them and keeps them."""
    for folder in downloads.glob("*"):
        with suppress(OSError):  # it is not empty, or has just gone
            if time.time() - folder.stat().st_mtime > _DOWNLOAD_SECONDS:
                folder.rmdir()


def _rotate_audit(auditor: Any) -> None:
    """Begin another audit.log where it is large; no line is lost, since NVFlare waits for it."""
    with auditor._lock:
        file = auditor.audit_file.name
        if os.path.getsize(file) < _AUDIT_BYTES:
            return
        auditor.audit_file.close()
        try:
            for number in reversed(range(1, _AUDIT_FILES)):
                with suppress(FileNotFoundError):
                    os.replace(f"{file}.{number}", f"{file}.{number + 1}")
            os.replace(file, f"{file}.1")
        finally:
            auditor.audit_file = open(file, "a")  # noqa: SIM115 - as NVFlare's


class ReturningSites(FLComponent):
    """Tells running jobs which of their sites were started again, so that no round waits for these; and names kits that run twice.

    NVFlare knows a job's sites by the tokens that they got when they connected. A site that comes back before the server has
    missed it (`heart_beat_timeout`) gets another token, and the server, which looks for the old one, never misses it. Where the
    old token goes on sending heartbeats, two processes have the same kit.
    """

    def __init__(self) -> None:
        super().__init__()
        self._notified: set[tuple[str, str]] = set()  # job and token
        self._twice: set[str] = set()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Look at the sites of running jobs when one of them has connected, and at heartbeats."""
        if event_type == EventType.CLIENT_REGISTER_PROCESSED:
            self._tell(fl_ctx.get_engine())
        elif event_type == EventType.CLIENT_HEARTBEAT_PROCESSED:
            self._look_for_copies(fl_ctx)

    def _tell(self, engine: Any) -> None:
        connected = engine.server.client_manager.get_clients()
        names, running = {client.name for client in list(connected.values())}, dict(engine.run_processes)
        self._notified = {pair for pair in self._notified if pair[0] in running}
        for job, process in running.items():
            for token, client in list((process.get(RunProcessKey.PARTICIPANTS) or {}).items()):
                if client.name in names and token not in connected and (job, token) not in self._notified:
                    self._notified.add((job, token))
                    engine.notify_dead_job(job, client.name, "the site was started again")

    def _look_for_copies(self, fl_ctx: FLContext) -> None:
        peer = fl_ctx.get_peer_context()
        name = peer.get_identity_name() if peer else ""
        if fl_ctx.get_prop(FLContextKey.COMMUNICATION_ERROR) and name not in self._twice:
            self._twice.add(name)
            _log.error(
                "%s connects from two places; stop the process of its kit at one of them, then run the job again",
                plain(name),
            )
