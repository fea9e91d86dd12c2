"""The server's kit: its timing, and where its jobs and snapshots lie."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.apis.job_def import JobMetaKey, RunStatus
from nvflare.apis.server_engine_spec import ServerEngineSpec
from nvflare.app_common.job_schedulers.job_scheduler import SCHEDULE_RESULT_OK, DefaultJobScheduler
from nvflare.fuel.sec.audit import Auditor
from nvflare.fuel.utils.class_utils import instantiate_class

from flareclust.platform import server
from flareclust.platform.server import _OUTCOME_WAIT, WorkspaceStorage
from tests.patience import PATIENCE
from tests.unit.platform.provision_cases import component, resources


def test_the_server_forgets_lost_sites_soon_and_keeps_its_jobs_to_itself(kits):
    text = (kits / "localhost" / "local" / "resources.json.default").read_text()
    found = json.loads(text)
    assert found["servers"][0]["heart_beat_timeout"] == 60
    assert found["servers"][0]["max_num_clients"] == 10_000
    assert component(found, "returning_sites")["args"] == {}
    assert component(found, "lost_jobs")["args"] == {}
    assert component(found, "outcome_wait")["args"] == {"seconds": 20.0}
    assert "/tmp" not in text
    assert str(kits) not in text


@pytest.mark.parametrize("host", ["localhost", "clinic-a"])
def test_nvflares_script_gives_up_at_the_fifth_restart_as_the_pages_say(kits, tmp_path, host):
    """The schedule of the seed 203: somebody has to start it again then (docs/operations-site.md)."""
    script = (kits / host / "startup" / "sub_start.sh").read_text()
    starting = script[script.index("\nSECONDS=0\n") : script.index("\nstop_fl() {")]
    again = "start_python() { :; }; for i in 1 2 3 4 5 6; do start_fl; done; echo never"
    command = ["bash", "-c", f"WORKSPACE={tmp_path}\n{starting}\n{again}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout.splitlines()
    assert [line.partition(" ")[0] for line in said] == ["new"] * 5 + ["System"], said


def test_the_server_starts_jobs_with_our_launcher(kits):
    assert (
        component(resources(kits / "localhost"), "process_launcher")["path"]
        == "flareclust.launcher.ServerProcessLauncher"
    )


def test_what_the_kits_name_can_be_loaded(kits, monkeypatch, tmp_path):
    monkeypatch.delenv(_OUTCOME_WAIT, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("localhost", "clinic-a"):
        for one in resources(kits / name)["components"]:
            if one["path"].startswith("flareclust."):
                instantiate_class(one["path"], one.get("args", {}))
    assert os.environ[_OUTCOME_WAIT] == "20.0"


#: NVFlare's server up to where it has read its configuration, in its order (nvflare/private/fed/app/server/server_train.py).
AS_THE_SERVER = """
import argparse, os, sys
from nvflare.apis.workspace import Workspace
from nvflare.private.fed.app.fl_conf import FLServerStarterConfiger
from nvflare.private.fed.server.job_runner import JobRunner

os.chdir(sys.argv[1])
args = argparse.Namespace(workspace=sys.argv[1], job_id=None, fed_server="fed_server.json", set=[])
conf = FLServerStarterConfiger(workspace=Workspace(sys.argv[1]), args=args, kv_list=["secure_train=true", "org=hub"])
conf.configure()
print(JobRunner(workspace_root=sys.argv[1]).client_outcome_wait_timeout, *sorted(conf.components))
"""


def test_a_server_that_reads_the_kit_waits_as_long_as_it_says_wherever_it_lies(kits, tmp_path):
    """Not in the place where it was made, and not started by its script, which a container does not use."""
    moved = shutil.copytree(kits / "localhost", tmp_path / "moved")
    env = {name: value for name, value in os.environ.items() if name != _OUTCOME_WAIT}
    done = subprocess.run(
        [sys.executable, "-c", AS_THE_SERVER, str(moved)],
        check=True,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split()[0] == "20.0"
    assert "job_store" in done.stdout
    assert (moved / "jobs-storage").is_dir()


def test_the_operators_own_wait_goes_before_that_of_the_kit(monkeypatch):
    monkeypatch.setenv(_OUTCOME_WAIT, "300")
    instantiate_class("flareclust.engines.server.OutcomeWait", {"seconds": 20.0})
    assert os.environ[_OUTCOME_WAIT] == "300"


@pytest.fixture
def store(monkeypatch, tmp_path):
    """The context of a server with NVFlare's own manager of jobs in a new folder, that manager, and the server's engine."""
    monkeypatch.chdir(tmp_path)
    manager, store = SimpleJobDefManager(uri_root="jobs-storage"), WorkspaceStorage()
    engine = MagicMock(spec=ServerEngineSpec)
    engine.get_component.side_effect = {"job_manager": manager, "job_store": store}.get
    engine.job_runner, engine.run_processes = SimpleNamespace(running_jobs={}, run=None, ask_to_stop=False), {}
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    return fl_ctx, manager, engine


def test_jobs_that_a_server_has_lost_end_when_it_starts_again(store):
    """It takes up no job that its predecessor ran or was about to start."""
    fl_ctx, manager, engine = store
    before = {
        "runs": RunStatus.RUNNING,
        "lost": RunStatus.RUNNING,
        "dispatched": RunStatus.DISPATCHED,
        "waits": RunStatus.SUBMITTED,
        "done": RunStatus.FINISHED_COMPLETED,
    }
    ids = {name: str(uuid.uuid4()) for name in before}
    engine.run_processes = {ids["runs"]: {}}
    for name, status in before.items():
        manager.create({JobMetaKey.JOB_ID.value: ids[name]}, b"", fl_ctx)
        manager.set_status(ids[name], status, fl_ctx)

    def statuses() -> dict[str, str]:
        return {name: manager.get_job(job, fl_ctx).meta[JobMetaKey.STATUS.value] for name, job in ids.items()}

    lost = instantiate_class("flareclust.engines.server.LostJobs", {})
    lost.handle_event(EventType.ABOUT_TO_START_RUN, fl_ctx)
    assert statuses() == {name: status.value for name, status in before.items()}, (
        "the process of a job ends no other one"
    )
    lost.handle_event(EventType.SYSTEM_BOOTSTRAP, fl_ctx)
    ended = {"lost": RunStatus.ABANDONED, "dispatched": RunStatus.ABANDONED}
    assert statuses() == {name: status.value for name, status in (before | ended).items()}


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_job_that_was_tried_while_the_clock_was_ahead_is_tried_again_at_once(store, monkeypatch, ahead):
    """NVFlare would let it wait for an hour, as sites had no time to answer; what was tried just now waits as NVFlare says."""
    fl_ctx, manager, engine = store
    job = str(uuid.uuid4())
    manager.create({JobMetaKey.JOB_ID.value: job}, b"", fl_ctx)
    manager.set_status(job, RunStatus.SUBMITTED, fl_ctx)
    tried_last = {JobMetaKey.SCHEDULE_COUNT.value: 1, JobMetaKey.LAST_SCHEDULE_TIME.value: time.time() + ahead}
    manager.update_meta(job, tried_last, fl_ctx)
    engine.new_context.return_value = nullcontext(fl_ctx)
    scheduler = DefaultJobScheduler(min_schedule_interval=600.0)
    monkeypatch.setattr(scheduler, "_try_job", lambda job, context: (SCHEDULE_RESULT_OK, {}, ""))

    def starts() -> bool:
        return scheduler.schedule_job(manager, manager.get_jobs_to_schedule(fl_ctx), fl_ctx)[0] is not None

    assert not starts()
    instantiate_class("flareclust.engines.server.LostJobs", {}).handle_event(EventType.SYSTEM_BOOTSTRAP, fl_ctx)
    assert starts() == bool(ahead)


@pytest.mark.parametrize("status", [RunStatus.SUBMITTED, RunStatus.DISPATCHED])
def test_a_server_that_could_not_write_goes_on_to_start_jobs(store, monkeypatch, status):
    """NVFlare's runner ends with the error, with the job as it was listed last."""
    fl_ctx, manager, engine = store
    job, runner = str(uuid.uuid4()), engine.job_runner
    started, completing = [], []
    runner._job_complete_process = completing.append
    set_status, full = manager.set_status, iter((True, True))

    def write(*change):
        if next(full, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        set_status(*change)

    def start_jobs(context):
        started.append(context)
        runner._job_complete_process(engine)
        if len(started) == 2:
            runner.ask_to_stop = True
            return
        manager.create({JobMetaKey.JOB_ID.value: job}, b"", fl_ctx)
        set_status(job, status, fl_ctx)
        monkeypatch.setattr(manager, "set_status", write)
        manager.set_status(job, RunStatus.FAILED_TO_RUN, fl_ctx)

    runner.run = start_jobs
    monkeypatch.setattr(server, "_AGAIN_SECONDS", 0.0)
    instantiate_class("flareclust.engines.server.LostJobs", {}).handle_event(EventType.SYSTEM_BOOTSTRAP, fl_ctx)
    runner.run(fl_ctx)
    assert started == [fl_ctx, fl_ctx]
    assert completing == [engine], "the thread that ends jobs still runs; a second one would end each twice"
    waits = status == RunStatus.SUBMITTED
    assert (
        manager.get_job(job, fl_ctx).meta[JobMetaKey.STATUS.value] == (status if waits else RunStatus.ABANDONED).value
    )


def test_a_server_gives_memory_back_at_the_end_of_jobs(monkeypatch):
    asked = []
    monkeypatch.setattr(server.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=asked.append))
    component = instantiate_class("flareclust.engines.server.ReturnedMemory", {})
    for event in (EventType.JOB_STARTED, EventType.JOB_COMPLETED, EventType.JOB_ABORTED, EventType.SYSTEM_END):
        component.handle_event(event, FLContext())
    assert asked == [0, 0]
    monkeypatch.setattr(server.ctypes, "CDLL", lambda name: SimpleNamespace())
    component.handle_event(EventType.JOB_COMPLETED, FLContext())  # another C library than GNU's


def test_jobs_and_snapshots_lie_in_the_folder_in_which_the_server_was_started(kits, monkeypatch, tmp_path):
    found = resources(kits / "localhost")
    monkeypatch.chdir(tmp_path)
    store = instantiate_class(component(found, "job_store")["path"], {})
    manager = instantiate_class(
        "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", component(found, "job_manager")["args"]
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # what is relative must not move with a later change of folder
    uri = os.path.join(manager.uri_root, "a-job")
    store.create_object(uri, b"the job", {"name": "a-job"})
    assert (tmp_path / "jobs-storage" / "a-job" / "data").read_bytes() == b"the job"
    assert store.list_objects(manager.uri_root) == [uri]
    assert store.get_meta(uri) == {"name": "a-job"}
    # An absolute name means what it does for NVFlare, whose `deploy prepare` and NVFL_JOB_STORE_ROOT give such.
    store.create_object(str(tmp_path / "absolute" / "a-job"), b"", {})
    assert (tmp_path / "absolute" / "a-job").is_dir()
    persistor = found["snapshot_persistor"]["args"]
    for root, expected in (("snapshot-storage", tmp_path / "elsewhere"), (str(tmp_path / "prepared"), tmp_path)):
        args = persistor["storage"]["args"] | {"root_dir": root}
        snapshots = instantiate_class(persistor["storage"]["path"], args)
        snapshots.create_object(os.path.join(persistor["uri_root"], "a-run"), b"", {})
        assert (expected / Path(root).name / "a-run").is_dir()


def test_a_large_audit_log_is_begun_anew_without_a_lost_line(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_AUDIT_BYTES", 2000)
    monkeypatch.setattr(server, "_AUDIT_FILES", 3)
    auditor = Auditor(str(tmp_path / "audit.log"))
    written, end = 0, Event()

    def write() -> None:
        nonlocal written
        while not end.is_set():
            auditor.add_event("lead@hub.org", f"ask_{written}")
            written += 1

    thread = Thread(target=write)
    thread.start()
    try:
        while not (tmp_path / "audit.log.2").exists():
            server._rotate_audit(auditor)
    finally:
        end.set()
        thread.join()
    kept = [tmp_path / name for name in ("audit.log.2", "audit.log.1", "audit.log")]
    lines = [line for file in kept for line in file.read_text().splitlines()]
    assert [f"[A:ask_{number}]" in line for number, line in enumerate(lines)] == [True] * written
    for _ in range(3):
        auditor.add_event("lead@hub.org", "a" * 2000)
        server._rotate_audit(auditor)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "audit.log", "audit.log.1", "audit.log.2", "audit.log.3"
    ]  # fmt: skip
    assert auditor.add_event("lead@hub.org", "small")
    server._rotate_audit(auditor)
    assert "small" in (tmp_path / "audit.log").read_text()


def test_folders_of_downloads_that_are_over_go(tmp_path, monkeypatch):
    downloads = tmp_path / "transfer"
    for name in ("over", "under way", "new"):
        (downloads / name).mkdir(parents=True)
    (downloads / "under way" / "job").mkdir()
    long_ago = time.time() - 2 * server._DOWNLOAD_SECONDS
    for name in ("over", "under way"):
        os.utime(downloads / name, (long_ago, long_ago))
    monkeypatch.chdir(tmp_path)
    server.ReturnedMemory().handle_event(EventType.JOB_COMPLETED, FLContext())
    assert sorted(folder.name for folder in downloads.iterdir()) == ["new", "under way"]


def test_requests_are_written_down_where_audit_logs_cannot_be_renamed(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_AUDIT_BYTES", 0)
    auditor = Auditor(str(tmp_path / "audit.log"))

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(server.os, "replace", fail)
    with pytest.raises(PermissionError):
        server._rotate_audit(auditor)
    auditor.add_event("lead@hub.org", "still")
    assert "[A:still]" in (tmp_path / "audit.log").read_text()
