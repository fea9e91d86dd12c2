"""A site's launcher: what it says of a process decides whether everybody's job fails."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey, ReservedKey, SystemComponents
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs, JobReturnCode
from nvflare.app_common.job_launcher import process_launcher
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.private.fed.client.client_status import ClientStatus
from nvflare.private.fed.utils.fed_utils import get_return_code
from nvflare.utils.process_utils import ProcessAdapter

from flareclust._foundation.errors import UserError
from flareclust.platform import admission, launcher
from flareclust.platform.admission import SiteDeployer
from flareclust.platform.launcher import (
    _PREFIXES,
    _PROXIES,
    NAMES,
    ServerProcessLauncher,
    SiteProcessLauncher,
    _Handle,
    listed,
)
from flareclust.sites.running import _PROTECTION


def launched(monkeypatch, *code: str, status: int = ClientStatus.STARTED, folder: Path = Path()):
    """Start Python with this code as the launcher would start a job; the process has told the site that status."""
    monkeypatch.setattr(ClientProcessJobLauncher, "get_command", lambda *_: shlex.join([sys.executable, "-c", *code]))
    fl_ctx = context(folder=folder)
    engine = SimpleNamespace(client_executor=SimpleNamespace(get_status=lambda job: status))
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    return SiteProcessLauncher().launch_job({"job_id": "job-1"}, fl_ctx)


def context(custom: str = "", folder: Path = Path(), **args: str) -> FLContext:
    """What NVFlare gives a launcher; of the arguments of the process its credentials only."""
    fl_ctx = FLContext()
    workspace = SimpleNamespace(get_app_custom_dir=lambda job: custom, get_run_dir=lambda job: str(folder / job))
    fl_ctx.set_prop(FLContextKey.WORKSPACE_OBJECT, workspace, private=True, sticky=False)
    given = {name: ("-x", value) for name, value in args.items()}
    fl_ctx.set_prop(FLContextKey.JOB_PROCESS_ARGS, given, private=True, sticky=False)
    return fl_ctx


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_of_a_killed_process_nothing_is_known(monkeypatch, number):
    monkeypatch.setattr(launcher, "_NAMED_SECONDS", 0.0)
    handle = launched(monkeypatch, f"import os; os.kill(os.getpid(), {int(number)})")
    handle.wait()
    assert handle.poll() == JobReturnCode.UNKNOWN


@pytest.mark.parametrize(
    ("code", "message"),
    [
        *((0, JobReturnCode.SUCCESS), (1, JobReturnCode.EXECUTION_ERROR)),
        *((101, JobReturnCode.EXCEPTION), (102, JobReturnCode.UNSAFE_COMPONENT)),
    ],
)
def test_a_process_that_ended_by_itself_is_reported(monkeypatch, code, message):
    handle = launched(monkeypatch, f"raise SystemExit({code})")
    handle.wait()
    assert handle.poll() == message


@pytest.mark.parametrize("code", [1, 101])
def test_a_process_that_ended_before_its_first_task_is_lost_and_no_failure(monkeypatch, tmp_path, code):
    """As one whose certificate has ended, which cannot connect; also where its threads had it write its code into a file."""
    monkeypatch.setattr(launcher, "_NAMED_SECONDS", 0.6)
    (tmp_path / "job-1").mkdir()
    (tmp_path / "job-1" / FLMetaKey.PROCESS_RC_FILE).write_text(str(code))
    began = time.monotonic()
    handle = launched(monkeypatch, f"raise SystemExit({code})", status=ClientStatus.STARTING, folder=tmp_path)
    handle.wait()
    assert time.monotonic() - began >= 0.6, "the server misses only jobs that it has heard of"
    assert get_return_code(handle, "job-1", str(tmp_path), None) == JobReturnCode.UNKNOWN


@pytest.mark.parametrize("code", [102, 103])
def test_a_job_that_may_not_be_loaded_or_makes_no_sense_fails_also_at_the_start(monkeypatch, code):
    handle = launched(monkeypatch, f"raise SystemExit({code})", status=ClientStatus.STARTING)
    handle.wait()
    assert handle.poll() == code


def test_a_shell_tells_of_a_killed_process_by_a_number_above_128():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(137)"])
    process.wait()
    assert _Handle(process_adapter=ProcessAdapter(process=process)).poll() == JobReturnCode.UNKNOWN


def test_a_killed_process_stays_in_the_sites_list_until_a_heartbeat_has_named_it(monkeypatch):
    """The server misses only jobs that it has heard of."""
    monkeypatch.setattr(launcher, "_NAMED_SECONDS", 0.6)
    began = time.monotonic()
    handle = launched(monkeypatch, "import os; os.kill(os.getpid(), 9)")
    handle.wait()
    assert time.monotonic() - began >= 0.6


def test_a_process_that_nvflare_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(launcher, "_NAMED_SECONDS", 60.0)
    adapter = ProcessAdapter(
        process=subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    )
    handle = _Handle(process_adapter=adapter)
    began = time.monotonic()
    handle.terminate()
    handle.wait()
    assert time.monotonic() - began < 30


def test_a_site_whose_kit_names_no_deployer_gets_the_one_that_looks_at_jobs(monkeypatch, tmp_path):
    monkeypatch.setattr(ClientProcessJobLauncher, "handle_event", lambda *_: None)
    guarded, parts = [], {}
    monkeypatch.setattr(admission.peers, "guard_site", guarded.append)
    engine = SimpleNamespace(get_component=parts.get, add_component=parts.__setitem__)
    about = SimpleNamespace(workspace=str(tmp_path))
    started = SimpleNamespace(get_engine=lambda: engine, get_prop=lambda key: about)
    SiteProcessLauncher().handle_event(EventType.SYSTEM_BOOTSTRAP, started)
    assert (guarded, parts) == ([started], {})
    assert (tmp_path / _PROTECTION).exists()
    SiteProcessLauncher().handle_event(EventType.SYSTEM_START, started)
    assert isinstance(own := parts[SystemComponents.APP_DEPLOYER], SiteDeployer)
    SiteProcessLauncher().handle_event(EventType.SYSTEM_START, started)
    assert parts == {SystemComponents.APP_DEPLOYER: own}


@pytest.mark.parametrize(
    "name", ["NVFLARE_ADMIN_PASSWORD", "GRPC_PROXY_EXP", "DASK_DISTRIBUTED__COMM__TLS__CA_KEY", "LC_SECRET"]
)
def test_a_secret_whose_name_begins_like_one_of_the_list_stays_out(name):
    assert listed({name: "a", "LC_ALL": "C"}) == {"LC_ALL": "C"}


#: Both launchers of ours, each with that of NVFlare which it is in the place of.
PAIRS = [(SiteProcessLauncher, ClientProcessJobLauncher), (ServerProcessLauncher, ServerProcessJobLauncher)]

#: What a site may be started with: what jobs need, and what is nobody's business in them.
NEEDED = {
    "PATH": os.environ["PATH"],
    "HOME": "/home/site",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "2",
    "NUMBA_CACHE_DIR": "/tmp/numba",
    "CUDA_VISIBLE_DEVICES": "0",
    "NVFLARE_DATUM_DIR": "/tmp/datums",
    "FLARECLUST_MEMORY": "2GB",
    "https_proxy": "http://proxy.hospital.org:3128",
    "NO_PROXY": "localhost",
}
SECRETS = {
    "PGPASSWORD": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "DATABASE_URL": "c",
    "HF_TOKEN": "d",
    "NVIDIA_API_KEY": "e",
    "FLARECLUST_SALT": "f",
    "HTTPS_PROXY": "http://user:g@proxy.hospital.org:3128",
    "MY_PATH": "h",
    "path": "i",
}
CREDENTIALS = {JobProcessArgs.AUTH_TOKEN: "t", JobProcessArgs.TOKEN_SIGNATURE: "s", JobProcessArgs.SSID: "i"}


def environment_of_job(made, tmp_path, monkeypatch) -> dict[str, str]:
    """Start a process as that of a job, and return the environment that it has."""
    target = tmp_path / "environment.json"
    code = f"import json, os; json.dump(dict(os.environ), open({str(target)!r}, 'w'))"
    monkeypatch.setattr(type(made), "get_command", lambda *_: shlex.join([sys.executable, "-I", "-c", code]))
    handle = made.launch_job({"job_id": "job-1"}, context("/kit/custom", **CREDENTIALS))
    handle.wait()
    found = json.loads(target.read_text())
    found.pop("LC_CTYPE", None)  # which Python sets by itself where it has no locale
    return found


@pytest.mark.parametrize("pair", PAIRS)
def test_the_process_of_a_job_gets_listed_variables_and_what_nvflare_gives_it(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", NEEDED | SECRETS)
    found = environment_of_job(pair[0](), tmp_path, monkeypatch)
    assert {name: found.pop(name) for name in NEEDED} == NEEDED
    assert found.pop("PYTHONPATH").split(os.pathsep)[-1] == "/kit/custom"
    assert sorted(found.values()) == ["i", "s", "t"]
    assert all(name.startswith("NVFLARE_JOB_") for name in found)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_kit_adds_variables_by_their_names(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", NEEDED | SECRETS)
    found = environment_of_job(pair[0](environment=["HF_TOKEN", "NOT_SET"]), tmp_path, monkeypatch)
    assert found["HF_TOKEN"] == "d"
    assert "NOT_SET" not in found
    assert not ({*SECRETS} - {"HF_TOKEN"}) & {*found}


@pytest.mark.parametrize("names", ["HF_TOKEN", ["A=b"], [1], {"HF_TOKEN": "x"}, ["*"]])
def test_a_kit_that_adds_something_else_is_not_started(names):
    with pytest.raises(UserError, match="expected a list of names of variables"):
        SiteProcessLauncher(environment=names)


@pytest.mark.parametrize("pair", PAIRS)
def test_but_for_that_processes_are_started_as_nvflare_starts_them(pair, monkeypatch):
    """A later NVFlare that passes on more, such as another credential, is noticed here."""
    monkeypatch.setattr(os, "environ", dict(NEEDED))
    started = []
    for module in (launcher, process_launcher):
        monkeypatch.setattr(module, "spawn_process", lambda *args: started.append(args) or ProcessAdapter(pid=1))
    for kind in pair:
        monkeypatch.setattr(kind, "get_command", lambda *_: "python -m job 'a b'")
        kind().launch_job({"job_id": "job-1"}, context("/kit/custom", **CREDENTIALS))
    assert started[0] == started[1]


def test_the_documented_variables_are_those_of_the_list():
    text = (Path(__file__).parents[3] / "docs" / "operations-site.md").read_text(encoding="utf-8")
    table = text.split("## Environment variables")[1].split("If jobs at your site")[0]
    documented = set(re.findall(r"`([A-Za-z0-9_]+\*?)`", table))
    assert documented == NAMES | {f"{prefix}*" for prefix in _PREFIXES} | set(_PROXIES)
