"""A site's launcher: what it says of a process decides whether everybody's job fails."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import SystemComponents
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.utils.process_utils import ProcessAdapter, spawn_process

from flareclust import launcher
from flareclust.engines.admission import SiteDeployer
from flareclust.launcher import SiteProcessLauncher, _Handle


def launched(monkeypatch, *code: str):
    """Start Python with this code as the launcher would start a job."""
    adapter = spawn_process([sys.executable, "-c", *code], {})
    monkeypatch.setattr(ClientProcessJobLauncher, "launch_job", lambda *_: SimpleNamespace(adapter=adapter))
    return SiteProcessLauncher().launch_job({}, None)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_of_a_killed_process_nothing_is_known(monkeypatch, number):
    monkeypatch.setattr(launcher, "NAMED_SECONDS", 0.0)
    handle = launched(monkeypatch, f"import os; os.kill(os.getpid(), {int(number)})")
    handle.wait()
    assert handle.poll() == JobReturnCode.UNKNOWN


@pytest.mark.parametrize(
    ("code", "message"),
    [(0, JobReturnCode.SUCCESS), (1, JobReturnCode.EXECUTION_ERROR), (102, JobReturnCode.UNSAFE_COMPONENT)],
)
def test_a_process_that_ended_by_itself_is_reported(monkeypatch, code, message):
    handle = launched(monkeypatch, f"raise SystemExit({code})")
    handle.wait()
    assert handle.poll() == message


def test_a_shell_tells_of_a_killed_process_by_a_number_above_128():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(137)"])
    process.wait()
    assert _Handle(process_adapter=ProcessAdapter(process=process)).poll() == JobReturnCode.UNKNOWN


def test_a_killed_process_stays_in_the_sites_list_until_a_heartbeat_has_named_it(monkeypatch):
    """The server misses only jobs that it has heard of."""
    monkeypatch.setattr(launcher, "NAMED_SECONDS", 0.6)
    began = time.monotonic()
    handle = launched(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    handle.wait()
    assert time.monotonic() - began >= 0.6


def test_a_process_that_nvflare_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(launcher, "NAMED_SECONDS", 60.0)
    adapter = ProcessAdapter(
        process=subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    )
    handle = _Handle(process_adapter=adapter)
    began = time.monotonic()
    handle.terminate()
    handle.wait()
    assert time.monotonic() - began < 30


def test_a_site_whose_kit_names_no_deployer_gets_the_one_that_looks_at_jobs(monkeypatch):
    monkeypatch.setattr(ClientProcessJobLauncher, "handle_event", lambda *_: None)
    guarded, parts = [], {}
    monkeypatch.setattr(launcher, "guard_site", guarded.append)
    engine = SimpleNamespace(get_component=parts.get, add_component=parts.__setitem__)
    context = SimpleNamespace(get_engine=lambda: engine)
    SiteProcessLauncher().handle_event(EventType.SYSTEM_BOOTSTRAP, context)
    assert (guarded, parts) == ([context], {})
    SiteProcessLauncher().handle_event(EventType.SYSTEM_START, context)
    assert isinstance(own := parts[SystemComponents.APP_DEPLOYER], SiteDeployer)
    SiteProcessLauncher().handle_event(EventType.SYSTEM_START, context)
    assert parts == {SystemComponents.APP_DEPLOYER: own}
