"""How site and server start the processes of jobs: as NVFlare does, but with few environment variables, and at a site a process
that is killed, or never gets to work, does not end everybody's job.

NVFlare fails a job as soon as one site reports that its process failed. A process that was killed from outside, by an
operator or for want of memory, has no failure to report: its site is gone from the job, and the quorum decides. NVFlare
notices by the site's heartbeats (docs/adr/0010-lost-sites.md). So is the site of a process that ends before its first task, such as one
that cannot connect to the server. One that ends by itself with an error later, or that may not load the job or cannot make sense
of it, still fails the job.

NVFlare gives processes of jobs all environment variables. Who starts a site may have set passwords for something else, and a job's
process has no need of them: it gets those of a list, and what the site's kit adds.
"""

import logging
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey, JobConstants, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle, ProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import add_custom_dir_to_path, get_credential_env
from nvflare.utils.process_utils import ProcessAdapter, spawn_process

from flareclust._foundation.display import shown
from flareclust._foundation.errors import UserError
from flareclust.platform import file_guard
from flareclust.platform._private import optional
from flareclust.platform.admission import SiteDeployer

#: A site's heartbeats, one every 10 s, name its jobs. The server misses only a job that was named once, so a process that
#: was killed is kept in the list for so long after its start.
_NAMED_SECONDS = 12.0

#: NVFlare's own codes, by which it distinguishes failures; where it has none, one that is not allowed counts as any other.
_REASONS = optional("PROCESS_EXIT_REASON", {})

#: How NVFlare's client calls a process that has yet to report that it is connected, as it does before its first task.
_STARTING = getattr(optional("ClientStatus", None), "STARTING", None)

#: How a process ends that could not start, whatever it was: with an exception, also one that NVFlare did not catch.
_EXCEPTIONS = (JobReturnCode.EXCEPTION, JobReturnCode.EXECUTION_ERROR)

#: What shells add to the number of the signal that ended a program.
_SIGNALLED = 128

_log = logging.getLogger(__name__)


class _Launcher(ProcessJobLauncher):
    """A process launcher that does as NVFlare's, but for the variables that it passes on.

    Args:
        environment: names of variables beside those of `NAMES` and `_PREFIXES`.
    """

    def __init__(self, environment: Sequence[str] = ()) -> None:
        super().__init__()
        file_guard.install()
        names: object = environment
        good = isinstance(names, list | tuple) and all(isinstance(one, str) and _NAME.fullmatch(one) for one in names)
        if not good:
            raise UserError(
                "environment of the process_launcher: expected a list of names of variables, such as "
                f'["KRB5CCNAME"], got {shown(environment)}'
            )
        self.environment = tuple(environment)

    def launch_job(self, job_meta: dict, fl_ctx: FLContext) -> ProcessHandle:  # type: ignore[type-arg]
        """Start the job's process."""
        environment = listed(os.environ, self.environment)
        if custom := fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_app_custom_dir(job_meta[JobConstants.JOB_ID]):
            add_custom_dir_to_path(custom, environment)
        environment |= get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS))
        process = spawn_process(shlex.split(self.get_command(job_meta, fl_ctx), True), environment)
        return self._handle(process, job_meta[JobConstants.JOB_ID], fl_ctx)

    def _handle(self, process: ProcessAdapter, job: str, fl_ctx: FLContext) -> ProcessHandle:
        """Return what NVFlare follows and ends a process by."""
        return ProcessHandle(process_adapter=process)


class ServerProcessLauncher(_Launcher, ServerProcessJobLauncher):
    """The process launcher of a server's `local/resources.json`."""


class _Handle(ProcessHandle):
    """Follows the process of a job at a site.

    Args:
        process_adapter: the process.
        starting: says whether it has yet to report that it is connected.
        code_file: where it writes its code by which it ends, if threads keep it from ending by itself.
    """

    def __init__(
        self,
        process_adapter: ProcessAdapter,
        starting: Callable[[], bool] = lambda: False,
        code_file: Path | None = None,
    ) -> None:
        super().__init__(process_adapter=process_adapter)
        self._starting, self._code_file = starting, code_file
        self._started, self._ended_by_us = time.monotonic(), False

    def terminate(self) -> None:
        """End the process, as NVFlare asks for when the job is over or aborted."""
        self._ended_by_us = True
        super().terminate()

    def wait(self) -> None:
        """Wait for the end; of a process whose site counts as lost, until the server will miss it."""
        super().wait()
        if self._ended_by_us or self.poll() != JobReturnCode.UNKNOWN:
            return
        _log.error(
            "the process of a job ended (%s): the others go on without this site, where enough are left",
            self.adapter.poll(),
        )
        if self._code_file is not None:  # which NVFlare believes more than what is said here
            self._code_file.unlink(missing_ok=True)
        time.sleep(max(0.0, self._started + _NAMED_SECONDS - time.monotonic()))

    def poll(self) -> int:
        """Return how the process ended; unknown, which nobody reports, while it runs, if a signal ended it, and if it never got to work.

        NVFlare's own codes stay as they are, where it makes one of them all, so that a class that is not allowed can be
        distinguished from other failures.
        """
        code: int | None = self.adapter.poll()
        if code is None or code < 0 or _SIGNALLED < code <= _SIGNALLED + signal.NSIG:
            return int(JobReturnCode.UNKNOWN)
        known = code if code in _REASONS else int(super().poll())
        return int(JobReturnCode.UNKNOWN) if known in _EXCEPTIONS and self._starting() else known


class SiteProcessLauncher(_Launcher, ClientProcessJobLauncher):
    """The process launcher of a site's `local/resources.json`."""

    def __init__(self, environment: Sequence[str] = ()) -> None:
        super().__init__(environment)
        self._deployer = SiteDeployer()

    def _handle(self, process: ProcessAdapter, job: str, fl_ctx: FLContext) -> ProcessHandle:
        executor: Any = getattr(fl_ctx.get_engine(), "client_executor", None)
        folder = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_run_dir(job)
        return _Handle(
            process,
            starting=lambda: executor is not None and executor.get_status(job) == _STARTING,
            code_file=Path(folder) / FLMetaKey.PROCESS_RC_FILE,
        )

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Guard the site's process, and give a site whose kit names no deployer the one that looks at jobs."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            self._deployer.handle_event(event_type, fl_ctx)
        elif event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            if engine.get_component(SystemComponents.APP_DEPLOYER) is None:
                engine.add_component(SystemComponents.APP_DEPLOYER, self._deployer)


#: What the system, Python, its libraries and this package read. None holds a secret by its meaning.
NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP"),
        *("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
        *("FLARECLUST_THREADS", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH", "PYTHONHASHSEED"),
        *("PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"),
        *("PYTHONMALLOC", "PYTHONWARNINGS", "PYTHONUTF8", "PYTHONIOENCODING", "VECLIB_MAXIMUM_THREADS"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUBLAS_WORKSPACE_CONFIG"),
        *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_HOME", "DASK_CONFIG", "DASK_TEMPORARY_DIRECTORY"),
        *("FL_LOG_LEVEL", "FLARECLUST_DATA", "FLARECLUST_MEMORY", "FLARECLUST_POC"),
    }
)

#: How the names of others begin.
_PREFIXES = (
    *("LC_", "OMP_", "KMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "NUMEXPR_", "NUMBA_", "MALLOC_"),
    *("CUDA_", "GRPC_", "NVFLARE_", "DASK_DISTRIBUTED__"),
)

#: How a process reaches other machines, in both spellings; one with a user, and so a password, stays out.
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")

#: Names that begin like one of the list, but are of a secret, or of a proxy with one.
_SECRET = re.compile(r"PASS|SECRET|TOKEN|KEY|CRED|AUTH|PROXY", re.IGNORECASE)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def listed(environment: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """Return what the process of a job gets of the variables of the one that starts it; `more` are names beside the list."""

    def passes(name: str, value: str) -> bool:
        if name.lower() in _PROXIES:
            return "@" not in value
        return name in NAMES or (name.startswith(_PREFIXES) and not _SECRET.search(name))

    return {name: value for name, value in environment.items() if name in more or passes(name, value)}
