"""Which jobs a site and the server let in, before anything in them is read: the last word of NVFlare's parent process.

A job is configuration. Files beside it are read by no component of ours, and what lies in a job's folder can be imported
as a module by anyone who finds a way to name it (docs/adr/0015-exact-classes.md). Code belongs into `custom/`, where NVFlare
asks whether the submitter may bring it. The configuration is plain text, without variables for NVFlare to resolve.
"""

import io
import logging
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from nvflare.apis.app_deployer_spec import AppDeployerSpec
from nvflare.apis.app_validation import AppValidator
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import AdminCommandNames, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

from flareclust._foundation.certificates import certificate_problem, ends_soon
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings_file import LONGEST_JSON
from flareclust.platform import _private, file_guard, peers
from flareclust.platform._private import AuthorizationService, AuthzContext, Person, optional, unprotected
from flareclust.platform.filters import contents_of, policy_of_site
from flareclust.privacy.job_folder import run_dir
from flareclust.privacy.job_sums import SECURE_SUMS
from flareclust.protocol.registry import BUILT_IN
from flareclust.sites.config import read_config
from flareclust.sites.job_log import note_came, note_end, note_reply
from flareclust.sites.job_settings import FILES, executor_of, folder_problem, settings_problem
from flareclust.sites.kit import classes_problem
from flareclust.sites.permissions import Watch, rights_problem
from flareclust.sites.running import note_protection

_log = logging.getLogger(__name__)

#: What a job consists of, in its app's folder, and what NVFlare puts beside it to sign it.
_FILES = frozenset(FILES)
_SIGNATURES = frozenset({NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE})

#: What the job that places late sites brings to the server: arrays, read without pickle.
_AT_SERVER = frozenset({"config/placed.npz"})

_CUSTOM = "custom"

#: What unpacks a job's files; where NVFlare has it elsewhere, no job is unpacked.
_AppDeployer: Any = optional("AppDeployer", AppDeployerSpec)

#: How long certificates must still hold when a job comes: its process connects anew, which can take a minute on a busy machine.
_CONNECTING = timedelta(minutes=5)

#: What of a job relies on guards, as a refusal names it.
_SUMS = "the job's secure sums"

#: What a process says of itself that has not been asked to guard itself.
_NOT_STARTED = "NVFlare has not announced its start"

#: What Python's zipfile raises for files that are damaged, encrypted, or packed in a way that it does not know.
_UNPACKABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def _files_problem(names: Iterable[str], *, at_server: bool = False) -> str | None:
    """Return why a job with these files in its app's folder may not run, in words that follow the site's name."""
    allowed = _FILES | _AT_SERVER if at_server else _FILES
    for name in names:
        path = PurePosixPath(name)
        if path.parts[:1] == (_CUSTOM,) and ".." not in path.parts:
            continue
        signs = path.name in _SIGNATURES and str(path.parent) in (".", "config")
        if str(path) not in allowed and not signs:
            own = ascii(name)[:200]
            return f"refuses the job for its file {own}: a job is config/*.json, and code goes into custom/"
    return None


def _packed_problem(packed: zipfile.ZipFile) -> str | None:
    """Return why a packed job may not run, by what its configuration holds; each entry is read, also of two with one name."""
    for entry in packed.infolist():
        if (name := str(PurePosixPath(entry.filename))) in _FILES and not entry.is_dir():
            with packed.open(entry) as stream:
                content = stream.read(LONGEST_JSON + 1)
            if (problem := settings_problem(name, content)) is not None:
                return problem
    return None


def _kept_problem(local: Path, folder: Path) -> str | None:
    """Return why a job with this folder may not be unpacked at a site, in words that follow the site's name.

    NVFlare would delete the folder first, and with it the labels and the record of requests.
    """
    if os.path.lexists(folder):
        return f"keeps the folder {folder.name} of an earlier job; submit the job again, which gives it a new number"
    with suppress(Refusal):  # which the job's own answer says
        labels = read_config(local).labels
        if labels is not None and os.path.lexists(local / labels / f"{folder.name}.csv"):
            return f"has labels of an earlier job {folder.name}; submit the job again, which gives it a new number"
    return None


def _guard_problem(unguarded: str | None, relies: str | None) -> str | None:
    """Return why a job may not run in a process that takes what others send; None, with a warning, for one that does not rely on it.

    Args:
        unguarded: why it does; None where it drops that.
        relies: what of the site or of the job does.
    """
    problem = peers.problem() or unguarded
    if problem is None or relies is not None:
        return problem and f"{problem} ({relies})"
    _log.warning("this process %s; the job runs, since nothing of it relies on that", problem)
    return None


def _sums_of(settings: Iterable[bytes]) -> str | None:
    """Return what of a job relies on guards, by its settings: its secure sums."""
    return _SUMS if any(SECURE_SUMS.encode() in text for text in settings) else None


class _Gate(FLComponent):
    """What decides about jobs, and has the messages of its process guarded."""

    def __init__(self) -> None:
        super().__init__()
        file_guard.install()  # before this process, or that of a job, has a connection
        _private.mend_connections()
        self._watch = Watch()
        self._unguarded: str | None = peers.unguarded(_NOT_STARTED)

    def _note_end(self, job: object, local: Path) -> None:
        if names := self._watch.ended(str(job), local):
            _log.error("changed while a job ran: %s; no further job is run until this process is started anew", names)


class SiteDeployer(_Gate, _AppDeployer):
    """NVFlare's deployer of jobs for a site's `local/resources.json`, which looks before it unpacks."""

    def __init__(self) -> None:
        super().__init__()
        self._unfollowed = peers.follow_jobs(self)

    def deploy(
        self,
        workspace: Workspace,
        job_id: str,
        job_meta: dict,  # type: ignore[type-arg]
        app_name: str,
        app_data: bytes,
        fl_ctx: FLContext,
    ) -> str:
        """Unpack a job's files into its folder, unless it may not run; return why. The site's log of jobs has a line of it."""
        local, refused = Path(workspace.get_site_config_dir()), "could not unpack the job's files"
        try:
            refused = self._deploy(local, workspace, job_id, job_meta, app_name, app_data, fl_ctx)
        finally:
            name, user = (str(job_meta.get(key, "")) for key in (JobMetaKey.JOB_NAME, JobMetaKey.SUBMITTER_NAME))
            algorithm = "" if refused else _algorithm_in(Path(workspace.get_app_dir(job_id)))
            with _noted():
                note_came(local.parent, job_id, name, user, algorithm, refused)
        return refused

    def _deploy(
        self,
        local: Path,
        workspace: Workspace,
        job_id: str,
        job_meta: dict[str, object],
        app_name: str,
        app_data: bytes,
        fl_ctx: FLContext,
    ) -> str:
        try:
            with zipfile.ZipFile(io.BytesIO(app_data)) as packed:
                names = [entry.filename for entry in packed.infolist() if not entry.is_dir()]
                problem = _problem(local, names, self._watch) or _packed_problem(packed)
                settings = (packed.read(name) for name in FILES if name in packed.namelist())
                problem = problem or _guard_problem(self._unguarded, policy_of_site(local) or _sums_of(settings))
                problem = problem or _kept_problem(local, Path(workspace.get_run_dir(job_id)))
        except _UNPACKABLE:
            return "the job's files cannot be unpacked"
        if problem is None and _AppDeployer is AppDeployerSpec:
            problem = unprotected("unpack the files of jobs", "no AppDeployer")
        if problem:
            _log.warning("job %s is not run: this site %s", job_id, problem)
            return problem
        if (ending := ends_soon(local.parent)) is not None:
            _log.warning("%s", ending)
        return super().deploy(workspace, job_id, job_meta, app_name, app_data, fl_ctx) or ""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Before NVFlare answers anyone, say whom the site answers; then note when jobs start and end."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            self._unguarded = peers.guard_site(fl_ctx) or self._unfollowed
            kit = Path(fl_ctx.get_prop(FLContextKey.ARGS).workspace)
            note_protection(kit, file_guard.problem() or self._unguarded)
        elif event_type == EventType.ABOUT_TO_START_RUN:  # in the process of a job
            if (problem := peers.guard_job(fl_ctx)) is not None:
                kept = policy_of_site(Path(fl_ctx.get_workspace().get_site_config_dir()))
                relies = kept or (_SUMS if fl_ctx.get_engine().get_component(SECURE_SUMS) else None)
                if (refusal := _guard_problem(problem, relies)) is not None:
                    self.system_panic(f"this site {refusal}", fl_ctx)
        elif event_type in (EventType.AFTER_JOB_LAUNCH, EventType.JOB_COMPLETED):
            local = Path(fl_ctx.get_engine().args.workspace) / "local"
            if event_type == EventType.AFTER_JOB_LAUNCH:
                meta = fl_ctx.get_prop(FLContextKey.JOB_META, {})
                self._watch.started(str(meta.get(JobMetaKey.JOB_ID.value)), local)
            else:
                job = str(fl_ctx.get_prop(FLContextKey.CURRENT_JOB_ID))
                self._note_end(job, local)
                with _noted():
                    note_end(local.parent, job, Path(Workspace(str(local.parent)).get_run_dir(job)))
        elif event_type == EventType.AUTHORIZE_COMMAND_CHECK:
            with _noted():
                _note_rejected(fl_ctx)
        elif event_type == EventType.AFTER_TASK_RESULT_FILTER:  # in the process of a job: what is about to leave
            with _noted():
                note_reply(run_dir(fl_ctx), *contents_of(fl_ctx.get_prop(FLContextKey.TASK_RESULT)))


@contextmanager
def _noted() -> Iterator[None]:
    """Let a job go on where the site's log of jobs cannot be written."""
    try:
        yield
    except OSError as error:
        _log.warning("the log of jobs (flareclust site log) cannot be written: %s", error.strerror)


def _note_rejected(fl_ctx: FLContext) -> None:
    """Write down a job that NVFlare is about to reject, since its user may submit none to this site."""
    asked, right = fl_ctx.get_prop(FLContextKey.SECURITY_ITEMS, {}), fl_ctx.get_prop(FLContextKey.COMMAND_NAME)
    if right != AdminCommandNames.SUBMIT_JOB:
        return
    user, submitter = (
        Person(*(asked.get(getattr(FLContextKey, f"{who}_{what}"), "") for what in ("NAME", "ORG", "ROLE")))
        for who in ("USER", "SUBMITTER")
    )
    permitted, fault = AuthorizationService.authorize(AuthzContext(user=user, submitter=submitter, right=right))
    if fault or not permitted:
        meta, kit = asked.get(FLContextKey.JOB_META) or {}, Path(fl_ctx.get_engine().args.workspace)
        job, name = (str(meta.get(key, "")) for key in (JobMetaKey.JOB_ID, JobMetaKey.JOB_NAME))
        note_came(
            kit, job, name, submitter.name, "", f"{fault or 'not permitted'} (its rights, local/authorization.json)"
        )


def _algorithm_in(app: Path) -> str:
    """Return the name of a job's algorithm, or where its executor is not ours, the path of that."""
    path = executor_of(app)
    return next((algorithm.name for algorithm in BUILT_IN if algorithm.executor == path), path)


class ServerValidator(_Gate, AppValidator):
    """The same for the `app_validator` of a server's `local/resources.json`, where a job's files are unpacked already."""

    def __init__(self) -> None:
        super().__init__()
        # The server makes its workspace the current folder before it reads its configuration, and moves no more.
        self._local = Path(os.getcwd()) / "local"

    def validate(self, app_folder: str) -> tuple[str, dict[str, object]]:
        """Return why a job may not run, and nothing about it."""
        root = Path(app_folder)
        names = [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if not path.is_dir()]
        problem = _problem(self._local, names, self._watch, at_server=True) or folder_problem(root)
        settings = (root / name for name in FILES if (root / name).exists())
        problem = problem or _guard_problem(self._unguarded, _sums_of(file.read_bytes() for file in settings))
        if problem:
            _log.warning("job %s is not run: the server %s", root.parent.name, problem)
            return f"the server {problem}", {}
        return "", {}

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """When the server starts, say what it passes on; then note when jobs start and end."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            self._unguarded = peers.guard_server(fl_ctx)
            note_protection(self._local.parent, file_guard.problem() or self._unguarded)
        elif event_type in (EventType.JOB_STARTED, EventType.JOB_COMPLETED):
            job = str(fl_ctx.get_prop(FLContextKey.EVENT_DATA, {}).get(JobMetaKey.JOB_ID.value))
            if event_type == EventType.JOB_STARTED:
                self._watch.started(job, self._local)
            else:
                self._note_end(job, self._local)


def _problem(local: Path, names: Iterable[str], watch: Watch, *, at_server: bool = False) -> str | None:
    try:
        return (
            file_guard.problem()
            or certificate_problem(local.parent, needed=_CONNECTING)
            or _files_problem(names, at_server=at_server)
            or classes_problem(local)
            or rights_problem(local)
            or watch.problem(local)
        )
    except UserError as error:
        return f"cannot say what jobs may do: {str(error).replace(f'{local.parent}{os.sep}', '')}"  # paths are nobody else's business
