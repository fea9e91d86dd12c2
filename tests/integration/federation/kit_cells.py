"""What one can ask NVFlare's processes at sites with any kit of the federation, by NVFlare's own cells."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from harness import LEAD, PROJECT, SERVER, Federation, wait_until
from nvflare.apis.fl_constant import ReservedKey, ServerCommandNames
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.private.defs import CellMessageHeaderKeys, ClientType
from nvflare.private.fed.authenticator import Authenticator


@contextmanager
def as_user(federation: Federation, user: str) -> Iterator[Cell]:
    """Give the cell of a user's session, which takes answers from anyone."""
    with federation.session(user) as session:
        cell = session.api.cell
        cell.core_cell.in_filter_reg.reg.clear()
        yield cell


@contextmanager
def as_site(federation: Federation, site: str) -> Iterator[Cell]:
    """Give a cell that the server takes for this site, by the keys of its kit; the site itself is away meanwhile."""
    federation.leave(site)
    about = json.loads((federation.kit(site) / "startup" / "fed_client.json").read_text())["servers"][0]
    with _in_place_of(federation, site, ClientType.REGULAR, about["service"].get("scheme", "grpc")) as cell:
        yield cell


@contextmanager
def as_relay(federation: Federation, relay: str) -> Iterator[Cell]:
    """Give a cell that the server takes for this relay, by the keys of its kit; the relay is away meanwhile, and so are its sites."""
    federation.stop(relay)
    about = json.loads((federation.kit(relay) / "startup" / "fed_relay.json").read_text())["connect_to"]
    with _in_place_of(federation, relay, ClientType.RELAY, about["scheme"]) as cell:
        yield cell


@contextmanager
def _in_place_of(federation: Federation, name: str, client_type: str, scheme: str) -> Iterator[Cell]:
    startup = federation.kit(name) / "startup"
    target = json.loads((federation.kit(LEAD) / "startup" / "fed_admin.json").read_text())["admin"]
    certificate, key, root = (str(startup / file) for file in ("client.crt", "client.key", "rootCA.pem"))
    credentials = {
        DriverParams.CA_CERT.value: root,
        DriverParams.CLIENT_CERT.value: certificate,
        DriverParams.CLIENT_KEY.value: key,
    }
    url = f"{scheme}://{target['host']}:{target['port']}"
    cell = Cell(fqcn=name, root_url=url, secure=True, credentials=credentials, create_internal_listener=False)
    cell.start()
    try:
        wait_until(lambda: cell.core_cell.is_cell_connected(SERVER), f"{name} is connected", every=0.1)
        authenticator = Authenticator(
            cell=cell,
            project_name=PROJECT,
            client_name=name,
            client_type=client_type,
            expected_sp_identity=SERVER,
            secure_mode=True,
            root_cert_file=root,
            private_key_file=key,
            cert_file=certificate,
            msg_timeout=10.0,
            retry_interval=1.0,
            timeout=120.0,
        )
        fl_ctx = FLContext()
        fl_ctx.set_public_props({ReservedKey.IDENTITY_NAME: name})
        token, signature, ssid, _ = authenticator.authenticate(shared_fl_ctx=fl_ctx, abort_signal=Signal())
        set_add_auth_headers_filters(cell, name, token, signature, ssid)
        yield cell
    finally:
        cell.stop()
        CoreCell.ALL_CELLS.pop(name, None)  # else this process could be no cell of this name again
        federation.start(name)
        federation.wait_connected()


def ask_for_task(cell: Cell, job: str) -> object:
    """Ask the server's process of a job for a task, as that of the job at a site does; return what comes, None where the server refuses."""
    content = Shareable()
    content.set_peer_context(FLContext())
    request = new_cell_message({CellMessageHeaderKeys.PROJECT_NAME: PROJECT}, content)
    topic, process = ServerCommandNames.GET_TASK, f"{SERVER}.{job}"
    reply = cell.send_request(CellChannel.SERVER_COMMAND, topic, process, request, timeout=10.0)
    code = reply.get_header(MessageHeaderKey.RETURN_CODE)
    if code == ReturnCode.AUTHENTICATION_ERROR:
        return None
    assert code == ReturnCode.OK, f"the server has not answered: {code}"
    return reply.payload
