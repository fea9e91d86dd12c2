"""A site's launcher: what it says of a process decides whether everybody's job fails."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.utils.process_utils import ProcessAdapter, spawn_process

from flareclust.launcher import SiteProcessLauncher


def launched(monkeypatch, *code: str):
    """Start Python with this code as the launcher would start a job."""
    adapter = spawn_process([sys.executable, "-c", *code], {})
    monkeypatch.setattr(ClientProcessJobLauncher, "launch_job", lambda *_: SimpleNamespace(adapter=adapter))
    return SiteProcessLauncher().launch_job({}, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_of_a_killed_process_nothing_is_known(monkeypatch, number):
    handle = launched(monkeypatch, f"import os; os.kill(os.getpid(), {int(number)})")
    handle.wait()
    assert handle.poll() == JobReturnCode.UNKNOWN


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, JobReturnCode.SUCCESS), (1, JobReturnCode.EXECUTION_ERROR), (102, JobReturnCode.UNSAFE_COMPONENT)],
)
def test_a_process_that_ended_by_itself_is_told(monkeypatch, code, told):
    handle = launched(monkeypatch, f"raise SystemExit({code})")
    handle.wait()
    assert handle.poll() == told


def test_a_shell_tells_of_a_killed_process_by_a_number_above_128():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(137)"])
    process.wait()
    from flareclust.launcher import _Handle

    assert _Handle(process_adapter=ProcessAdapter(process=process)).poll() == JobReturnCode.UNKNOWN
