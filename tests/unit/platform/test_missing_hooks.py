"""Where NVFlare lacks what a protection changes, jobs that rely on it are refused with a sentence, and others run with a warning."""

import io
import json
import sys
import zipfile
from types import ModuleType, SimpleNamespace

import pytest
from nvflare.apis.controller_spec import TaskCompletionStatus
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.signal import Signal
from nvflare.apis.workspace import Workspace

from flareclust.platform import _private, admission
from flareclust.platform._private import (
    AppDeployer,
    BlobHandler,
    CellIdentityResolver,
    ClientRequestProcessors,
    CoreCell,
)
from flareclust.platform.admission import ServerValidator, SiteDeployer
from flareclust.platform.controller import ClusteringController
from flareclust.platform.filters import UNBOUNDED, SiteTaskPolicy, policy_of_site
from flareclust.platform.kit import allow_classes
from flareclust.privacy.job_sums import SECURE_SUMS, SecureSums
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.protocol.task import REFUSED, ROUND, StepName
from flareclust.sites.policy_file import write_policy
from tests.forked import run_each
from tests.unit.platform.peer_cases import Cell, starting

CONFIG = "config/config_fed_client.json"
PLAIN = "{}"
SUMS = json.dumps({"components": [{"id": "secure_sums", "path": "flareclust.privacy.job_sums.SecureSums", "args": {}}]})
DROPS = "cannot drop what others of the federation must not send"
REMEDY = "install the one that it requires, and start this process anew"


@pytest.fixture
def kit(tmp_path, monkeypatch):
    """A kit without a policy, which is the current folder as for a server."""
    for name in ("startup", "local"):
        (tmp_path / name).mkdir(mode=0o755)
    allow_classes(tmp_path / "local")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def unpacked(monkeypatch):
    """The jobs that NVFlare's deployer unpacks; its processors of requests are put back afterwards."""
    seen: list[str] = []
    monkeypatch.setattr(AppDeployer, "deploy", lambda self, w, job, m, a, data, c: seen.append(job))
    processors = list(ClientRequestProcessors.request_processors)
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", processors)
    return seen


def site_says(kit, settings, cell):
    """Return what a started site says of a job with these settings; nothing where it unpacks it."""
    deployer, packed = SiteDeployer(), io.BytesIO()
    deployer.handle_event(EventType.SYSTEM_BOOTSTRAP, starting(kit, cell))
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(CONFIG, settings)
    return deployer.deploy(Workspace(str(kit), "north"), "job", {}, "app", packed.getvalue(), starting(kit, cell))


def server_says(kit, settings, cell):
    """Return the same of a server."""
    validator = ServerValidator()
    validator.handle_event(EventType.SYSTEM_BOOTSTRAP, starting(kit, cell))
    (kit / "job" / "config").mkdir(parents=True, exist_ok=True)
    (kit / "job" / CONFIG).write_text(settings)
    return validator.validate(str(kit / "job"))[0]


#: What is taken away, where, and what a process says is missing.
GONE = {
    "the processors of requests": (ClientRequestProcessors, "request_processors", "request_processors"),
    "filters of messages": (CoreCell, "add_incoming_filter", "no CoreCell.add_incoming_filter"),
    "names of sessions": (CellIdentityResolver, "require_match", "require_match"),
}


@pytest.mark.parametrize("gone", GONE)
def test_a_site_with_a_policy_runs_no_job_unguarded(gone, kit, unpacked, monkeypatch):
    write_policy(kit / "local", Policy())
    assert site_says(kit, PLAIN, Cell()) == ""
    owner, name, words = GONE[gone]
    monkeypatch.delattr(owner, name)
    said = site_says(kit, PLAIN, Cell())
    assert said.startswith(f"{DROPS} (")
    assert words in said
    assert said.endswith(f"{REMEDY} (its policy)")
    assert len(unpacked) == 1


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("says", [site_says, server_says])
def test_no_job_with_secure_sums_runs_unguarded_and_another_does_with_a_warning(says, gone, kit, monkeypatch, caplog):
    assert says(kit, SUMS, Cell()) == ""
    owner, name, _ = GONE[gone]
    monkeypatch.delattr(owner, name)
    said = says(kit, SUMS, Cell()).removeprefix("the server ")
    assert said.startswith(f"{DROPS} (")
    assert said.endswith(f"{REMEDY} (the job's secure sums)")
    caplog.clear()
    assert says(kit, PLAIN, Cell()) == ""
    (warning,) = (record.getMessage() for record in caplog.records if "the job runs" in record.getMessage())
    assert DROPS in warning


@pytest.mark.parametrize("says", [site_says, server_says])
def test_what_only_the_running_process_lacks_counts_as_well(says, kit):
    network = Cell()
    del network.core_cell.add_incoming_filter
    assert "no attribute 'add_incoming_filter'" in says(kit, SUMS, network)
    (noted,) = json.loads((kit / "protection.json").read_text())["problems"]
    assert noted.startswith(DROPS), "`flareclust site check` shows it"


def test_a_list_without_processors_is_none(kit, monkeypatch):
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", [])
    assert "with 0 processors of requests" in site_says(kit, SUMS, Cell())


@pytest.mark.parametrize("component", [SiteDeployer, ServerValidator])
def test_a_process_whose_start_was_not_announced_is_not_guarded(component, kit):
    assert "NVFlare has not announced its start" in admission._guard_problem(component()._unguarded, "its policy")


def test_a_policy_that_cannot_be_read_is_one(kit):
    (kit / "local" / "privacy.json").write_text("[")
    assert policy_of_site(kit / "local") == "its policy"


@pytest.mark.parametrize(("relies", "stopped"), [("policy", True), ("sums", True), (None, False)])
def test_a_job_that_cannot_be_guarded_in_its_own_process_is_stopped_there(relies, stopped, kit, monkeypatch):
    if relies == "policy":
        write_policy(kit / "local", Policy())
    components = {SECURE_SUMS: SecureSums()} if relies == "sums" else {}
    network, reasons = Cell(), []
    del network.core_cell.add_incoming_filter
    engine = SimpleNamespace(
        get_cell=lambda: network, get_component=components.get, get_workspace=lambda: Workspace(str(kit), "north")
    )
    deployer = SiteDeployer()
    monkeypatch.setattr(deployer, "system_panic", lambda reason, fl_ctx: reasons.append(reason))
    deployer.handle_event(EventType.ABOUT_TO_START_RUN, starting(kit, network, engine))
    assert len(reasons) == stopped
    assert all(reason.startswith(f"this site {DROPS} (") for reason in reasons)


def test_a_site_without_nvflares_deployer_unpacks_no_job(kit, monkeypatch, unpacked):
    monkeypatch.setattr(admission, "_AppDeployer", admission.AppDeployerSpec)
    said = site_says(kit, PLAIN, Cell())
    assert said.startswith("cannot unpack the files of jobs (no AppDeployer): NVFlare ")
    assert unpacked == []


# ---- what the server receives ----


def started(context, monkeypatch, **settings):
    """Return a controller that has started, and why it stops the job."""
    _, aggregator = get("feca").build(3)
    context.get_engine().get_component.return_value = aggregator
    controller, reasons = ClusteringController("feca", **settings), []
    monkeypatch.setattr(controller, "system_panic", lambda reason, fl_ctx: reasons.append(reason))
    controller.start_controller(context)
    return controller, reasons


def of_job(monkeypatch):
    """Give the job's server a cell as far as the receiver changes it; return it."""
    cell = object.__new__(_private.Cell)
    core = SimpleNamespace(
        get_fobs_context=lambda: {"cell": cell},
        req_reg=SimpleNamespace(find=lambda channel, topic: SimpleNamespace(cb=None)),
        add_incoming_filter=lambda channel, topic, cb: None,
        my_info=None,
    )
    cell.core_cell, cell.byte_receiver = core, SimpleNamespace(register_callback=lambda channel, topic, cb: None)
    monkeypatch.setattr(CoreCell, "ALL_CELLS", {"server.job": core})
    return cell


#: What is taken away from the cell of a job, and from NVFlare.
UNRECEIVED = {
    "the list of cells": lambda cell, patch: patch.delattr(CoreCell, "ALL_CELLS"),
    "the cell": lambda cell, patch: patch.setattr(CoreCell, "ALL_CELLS", {}),
    "the callback of replies": lambda cell, patch: patch.setattr(cell.core_cell, "req_reg", None),
    "the receiver of streams": lambda cell, patch: patch.setattr(cell, "byte_receiver", SimpleNamespace()),
    "filters of messages": lambda cell, patch: patch.delattr(cell.core_cell, "add_incoming_filter"),
    "the limit": lambda cell, patch: patch.setattr(BlobHandler, "__init__", lambda self, cb: None),
}


@pytest.mark.parametrize("gone", UNRECEIVED)
def test_no_job_with_secure_sums_runs_without_the_receiver(gone, context, monkeypatch):
    cell = of_job(monkeypatch)
    controller, reasons = started(context, monkeypatch, secure_sums=True)
    assert controller._problem(context) is None
    UNRECEIVED[gone](cell, monkeypatch)
    controller, reasons = started(context, monkeypatch, secure_sums=True)
    controller.control_flow(Signal(), context)
    (reason,) = reasons
    assert reason.startswith("the server cannot keep the replies of sites within bounds (")
    assert reason.endswith(f"{REMEDY} (the job's secure sums)")


def test_another_job_runs_with_a_warning_and_says_so_to_sites(context, monkeypatch, caplog):
    controller, reasons = started(context, monkeypatch)
    assert (controller._problem(context), reasons) == (None, [])
    assert "cannot keep the replies of sites within bounds" in caplog.text
    sent = []

    def broadcast(task, *_, **__):
        sent.append(from_shareable(task.data))
        task.completion_status = TaskCompletionStatus.TIMEOUT

    monkeypatch.setattr(controller, "broadcast", broadcast)
    controller._ask(StepName.CLUSTER, 0, {}, ["north"], context, Signal())
    assert sent[0].meta[UNBOUNDED] is True


def test_a_site_with_a_policy_answers_no_server_without_the_receiver(context):
    task = DXO(DataKind.WEIGHTS, data={}, meta={ROUND: 0, UNBOUNDED: True}).to_shareable()
    context.set_prop(FLContextKey.TASK_NAME, StepName.CLUSTER, private=True, sticky=False)
    refused = from_shareable(SiteTaskPolicy().process(task, context)).meta[REFUSED]
    assert refused.startswith(
        "answers no server that does not keep replies within bounds; its operator installs the NVFlare"
    )


def test_a_communicator_that_looks_at_tasks_in_its_own_time_is_a_warning(caplog):
    communicator = WFCommServer()
    del communicator._task_check_period
    ClusteringController("feca").set_communicator(communicator)
    assert "NVFlare looks at tasks in its own time" in caplog.text


@pytest.mark.parametrize("used", [False, True])
def test_the_end_of_a_job_loads_no_pytorch_unless_tensors_were_sent(monkeypatch, used):
    cleaned = []
    monkeypatch.setattr(WFCommServer, "_cleanup_inflight_tensor_downloads", lambda self, fl_ctx: cleaned.append(fl_ctx))
    monkeypatch.delitem(sys.modules, "nvflare.app_opt.pt.tensor_downloader", raising=False)
    communicator, fl_ctx = WFCommServer(), FLContext()
    ClusteringController("feca").set_communicator(communicator)
    if used:
        monkeypatch.setitem(sys.modules, "nvflare.app_opt.pt.tensor_downloader", ModuleType("tensor_downloader"))
    communicator.finalize_run(fl_ctx)
    assert cleaned == [fl_ctx] * used


# ---- what messages hold ----

_UNGUARDED = """
import io, json, os, sys, zipfile
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.workspace import Workspace
from flareclust.platform import _private
from flareclust.platform.admission import ServerValidator, SiteDeployer
from flareclust.platform.filters import SiteTaskPolicy
from pathlib import Path

def case(owner, name, folder):
    delattr(getattr(_private, owner), name)
    kit, packed = Path(folder), io.BytesIO()
    os.chdir(kit)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("config/config_fed_client.json", "{}")
    fl_ctx = FLContext()
    fl_ctx.set_prop(FLContextKey.TASK_NAME, "cluster", private=True, sticky=False)
    said = [
        SiteDeployer().deploy(Workspace(str(kit), "north"), "job", {}, "app", packed.getvalue(), fl_ctx),
        ServerValidator().validate(str(kit))[0].removeprefix("the server "),
        SiteTaskPolicy().process(Shareable(), fl_ctx)["DXO"]["meta"]["refused"],
    ]
    assert all(one.startswith("cannot keep files out of messages (") for one in said), said
"""


def test_no_job_runs_where_messages_could_hold_files(kit):
    hooks = (("lobs", "_Header"), ("DatumManager", "add_datum"), ("fobs", "_decomposers"))
    assert run_each(_UNGUARDED, [[owner, name, str(kit)] for owner, name in hooks]) == [0, 0, 0]
