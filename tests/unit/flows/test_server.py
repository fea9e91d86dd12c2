"""Prefect's server, without one: what is said where it is gone or cannot start, and who is told its address."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flareclust._foundation.errors import UserError
from tests.patience import PATIENCE


@pytest.fixture
def server(monkeypatch, tmp_path):
    """The module, with Prefect's home in a new folder, no server that is set, and none that starts."""
    from flareclust.flows import server

    class Stand:
        api_url, blocked, problem = "http://127.0.0.1:1/api", None, None
        running, server_process = False, None

        def start(self):
            type(self).blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
            if self.problem:
                raise RuntimeError(self.problem)

    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings

    monkeypatch.setattr(server, "SubprocessASGIServer", Stand)
    updates = {PREFECT_HOME: tmp_path / "home", PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: True}
    with temporary_settings(updates, restore_defaults={PREFECT_API_URL}):
        yield server


def test_a_temporary_server_starts_where_none_is_set_and_outlives_an_interrupt(server, tmp_path):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    server.start_server()
    assert {signal.SIGINT, signal.SIGHUP} <= server.SubprocessASGIServer.blocked
    assert not {signal.SIGINT, signal.SIGHUP} & signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert (tmp_path / "home").is_dir()
    server.SubprocessASGIServer.problem = "it is not asked"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:2/api"}):
        server.start_server()


def test_a_temporary_server_that_does_not_start_is_an_error_with_advice(server, tmp_path):
    server.SubprocessASGIServer.problem = "timed out"
    with pytest.raises(
        UserError, match=r"did not start \(timed out\); see that .*home can be written to, or run without"
    ):
        server.start_server()
    (tmp_path / "home").rmdir()
    (tmp_path / "home").write_text("a file")
    with pytest.raises(UserError, match=r"home, which cannot be made .*set PREFECT_HOME to another folder"):
        server.start_server()


@pytest.mark.skipif(os.name != "posix", reason="a shell watches")
def test_a_server_ends_with_a_process_that_is_killed():
    """The program is killed at once after it has the server watched, here another program that would sleep."""
    server = subprocess.Popen(["sleep", "600"])
    code = (
        "import os, signal, sys; from flareclust.flows.server import _end_with_this_process; "
        "_end_with_this_process(int(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    try:
        killed = subprocess.run([sys.executable, "-c", code, str(server.pid)], check=False, timeout=PATIENCE)
        assert killed.returncode == -signal.SIGKILL
        assert server.wait(PATIENCE) == -signal.SIGTERM
    finally:
        server.kill()
        server.wait()


def test_tasks_in_other_processes_get_the_address_of_the_temporary_server_or_of_the_one_that_is_set(server):
    from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

    with server.server_for_workers():
        assert get_current_settings().api.url == "http://127.0.0.1:1/api"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:2/api"}), server.server_for_workers():
        assert get_current_settings().api.url == "http://127.0.0.1:2/api"


def test_a_server_that_cannot_be_reached_is_an_error_with_advice_and_other_errors_stay(server):
    advice = r"^Failed to reach API at http://x; start that Prefect server, unset PREFECT_API_URL"
    with pytest.raises(UserError, match=advice), server.server_reached():
        raise RuntimeError("Failed to reach API at http://x")
    with pytest.raises(RuntimeError, match=r"^another$"), server.server_reached():
        raise RuntimeError("another")


def test_a_server_is_given_up_soon_where_somebody_waits(server):
    from prefect.settings import get_current_settings

    with server.short_retries():
        assert (get_current_settings().client.max_retries, get_current_settings().api.request_timeout) == (1, 15.0)


def test_a_server_that_prefect_is_set_to_use_is_reported_to(server):
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flareclust.flows.configured import server_configured

    assert not server_configured()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:2/api"}):
        assert server_configured()


def test_prefect_is_asked_where_the_environment_or_a_file_names_it(monkeypatch, tmp_path):
    import sys

    from flareclust.flows import configured

    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_bytes(b"\xff")
    assert not configured._mentioned()
    Path(".env").write_text("PREFECT_API_URL=http://127.0.0.1:2/api\n")
    assert configured._mentioned()
    Path(".env").unlink()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:2/api")
    assert configured._mentioned()
