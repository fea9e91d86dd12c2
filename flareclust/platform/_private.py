"""Names of NVFlare that its documentation does not promise: the one place that knows where they are.

Each is imported when it is asked for, since some bring all of NVFlare's client, server or simulator. What we rely on of each, and
what may go when NVFlare has mended it, stands in tests/unit/platform/test_canaries.py.
"""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import wraps
from importlib.metadata import version
from pkgutil import resolve_name
from types import MappingProxyType, SimpleNamespace
from typing import Any

#: By module, the names that are called here as there.
_MODULES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        # the network of processes
        "nvflare.fuel.f3.cellnet.cell": ("Adapter", "Cell"),
        "nvflare.fuel.f3.streaming.blob_streamer": ("BlobHandler",),
        "nvflare.fuel.f3.streaming.stream_types": ("BlobSizeError", "StreamError", "StreamFuture"),
        "nvflare.fuel.f3.cellnet.defs": (
            "CellChannel",
            "CellChannelTopic",
            "MessageHeaderKey",
            "MessagePropKey",
            "MessageType",
        ),
        "nvflare.fuel.f3.cellnet.identity": ("CellIdentityResolver",),
        "nvflare.fuel.f3.comm_config": ("CommConfigurator", "DEFAULT_STREAMING_MAX_BLOB_SIZE"),
        "nvflare.fuel.f3.cellnet.core_cell": ("CoreCell",),
        "nvflare.fuel.f3.endpoint": ("Endpoint",),
        "nvflare.fuel.f3.cellnet.fqcn": ("FQCN", "FqcnInfo"),
        "nvflare.fuel.f3.streaming.stream_const": ("STREAM_CHANNEL", "STREAM_ERROR_TOPIC", "StreamHeaderKey"),
        "nvflare.fuel.f3.cellnet.utils": ("decode_payload",),
        "nvflare.fuel.utils.admin_name_utils": ("is_valid_admin_client_name",),
        # how messages are encoded
        "nvflare.fuel.utils.fobs.decomposer": ("DataClassDecomposer",),
        "nvflare.fuel.utils.fobs.datum": ("Datum", "DatumManager", "DatumType"),
        "nvflare.fuel.utils.fobs": ("Decomposer", "FOBSContextKey"),
        "nvflare.fuel.utils.fobs.decomposers.via_downloader": ("contains_lazy_download_ref",),
        "nvflare.fuel.utils.class_loader": ("get_class_name",),
        # the parent processes of server and sites, and what is asked of them
        "nvflare.private.defs": ("CellMessageHeaderKeys", "RequestHeader", "SysCommandTopic", "TrainingTopic"),
        "nvflare.private.fed.utils.app_deployer": ("AppDeployer",),
        "nvflare.private.fed.client.client_app_runner": ("ClientAppRunner",),
        "nvflare.private.fed.client.client_engine": ("ClientEngine",),
        "nvflare.private.fed.client.client_status": ("ClientStatus",),
        "nvflare.private.fed.client.client_req_processors": ("ClientRequestProcessors",),
        "nvflare.fuel.common.exit_codes": ("PROCESS_EXIT_REASON",),
        "nvflare.private.fed.client.admin": ("RequestProcessor",),
        "nvflare.private.privacy_manager": ("Scope",),
        "nvflare.private.stream_runner": ("TOPIC_STREAM_ABORT", "TOPIC_STREAM_REQUEST"),
        "nvflare.private.admin_defs": ("error_reply",),
        "nvflare.fuel.sec.audit": ("AuditService",),
        "nvflare.fuel.sec.authz": ("AuthorizationService", "AuthzContext", "Person"),
        # downloads in a session, and the simulator
        "nvflare.fuel.hci.client.file_transfer": ("FileTransferModule",),
        "nvflare.fuel.f3.mpm": ("MainProcessMonitor",),
        "nvflare.fuel.f3.sfm.conn_manager": ("ConnManager",),
        "nvflare.fuel.f3.stats_pool": ("StatsPoolManager",),
    }
)

#: By the name that they have here, those that are called otherwise there, and modules.
_OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "CellMessage": "nvflare.fuel.f3.message:Message",
        "CellReturnCode": "nvflare.fuel.f3.cellnet.defs:ReturnCode",
        "make_cell_reply": "nvflare.fuel.f3.cellnet.utils:make_reply",
        "fobs": "nvflare.fuel.utils.fobs.fobs",
        "lobs": "nvflare.fuel.utils.fobs.lobs",
        "AdminMessage": "nvflare.private.admin_defs:Message",
        "KEY_RECV_FILE": "nvflare.app_common.logging.job_log_receiver:_KEY_RECV_FILE",
        "KEY_RECV_PATH": "nvflare.app_common.logging.job_log_receiver:_KEY_RECV_PATH",
        "client_runner": "nvflare.private.fed.client.client_runner",
        "simulator": "nvflare.private.fed.app.simulator.simulator",
        "simulator_runner": "nvflare.private.fed.app.simulator.simulator_runner",
        "simulator_worker": "nvflare.private.fed.app.simulator.simulator_worker",
        "stream_utils": "nvflare.fuel.f3.streaming.stream_utils",
        "waiter_utils": "nvflare.fuel.utils.waiter_utils",
    }
)

#: What is in the names of processes of jobs and of sessions, and of nothing that connects again.
_OF_ONE_USE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_NAMES = {**{name: f"{module}:{name}" for module, names in _MODULES.items() for name in names}, **_OTHERS}


def optional(name: str, default: Any) -> Any:
    """Return what a name stands for, or the default where NVFlare does not have it."""
    try:
        return __getattr__(name)
    except ImportError:
        return default


def unprotected(what: str, why: object) -> str:
    """Return that a process cannot do what protects it, in words that follow its name or that of its site."""
    return (
        f"cannot {what} ({why}): NVFlare {version('nvflare')} is not the version that this flareclust protects; install the "
        "one that it requires, and start this process anew"
    )


def mend_connections() -> None:
    """Let this process wait for messages as long as it says, and forget processes of jobs and sessions whose connections are closed.

    NVFlare waits longer where the clock is set back, and keeps what it knows of each process for ever: 4 MB in 100 jobs at a server.
    """
    optional("waiter_utils", SimpleNamespace()).time = SimpleNamespace(time=time.monotonic, sleep=time.sleep)
    manager = optional("ConnManager", None)
    close = getattr(manager, "close_connection", None)
    if close is None or hasattr(close, "__wrapped__"):
        return

    @wraps(close)
    def close_connection(self: Any, connection: Any) -> None:
        close(self, connection)
        with suppress(AttributeError, KeyError):
            _forget_closed(self.sfm_endpoints)

    manager.close_connection = close_connection


def _forget_closed(endpoints: dict[str, Any]) -> None:
    for name in filter(_OF_ONE_USE.search, list(endpoints)):
        if not endpoints[name].connections:
            endpoints.pop(name, None)
    times = optional("StatsPoolManager", None).get_pool("msg_travel")
    with times.update_lock:
        for category in filter(_OF_ONE_USE.search, list(times.cat_bins)):
            if category.partition("#")[0] not in endpoints:
                del times.cat_bins[category]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"{__name__} has no {name}")
    try:
        return resolve_name(_NAMES[name])
    except (ImportError, AttributeError) as error:
        raise ImportError(f"NVFlare {version('nvflare')} has no {_NAMES[name].replace(':', '.')}") from error
