"""An MLflow server of a test's own, in a process group that is gone in the end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flareclust.tracking.runs import Tracker
from tests.patience import PATIENCE


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process_group(command: list[str], **kwargs: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process in a group of its own; in the end kill the group."""
    with subprocess.Popen(command, start_new_session=True, **kwargs) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until_healthy(process: subprocess.Popen[Any], url: str) -> None:
    """Return when the server answers; fail where it ends before that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the server ended with exit code {process.wait(timeout=0.2)}")
    pytest.fail(f"the server did not answer within {PATIENCE:g} s")


@contextlib.contextmanager
def mlflow_server(folder: Path, port: int | None = None) -> Iterator[tuple[str, subprocess.Popen[Any]]]:
    """Start a server on the store `server.db` in a folder; give its address and its process."""
    port = port or free_port()
    # The Tracker makes the store, the server finds it: quicker than both making one.
    Tracker(f"sqlite:///{folder}/server.db", "unused")
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--serve-artifacts"]
    command += ["--artifacts-destination", str(folder / "kept")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with process_group(command, cwd=folder, env={**os.environ}, **quiet) as process:
        uri = f"http://127.0.0.1:{port}"
        wait_until_healthy(process, uri)
        yield uri, process


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a server with all its workers, as when memory runs out, and wait until it is gone."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
