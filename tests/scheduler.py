"""A Prefect server with workers for tests: own home, own port, own process groups, everything gone in the end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from tests.living import short_folder
from tests.patience import PATIENCE


class Scheduler:
    """A running server; every process that is started through it works in its folder and is known by that.

    Attributes:
        folder: for everything; short, because NVFlare makes sockets in temporary folders.
        url: of the server's API.
        env: for processes that are to reach it, and track to `store`.
        store: MLflow's.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.folder, self.url, self.store = folder, f"http://127.0.0.1:{port}/api", f"sqlite:///{folder}/mlflow.db"
        self.command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
        binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_API")},
            "PATH": binaries,  # prefect.yaml says `python`, as people do who have activated their environment
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",
            "MLFLOW_TRACKING_URI": self.store,
            "TMPDIR": str(folder),
            "PWD": str(folder),
        }

    @contextlib.contextmanager
    def process(self, command: list[str], log: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process in a group of its own; in the end ask it to stop, wait, and only then kill the group."""
        with (self.folder / log).open("ab") as out, _heeding_interrupts():
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of Prefect to its end; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @contextlib.contextmanager
    def worker(self, pool: str, log: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a worker and wait until it polls."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
        with self.process(command, log) as process:
            self.wait(lambda: "started!" in self.text(log), f"the worker of {pool} has started")
            yield process

    def text(self, log: str) -> str:
        """Return what a process has printed."""
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Return what the condition returns once that is true; fail with all logs after so many seconds."""
        end = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > end:
                logs = "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in self.folder.glob("*.log"))
                raise AssertionError(f"after {seconds} s it is not so that {what}\n{logs}")
            time.sleep(0.2)
        return found

    def processes(self, mark: str = "") -> list[psutil.Process]:
        """Return the processes that were started through this server, and have the mark in their command lines."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            line = " ".join(process.info["cmdline"] or ())
            # The flow run's own process does not name the folder, and NVFlare's have another environment.
            home = (process.info["environ"] or {}).get("PREFECT_HOME", "")
            if mark in line and str(self.folder) in f"{line} {home}":
                found.append(process)
        return found

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Give Prefect's client of this server."""
        from prefect.client.orchestration import get_client

        with self.here(), get_client(sync_client=True) as client:
            yield client

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Let flows of this process run on this server, too."""
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

        with temporary_settings({PREFECT_API_URL: self.url, PREFECT_HOME: self.folder / "home"}):
            yield

    def start_run(self, deployment: str, **parameters: object) -> UUID:
        """Ask for a run of a deployment, as the command `prefect deployment run` does; return its id."""
        with self.client() as client:
            found = client.read_deployment_by_name(deployment)
            return UUID(str(client.create_flow_run_from_deployment(found.id, parameters=parameters).id))

    def pause(self, deployment: str) -> None:
        """Let a deployment's schedules rest."""
        with self.client() as client:
            client.pause_deployment(client.read_deployment_by_name(deployment).id)

    def runs_of(self, deployment: str) -> list[Any]:
        """Return the flow runs of a deployment that have begun, the first of them first."""
        from prefect.client.schemas.filters import FlowRunFilter

        with self.client() as client:
            found = client.read_deployment_by_name(deployment)
            by = FlowRunFilter.model_validate({"deployment_id": {"any_": [found.id]}})
            runs = [run for run in client.read_flow_runs(flow_run_filter=by) if run.start_time is not None]
        return sorted(runs, key=lambda run: run.start_time)

    def state_of(self, run_id: UUID) -> str:
        """Return the name of a flow run's state."""
        with self.client() as client:
            return str(client.read_flow_run(run_id).state.type.value)


@contextlib.contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """Where tests run in the background of a shell, Ctrl-C's signal is ignored, and a worker stops by it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def started(**more: str) -> Iterator[Scheduler]:
    """Start a server, with more variables in its environment, and wait until it answers; in the end nothing of it is left, or the test fails."""
    from flareclust.tracking.runs import Tracker

    folder = Path(tempfile.mkdtemp(prefix="fc-", dir=short_folder()))
    scheduler = Scheduler(folder)
    scheduler.env |= more
    try:
        with scheduler.process(scheduler.command, "server.log") as process:
            scheduler.wait(lambda: _answers(scheduler, process), "the server answers")
            Tracker(scheduler.store)  # made once, here, and not by the first run
            yield scheduler
            # A flow run that lost its worker is still reporting to the server and MLflow.
            psutil.wait_procs(scheduler.processes("flareclust"), timeout=PATIENCE)
            _drain()
        _, left = psutil.wait_procs(scheduler.processes(), timeout=PATIENCE)
    finally:
        for process in scheduler.processes():
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    assert not left, [process.cmdline() for process in left]


def _drain() -> None:
    """Send what flows of this process still have to report to the server; a later test's would wait for it in vain."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    EventsWorker.drain_all()
    APILogWorker.drain_all()


def _answers(scheduler: Scheduler, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, scheduler.text("server.log")
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{scheduler.url}/health", timeout=2):
        return True
    return False
