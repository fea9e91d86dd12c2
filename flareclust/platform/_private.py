"""Names of NVFlare that its documentation does not promise: the one place that knows where they are.

Each is imported when it is asked for, since some bring all of NVFlare's client, server or simulator. What we rely on of each, and
what may go when NVFlare has mended it, stands in tests/unit/platform/test_canaries.py.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

#: By the name that it has here: its module, and what it is called there; modules without the latter.
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        # the network of processes
        "Adapter": "nvflare.fuel.f3.cellnet.cell:Adapter",
        "BlobHandler": "nvflare.fuel.f3.streaming.blob_streamer:BlobHandler",
        "BlobSizeError": "nvflare.fuel.f3.streaming.stream_types:BlobSizeError",
        "Cell": "nvflare.fuel.f3.cellnet.cell:Cell",
        "CellChannel": "nvflare.fuel.f3.cellnet.defs:CellChannel",
        "CellChannelTopic": "nvflare.fuel.f3.cellnet.defs:CellChannelTopic",
        "CellIdentityResolver": "nvflare.fuel.f3.cellnet.identity:CellIdentityResolver",
        "CellMessage": "nvflare.fuel.f3.message:Message",
        "CellMessageHeaderKeys": "nvflare.private.defs:CellMessageHeaderKeys",
        "CellReturnCode": "nvflare.fuel.f3.cellnet.defs:ReturnCode",
        "CommConfigurator": "nvflare.fuel.f3.comm_config:CommConfigurator",
        "CoreCell": "nvflare.fuel.f3.cellnet.core_cell:CoreCell",
        "DEFAULT_STREAMING_MAX_BLOB_SIZE": "nvflare.fuel.f3.comm_config:DEFAULT_STREAMING_MAX_BLOB_SIZE",
        "Endpoint": "nvflare.fuel.f3.endpoint:Endpoint",
        "FQCN": "nvflare.fuel.f3.cellnet.fqcn:FQCN",
        "FqcnInfo": "nvflare.fuel.f3.cellnet.fqcn:FqcnInfo",
        "MessageHeaderKey": "nvflare.fuel.f3.cellnet.defs:MessageHeaderKey",
        "MessagePropKey": "nvflare.fuel.f3.cellnet.defs:MessagePropKey",
        "MessageType": "nvflare.fuel.f3.cellnet.defs:MessageType",
        "STREAM_CHANNEL": "nvflare.fuel.f3.streaming.stream_const:STREAM_CHANNEL",
        "STREAM_ERROR_TOPIC": "nvflare.fuel.f3.streaming.stream_const:STREAM_ERROR_TOPIC",
        "StreamError": "nvflare.fuel.f3.streaming.stream_types:StreamError",
        "StreamFuture": "nvflare.fuel.f3.streaming.stream_types:StreamFuture",
        "StreamHeaderKey": "nvflare.fuel.f3.streaming.stream_const:StreamHeaderKey",
        "decode_payload": "nvflare.fuel.f3.cellnet.utils:decode_payload",
        "is_valid_admin_client_name": "nvflare.fuel.utils.admin_name_utils:is_valid_admin_client_name",
        "make_cell_reply": "nvflare.fuel.f3.cellnet.utils:make_reply",
        # how messages are encoded
        "DataClassDecomposer": "nvflare.fuel.utils.fobs.decomposer:DataClassDecomposer",
        "Datum": "nvflare.fuel.utils.fobs.datum:Datum",
        "DatumManager": "nvflare.fuel.utils.fobs.datum:DatumManager",
        "DatumType": "nvflare.fuel.utils.fobs.datum:DatumType",
        "Decomposer": "nvflare.fuel.utils.fobs:Decomposer",
        "FOBSContextKey": "nvflare.fuel.utils.fobs:FOBSContextKey",
        "contains_lazy_download_ref": "nvflare.fuel.utils.fobs.decomposers.via_downloader:contains_lazy_download_ref",
        "fobs": "nvflare.fuel.utils.fobs.fobs",
        "get_class_name": "nvflare.fuel.utils.class_loader:get_class_name",
        "lobs": "nvflare.fuel.utils.fobs.lobs",
        # the parent processes of server and sites, and what is asked of them
        "AdminMessage": "nvflare.private.admin_defs:Message",
        "AppDeployer": "nvflare.private.fed.utils.app_deployer:AppDeployer",
        "ClientEngine": "nvflare.private.fed.client.client_engine:ClientEngine",
        "ClientRequestProcessors": "nvflare.private.fed.client.client_req_processors:ClientRequestProcessors",
        "PROCESS_EXIT_REASON": "nvflare.fuel.common.exit_codes:PROCESS_EXIT_REASON",
        "RequestHeader": "nvflare.private.defs:RequestHeader",
        "RequestProcessor": "nvflare.private.fed.client.admin:RequestProcessor",
        "Scope": "nvflare.private.privacy_manager:Scope",
        "SysCommandTopic": "nvflare.private.defs:SysCommandTopic",
        "TOPIC_STREAM_ABORT": "nvflare.private.stream_runner:TOPIC_STREAM_ABORT",
        "TOPIC_STREAM_REQUEST": "nvflare.private.stream_runner:TOPIC_STREAM_REQUEST",
        "TrainingTopic": "nvflare.private.defs:TrainingTopic",
        "error_reply": "nvflare.private.admin_defs:error_reply",
        # logs at the server, downloads in a session
        "FileTransferModule": "nvflare.fuel.hci.client.file_transfer:FileTransferModule",
        "KEY_RECV_FILE": "nvflare.app_common.logging.job_log_receiver:_KEY_RECV_FILE",
        "KEY_RECV_PATH": "nvflare.app_common.logging.job_log_receiver:_KEY_RECV_PATH",
        # the simulator
        "MainProcessMonitor": "nvflare.fuel.f3.mpm:MainProcessMonitor",
        "client_runner": "nvflare.private.fed.client.client_runner",
        "simulator": "nvflare.private.fed.app.simulator.simulator",
        "simulator_runner": "nvflare.private.fed.app.simulator.simulator_runner",
        "simulator_worker": "nvflare.private.fed.app.simulator.simulator_worker",
        "stream_utils": "nvflare.fuel.f3.streaming.stream_utils",
    }
)


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


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"{__name__} has no {name}")
    try:
        return resolve_name(_NAMES[name])
    except (ImportError, AttributeError) as error:
        raise ImportError(f"NVFlare {version('nvflare')} has no {_NAMES[name].replace(':', '.')}") from error
