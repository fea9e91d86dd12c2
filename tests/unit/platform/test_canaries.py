"""What we rely on of NVFlare beyond its documentation, a line each, and what may go when NVFlare has mended it.

Try a new version of NVFlare with this file first. The first table has the names of `flareclust.platform._private`; the second the
attributes, methods and words that are used beside them. Where a test fails, its message says which part of ours is concerned.
Tests that show what NVFlare itself still does wrong stand with the parts, such as test_simulated.py, test_file_guard.py,
test_peers.py and test_server_connections.py, and at the end of this file.
"""

import ast
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from nvflare.apis.impl.controller import Controller
from nvflare.apis.impl.wf_comm_server import WFCommServer

from flareclust.platform import _private, controller, job_monitor, server, simulator_watch
from flareclust.platform._private import _NAMES
from flareclust.platform.controller import ClusteringController
from flareclust.sites import running
from tests.shape import INTERNAL, sources

#: By part of ours: what in it may go, and when.
MAY_GO = {
    "peers": "the guards of platform/peers.py, when NVFlare's server passes on no messages between kits, a site answers its own "
    "server only, and what it answers is a list",
    "receiver": "platform/receiver.py, when NVFlare takes replies up to a limit for each job, follows no references in them, and "
    "one that cannot be decoded is the fault of the site that sent it",
    "file_guard": "platform/file_guard.py, when messages cannot name files, or a process can say that its own may not",
    "admission": "the base class of SiteDeployer, when NVFlare has a deployer among its documented classes",
    "launcher": "_Handle of platform/launcher.py, when a site's killed process does not end everybody's job; the list of variables, "
    "when NVFlare passes on a list of its own",
    "filters": "EveryScope of platform/filters.py, when NVFlare gives each job the scope that it was let in with, in the simulator, too",
    "session": "_guard_downloads of platform/session.py, when NVFlare checks the names that a server gives to downloads; _close, when a "
    "session that is closed ends connections that come to be meanwhile",
    "log_streaming": "platform/log_streaming.py, when NVFlare streams listed files only and makes no paths of what a site sends",
    "simulated": "platform/simulated.py, when NVFlare's simulator gives each process its own name and starts sites without a second's wait",
    "controller": "set_communicator of platform/controller.py, when NVFlare hands on task_check_period, and imports PyTorch only for jobs "
    "that have sent tensors",
    "server": "WorkspaceStorage of platform/server.py, when a kit can name folders in its own workspace; _start_jobs, when NVFlare's server "
    "goes on to start jobs after an error; OutcomeWait, when a file of the kit can state the wait; _rotate_audit, "
    "when audit.log is limited as its other logs are; ReturningSites, when it tells jobs of a site that registers again, and operators "
    "of a kit that runs twice",
    "_private": "mend_connections of platform/_private.py, when NVFlare's waits go by time.monotonic and it "
    "forgets connections that are closed and their times",
    "job_monitor": "the words in platform/job_monitor.py and simulator_watch.py, when NVFlare's API says why a job failed",
    "executor": "handle_event of federation/nvflare_executor.py, when arrays travel in the reply itself by a setting",
}

Check = Callable[[Any], object]


def takes(*names: str) -> Check:
    """A function or class that can be called with arguments of these names, in this order."""
    return lambda value: (
        [name for name in inspect.signature(value).parameters if name != "self"][: len(names)] == [*names]
    )


def has(*names: str) -> Check:
    """An object with these attributes."""
    return lambda value: all(hasattr(value, name) for name in names)


def with_methods(**methods: tuple[str, ...]) -> Check:
    """A class whose methods have arguments of these names."""
    return lambda value: all(takes(*names)(getattr(value, method)) for method, names in methods.items())


def all_of(*checks: Check) -> Check:
    return lambda value: all(check(value) for check in checks)


def raised(value: Any) -> bool:
    return issubclass(value, Exception)


#: By name of `_private`: whose it is, and what we rely on.
PRIVATE: dict[str, tuple[str, Check]] = {
    "Adapter": (
        "receiver",
        with_methods(
            __init__=("cb", "my_info", "cell"),
            call=("future",),
            _send_response=("response", "stream_req_id", "req_id", "channel", "topic", "origin", "secure"),
        ),
    ),
    "AdminMessage": ("peers", all_of(takes("topic", "body"), has("get_header"))),
    "AppDeployer": (
        "admission",
        with_methods(deploy=("workspace", "job_id", "job_meta", "app_name", "app_data", "fl_ctx")),
    ),
    "BlobHandler": (
        "receiver",
        lambda value: value(print).max_blob_size and takes("future", "stream", "resume")(value.handle_blob_cb),
    ),
    "BlobSizeError": ("receiver", raised),
    "Cell": (
        "receiver",
        all_of(with_methods(get_fobs_context=("props",), update_fobs_context=("props",)), has("register_blob_cb")),
    ),
    "CellChannel": (
        "peers",
        has("AUX_COMMUNICATION", "CELLNET", "SERVER_COMMAND", "SERVER_PARENT_LISTENER", "HCI", "RETURN_ONLY"),
    ),
    "CellChannelTopic": ("peers", has("Bye")),
    "CellIdentityResolver": ("peers", with_methods(require_match=("fqcn", "peer_cn"))),
    "CellMessage": (
        "peers",
        all_of(takes("headers", "payload"), has("get_header", "set_header", "get_prop")),
    ),
    "CellMessageHeaderKeys": ("receiver", has("TOKEN")),
    "CellReturnCode": ("peers", has("UNAUTHENTICATED")),
    "AuditService": (
        "server",
        lambda value: (
            takes()(value.get_auditor)
            and in_source("nvflare.fuel.sec.audit", 'self.audit_file = open(audit_file_name, "a")', "with self._lock:")
        ),
    ),
    "AuthorizationService": (
        "admission",
        lambda value: (
            takes("ctx")(value.authorize)
            and in_source("nvflare.private.fed.client.admin", "AuthorizationService.authorize(authz_ctx)")
        ),
    ),
    "AuthzContext": ("admission", takes("right", "user", "submitter")),
    "Person": ("admission", takes("name", "org", "role")),
    "ClientAppRunner": (
        "peers",
        lambda value: (
            takes("args", "conf", "federated_client", "workspace")(value.create_run_manager)
            and "self.create_run_manager(" in inspect.getsource(value.create_client_runner)
        ),
    ),
    "ClientEngine": ("peers", lambda value: has("get_cell")(value) and "self.args = args" in inspect.getsource(value)),
    "ClientStatus": ("launcher", lambda value: value.STARTING not in (value.NOT_STARTED, value.STARTED, value.STOPPED)),
    "ClientRequestProcessors": (
        "peers",
        lambda value: (
            isinstance(value.request_processors, list)
            and {topic for one in value.request_processors for topic in one.get_topics()}
            >= {"sys.shell", "train.deploy", "train.delete_run", "train.start_job"}
            and "= ClientRequestProcessors.request_processors"
            in inspect.getsource(import_module("nvflare.private.fed.app.deployer.base_client_deployer"))
        ),
    ),
    "CommConfigurator": ("receiver", lambda value: isinstance(value().get_streaming_max_blob_size(), int)),
    "ConnManager": ("_private", with_methods(close_connection=("connection",))),
    "CoreCell": (
        "peers",
        lambda value: (
            isinstance(value.ALL_CELLS, dict)
            and with_methods(add_incoming_filter=("channel", "topic", "cb"), get_fobs_context=(), get_fqcn=())(value)
            and all(f"self.{name} = " in inspect.getsource(value) for name in ("req_reg", "communicator", "my_info"))
        ),
    ),
    "DEFAULT_STREAMING_MAX_BLOB_SIZE": ("receiver", lambda value: value > 2**30),
    "DataClassDecomposer": ("file_guard", lambda value: isinstance(value, type)),
    "Datum": ("file_guard", lambda value: value.file_datum("x").datum_type.name == "FILE"),
    "DatumManager": ("file_guard", with_methods(add_datum=("d",))),
    "DatumType": ("file_guard", lambda value: {one.name for one in value} == {"TEXT", "BLOB", "FILE"}),
    "Decomposer": (
        "file_guard",
        with_methods(supported_type=(), decompose=("target", "manager"), recompose=("data", "manager")),
    ),
    "Endpoint": ("peers", lambda value: value("north").name == "north"),
    "FOBSContextKey": ("receiver", has("CELL", "PASS_THROUGH")),
    "FQCN": ("peers", lambda value: value.join([value.ROOT_SERVER, "job"]) == "server.job"),
    "FileTransferModule": (
        "session",
        lambda value: (
            with_methods(
                pull_binary_file=("args", "ctx"), push_folder=("args", "ctx"), _tx_path=("tx_id", "folder_name")
            )(value)
            and "self._tx_path(" in inspect.getsource(value)
        ),
    ),
    "FqcnInfo": ("peers", lambda value: value("server.job").is_on_server and not value("north").is_on_server),
    "KEY_RECV_FILE": ("log_streaming", lambda value: isinstance(value, str)),
    "KEY_RECV_PATH": ("log_streaming", lambda value: isinstance(value, str)),
    "MainProcessMonitor": ("simulated", with_methods(run=("main_func", "run_dir"))),
    "MessageHeaderKey": (
        "peers",
        has("MSG_TYPE", "ORIGIN", "DESTINATION", "CHANNEL", "TOPIC", "REQ_ID", "SECURE", "ORIGINAL_HEADERS"),
    ),
    "MessagePropKey": ("peers", has("ENDPOINT")),
    "MessageType": ("peers", has("REQ", "RETURN")),
    "PROCESS_EXIT_REASON": (
        "launcher",
        lambda value: set(job_monitor._NOT_ALLOWED) <= {*value.values()} and all(isinstance(key, int) for key in value),
    ),
    "RequestHeader": ("peers", has("JOB_ID")),
    "RequestProcessor": ("peers", with_methods(get_topics=(), process=("req", "app_ctx"))),
    "STREAM_CHANNEL": ("receiver", lambda value: isinstance(value, str)),
    "STREAM_ERROR_TOPIC": ("receiver", lambda value: isinstance(value, str)),
    "StatsPoolManager": (
        "_private",
        lambda value: (
            has("update_lock", "cat_bins")(attribute("nvflare.fuel.f3.stats_pool", "new_time_pool")("times"))
            and takes("name")(value.get_pool)
            and in_source(
                "nvflare.fuel.f3.cellnet.core_cell", '"Msg_Travel", "Time taken', 'category=f"{origin_name}#{'
            )
        ),
    ),
    "Scope": (
        "filters",
        with_methods(
            set_name=("name",), add_task_data_filter=("f", "direction"), add_task_result_filter=("f", "direction")
        ),
    ),
    "StreamError": ("receiver", lambda value: raised(value) and issubclass(_private.BlobSizeError, value)),
    "StreamFuture": ("receiver", has("result", "get_headers")),
    "StreamHeaderKey": ("receiver", has("CHANNEL", "TOPIC", "STREAM_REQ_ID", "PAYLOAD_ENCODING", "ERROR_TYPE")),
    "SysCommandTopic": ("peers", has("SYS_INFO", "REPORT_RESOURCES", "REPORT_VERSION")),
    "TOPIC_STREAM_ABORT": ("peers", lambda value: isinstance(value, str)),
    "TOPIC_STREAM_REQUEST": ("peers", lambda value: isinstance(value, str)),
    "TrainingTopic": (
        "peers",
        has(
            *(
                "CHECK_STATUS",
                "GET_SCOPES",
                "NOTIFY_JOB_STATUS",
                "CHECK_RESOURCE",
                "ALLOCATE_RESOURCE",
                "CANCEL_RESOURCE",
            ),
            *("DEPLOY", "START", "START_JOB", "SET_JOB_ID", "ABORT", "ABORT_TASK", "SHUTDOWN", "RESTART", "DELETE_RUN"),
        ),
    ),
    "client_runner": ("simulated", has("time")),
    "contains_lazy_download_ref": ("receiver", lambda value: value({"a": [1]}) is False),
    "decode_payload": ("receiver", takes("message", "encoding_key", "fobs_ctx")),
    "error_reply": ("peers", lambda value: value("no").body == "no"),
    "fobs": (
        "file_guard",
        lambda value: (
            isinstance(value._decomposers, dict)
            and takes("obj", "manager")(value.serialize)
            and takes("data", "manager")(value.deserialize)
            and has("FOBS_TYPE", "FOBS_DATA", "FOBS_DECOMPOSER")(value)
        ),
    ),
    "get_class_name": ("file_guard", lambda value: value(_private.Datum) == "nvflare.fuel.utils.fobs.datum.Datum"),
    "is_valid_admin_client_name": ("peers", lambda value: not value("north")),
    "lobs": (
        "file_guard",
        lambda value: (
            takes("marker", "dot", "size")(value._Header)
            and value.HEADER_STRUCT.size == value.HEADER_LEN
            and has("MARKER_MAIN", "MARKER_DATUM_TEXT", "MARKER_DATUM_BLOB", "MARKER_DATUM_FILE", "DATUM_ID_LEN")(value)
            and has("dump_to_bytes", "load_from_bytes")(value)
        ),
    ),
    "make_cell_reply": ("peers", takes("rc", "error")),
    "simulator": (
        "simulated",
        lambda value: takes("simulator_parser")(value.define_simulator_parser) and has("run_simulator")(value),
    ),
    "simulator_runner": (
        "simulated",
        lambda value: (
            has("subprocess", "time")(value)
            and "self.build_ctx = build_ctx" in inspect.getsource(value.SimulatorClientRunner)
            and takes("process", "timeout")(value.SimulatorClientRunner._cleanup_process)
        ),
    ),
    "simulator_worker": ("simulated", all_of(has("time", "parse_arguments"), lambda value: takes("args")(value.main))),
    "stream_utils": ("simulated", has("MILLION", "sid_base")),
    "waiter_utils": ("_private", lambda value: "start = time.time()" in inspect.getsource(value.conditional_wait)),
}


def in_source(module: str, *words: str) -> bool:
    """Whether a module of NVFlare has all of these words."""
    source = inspect.getsource(import_module(module))
    return all(one in source for one in words)


def attribute(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


#: What else we rely on: whose it is, and what holds.
BESIDE: dict[str, tuple[str, Callable[[], object]]] = {
    "a server starts jobs in one loop": (
        "server",
        lambda: (
            in_source(
                "nvflare.private.fed.server.job_runner", "while not self.ask_to_stop:", "self.running_jobs[job_id] = "
            )
            and in_source(
                "nvflare.private.fed.server.job_runner", "Thread(target=self._job_complete_process, args=[engine])"
            )
            and in_source("nvflare.private.fed.app.deployer.server_deployer", "job_runner.run(fl_ctx)")
        ),
    ),
    "a server tells its jobs of lost sites": (
        "server",
        lambda: (
            takes("job_id", "client_name", "reason")(
                attribute("nvflare.private.fed.server.server_engine", "ServerEngine").notify_dead_job
            )
            and in_source(
                "nvflare.private.fed.server.server_engine",
                *(
                    "self.server = server",
                    "self.run_processes[job.job_id] = {",
                    "RunProcessKey.PARTICIPANTS: job_clients",
                ),
                "job_clients[client.token] = client",
            )
            and in_source(
                "nvflare.private.fed.server.fed_server",
                *("self.client_manager = ClientManager(", "fire_event(EventType.CLIENT_REGISTER_PROCESSED"),
            )
        ),
    ),
    "a heartbeat under another token": (
        "server",
        lambda: (
            in_source("nvflare.private.fed.server.client_manager", "FLContextKey.COMMUNICATION_ERROR", "another token")
            and in_source("nvflare.private.fed.server.fed_server", "fire_event(EventType.CLIENT_HEARTBEAT_PROCESSED")
        ),
    ),
    "how long a server waits for the outcome at sites": (
        "server",
        lambda: (
            attribute("nvflare.fuel.utils.config_service", "ENV_VAR_PREFIX")
            + attribute("nvflare.apis.fl_constant", "ConfigVarName").CLIENT_OUTCOME_WAIT_TIMEOUT.upper()
            == server._OUTCOME_WAIT
            and in_source(
                "nvflare.private.fed.server.job_runner", "get_float_var(", "ConfigVarName.CLIENT_OUTCOME_WAIT_TIMEOUT"
            )
        ),
    ),
    "what a process keeps of connections": (
        "_private",
        lambda: (
            attribute("nvflare.fuel.f3.sfm.sfm_endpoint", "SfmEndpoint")(_private.Endpoint("north")).connections == []
            and in_source("nvflare.fuel.f3.sfm.conn_manager", "self.sfm_endpoints[endpoint_name] = sfm_endpoint")
        ),
    ),
    "a session has the drivers of its connections": (
        "session",
        lambda: (
            in_source("nvflare.fuel.hci.client.api", "self.cell = Cell(")
            and in_source("nvflare.fuel.f3.cellnet.cell", "self.core_cell = CoreCell(")
            and in_source("nvflare.fuel.f3.communicator", "self.conn_manager = ConnManager(")
            and in_source("nvflare.fuel.f3.sfm.conn_manager", "self.connectors: ", "connector.driver.shutdown()")
        ),
    ),
    "the end of a job's downloads": (
        "controller",
        lambda: in_source("nvflare.apis.impl.wf_comm_server", "self._cleanup_inflight_tensor_downloads(fl_ctx)"),
    ),
    "the communicator's pace": ("controller", lambda: WFCommServer(task_check_period=0.5)._task_check_period == 0.5),
    "names of a connection are compared": (
        "peers",
        lambda: in_source("nvflare.fuel.f3.sfm.conn_manager", "self.identity_resolver.require_match("),
    ),
    "filters see all that comes in": (
        "peers",
        lambda: in_source("nvflare.fuel.f3.cellnet.core_cell", "self.in_filter_reg.find("),
    ),
    "the start is announced before anybody is answered": (
        "peers",
        lambda: (
            in_source("nvflare.private.fed.app.client.client_train", "fire_event(EventType.SYSTEM_BOOTSTRAP")
            and in_source("nvflare.private.fed.app.deployer.server_deployer", "fire_event(EventType.SYSTEM_BOOTSTRAP")
        ),
    ),
    "the deployer is a component": (
        "admission",
        lambda: in_source("nvflare.private.fed.client.client_engine", "get_component(SystemComponents.APP_DEPLOYER)"),
    ),
    "a job's process": (
        "launcher",
        lambda: (
            with_methods(__init__=("process", "pid", "process_adapter"), terminate=(), poll=(), wait=())(
                attribute("nvflare.app_common.job_launcher.process_launcher", "ProcessHandle")
            )
            and with_methods(launch_job=("job_meta", "fl_ctx"), get_command=("job_meta", "fl_ctx"))(
                attribute("nvflare.app_common.job_launcher.process_launcher", "ProcessJobLauncher")
            )
            and takes("cmd_args", "env")(attribute("nvflare.utils.process_utils", "spawn_process"))
            and takes("job_args")(attribute("nvflare.utils.job_launcher_utils", "get_credential_env"))
            and takes("app_custom_folder", "new_env")(
                attribute("nvflare.utils.job_launcher_utils", "add_custom_dir_to_path")
            )
        ),
    ),
    "where a log of a site goes": (
        "log_streaming",
        lambda: with_methods(
            _effective_dest_dir=(),
            _on_chunk_received=("data", "stream_ctx", "fl_ctx"),
            _on_stream_done=("stream_ctx", "fl_ctx"),
            _get_trusted_stream_identity=("fl_ctx",),
        )(attribute("nvflare.app_common.logging.job_log_receiver", "JobLogReceiver")),
    ),
    "what a site puts into its jobs": (
        "log_streaming",
        lambda: (
            with_methods(_on_before_job_launch=("event_type", "fl_ctx"), _atomic_write_json=("path", "data"))(
                attribute("nvflare.app_common.logging.site_log_streamer", "SiteLogStreamer")
            )
            and in_source("nvflare.app_common.logging.site_log_streamer", '"id": "auto_log_streamer"')
        ),
    ),
    "paths of what is stored": (
        "server",
        lambda: with_methods(_object_path=("uri",))(
            attribute("nvflare.app_common.storages.filesystem_storage", "FilesystemStorage")
        ),
    ),
    "arrays in the reply itself": (
        "executor",
        lambda: in_source("nvflare.fuel.utils.fobs.decomposers.via_downloader", '"native"'),
    ),
    "words of a server whose job fails": (
        "job_monitor",
        lambda: (
            in_source("nvflare.private.fed.server.server_runner", "FATAL_SYSTEM_ERROR received: ")
            and in_source("nvflare.apis.impl.wf_comm_server", job_monitor._POLICY, "is deemed disconnected")
            and in_source("nvflare.private.fed.server.fed_server", "due to reported failure from {client}: {reason}")
        ),
    ),
    "words of a simulator that loses a site": (
        "job_monitor",
        lambda: all(
            simulator_watch.LOST_SITE.search(words) and in_source(f"nvflare.private.fed.app.simulator.{module}", source)
            for module, source, words in (
                ("simulator_runner", "Communication error with client {", "Communication error with client site-1: x"),
                ("simulator_runner", *["Failed to create connection to the child process"] * 2),
                ("simulator_worker", *["Could not connect to the server cell"] * 2),
            )
        ),
    ),
    "the programs of kits": (
        "file_guard",
        lambda: all(find_spec(name) for name in (*running._PARENTS, *running._PROGRAMS.values())),
    ),
}


def concerned(part: str) -> str:
    return f"NVFlare is another one here; look at what relies on it. May go: {MAY_GO[part]}"


def test_each_private_name_has_a_line():
    assert {*PRIVATE} == {*_NAMES}
    assert {part for part, _ in (*PRIVATE.values(), *BESIDE.values())} == {*MAY_GO}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_name_is_what_we_rely_on(name):
    part, check = PRIVATE[name]
    assert check(getattr(_private, name)), concerned(part)


@pytest.mark.parametrize("name", BESIDE)
def test_what_we_rely_on_beside_names_holds(name):
    part, holds = BESIDE[name]
    assert holds(), concerned(part)


def test_a_name_that_nvflare_lacks_is_an_error_with_its_place(monkeypatch):
    monkeypatch.delattr("nvflare.fuel.f3.cellnet.cell.Cell")
    with pytest.raises(ImportError, match=r"NVFlare \S+ has no nvflare\.fuel\.f3\.cellnet\.cell\.Cell"):
        _ = _private.Cell
    assert _private.optional("Cell", None) is None
    with pytest.raises(AttributeError, match="has no Sell"):
        _ = _private.Sell


def test_no_other_module_imports_what_nvflare_does_not_promise():
    below = {"flareclust.federation.nvflare_executor"}  # of a lower package
    for source in (one for one in sources() if one.module not in below):
        for node in ast.walk(source.tree):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            nvflares = [module for module in modules if module.split(".")[0] == "nvflare"]
            advice = f"{source.path}: take it from flareclust.platform._private"
            assert not any(INTERNAL.match(module) for module in nvflares), advice
            assert not (nvflares and any(alias.name.startswith("_") for alias in node.names)), advice


# ---- what NVFlare does wrong today ----


def test_nvflare_does_not_hand_on_the_pace_of_a_controller():
    """If this fails, `set_communicator` of flareclust.platform.controller can go."""
    communicator = WFCommServer()
    Controller.set_communicator(ClusteringController("feca", task_check_period=0.05), communicator)
    assert communicator._task_check_period != 0.05


def test_nvflare_imports_pytorch_at_the_end_of_each_job():
    """If this fails, so can what `set_communicator` does about the clean-up."""
    assert f"from {controller._TENSORS} import" in inspect.getsource(WFCommServer._cleanup_inflight_tensor_downloads)
