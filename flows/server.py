"""Prefect's server: that it is there, that it is not waited for where it is gone."""

import atexit
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Before prefect is imported. Offline, its telemetry would only log errors; and a machine that starts several sites at
# once can be too slow for the default 20 s to start a server.
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect.server.api.server import SubprocessASGIServer
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW,
    get_current_settings,
    temporary_settings,
)

from flareclust._foundation.errors import UserError

#: How the warning begins that Prefect does not know how a run ended.
PREFECT_LOST = "Prefect's server stopped answering"


@contextmanager
def short_retries() -> Iterator[None]:
    """Let Prefect give a server up within seconds, where somebody waits for the command; its own default is a minute."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1, PREFECT_API_REQUEST_TIMEOUT: 15.0}):
        yield


@contextmanager
def server_reached() -> Iterator[None]:
    """Say what to do, as a UserError, where Prefect cannot reach the server that it is set to use."""
    try:
        yield
    except RuntimeError as error:
        if "Failed to reach API" not in str(error):
            raise
        raise UserError(
            f"{error}; start that Prefect server, unset PREFECT_API_URL, or run without tracking (--no-track)"
        ) from error


def start_server() -> None:
    """Start Prefect's temporary server, where one is needed, so that Ctrl-C or a closed terminal does not end it.

    Both reach every process of the terminal. Without its server, Prefect would try for more than a minute to report
    the interrupt; the server is stopped when this process ends.
    """
    settings = get_current_settings()
    if settings.api.url or not settings.server.ephemeral.enabled:
        return
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Prefect keeps its records in {settings.home}, which cannot be made ({error.strerror}); "
            "set PREFECT_HOME to another folder, or run without tracking (--no-track)"
        ) from error
    server = SubprocessASGIServer()
    if server.running:
        return
    try:
        with stop_signals_blocked():
            server.start()
            if server.server_process is not None:
                _end_with_this_process(server.server_process.pid)
    except RuntimeError as error:
        raise UserError(
            f"Prefect's temporary server did not start ({error}); see that {settings.home} can be written to, or run "
            "without tracking (--no-track)"
        ) from error


def _end_with_this_process(pid: int) -> None:
    """Let a shell end another process where this one is killed and can do nothing: then the shell's input is at its end."""
    if os.name != "posix":
        return
    shell = subprocess.Popen(["/bin/sh", "-c", 'read -r _; kill "$0"', str(pid)], stdin=subprocess.PIPE)
    atexit.register(shell.kill)  # an orderly end stops the server itself


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Start processes that Ctrl-C and a closed terminal do not end: a child inherits which signals are blocked."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def server_for_workers() -> Iterator[None]:
    """Give tasks in other processes a server to report to: the one that is set, or else the temporary one of this process.

    Without its address, each of these processes would start a server of its own. Tasks outside of a flow have no page
    for their logs, and Prefect would warn of each.
    """
    start_server()
    settings = get_current_settings()
    changed: dict[Any, Any] = {PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}
    if not settings.api.url and settings.server.ephemeral.enabled:
        changed[PREFECT_API_URL] = SubprocessASGIServer().api_url
    with temporary_settings(changed):
        yield
