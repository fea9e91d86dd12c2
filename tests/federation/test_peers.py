"""Anyone with a kit asks NVFlare's process at a site for its files, and to remove its folders: nobody gets anything."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import watching
from conftest import SITES
from harness import LEAD, MEMBER, SERVER, wait_until
from jobs import Job
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.sec.authn import set_add_auth_headers_filters
from nvflare.private.defs import ClientType
from nvflare.private.fed.authenticator import Authenticator

from flareclust.engines.job import build_job, export_job
from flareclust.engines.options import JobOptions
from flareclust.registry import get

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

OPTIONS = JobOptions(k=5, seed=3, min_sites=3)
SECRET = "4.999999"


@pytest.fixture
def secret(federation):
    """A file beside north's rows, which nobody else may see, and what its kit consists of."""
    file = federation.kit("north") / "data" / "secret.csv"
    file.write_text(SECRET)
    before = kept(federation)
    yield file
    file.unlink()
    assert kept(federation) == before
    assert set(Job(federation, get("lloyd"), OPTIONS).outcome().sites) == set(SITES)


def kept(federation):
    local = federation.kit("north") / "local"
    return {path.name: path.read_bytes() for path in local.iterdir() if path.is_file()}


def takes_nothing(cell, file):
    for origin in (None, SERVER):  # the second in the server's name
        if origin:
            cell.core_cell.add_outgoing_request_filter(
                "*", "*", lambda m: m.set_header(MessageHeaderKey.ORIGIN, SERVER)
            )
        for topic, body, job in (
            ("sys.shell", f"cat {file}", ""),
            ("sys.shell", "ls startup", ""),
            ("train.delete_run", "", "local"),
        ):
            assert watching.ask_site(cell, "north", topic, body, job) is None, (topic, body, origin)


@pytest.mark.parametrize("user", [LEAD, MEMBER])
def test_a_user_reads_and_removes_no_file_of_a_site(federation, secret, user):
    with federation.session(user) as session:
        cell = session.api.cell
        cell.core_cell.in_filter_reg.reg.clear()  # which would keep answers of sites from the user
        takes_nothing(cell, secret)


def test_a_site_reads_and_removes_no_file_of_another(federation, secret):
    federation.leave("south")
    with connected_by_kit(federation, "south") as cell:
        takes_nothing(cell, secret)
    federation.start("south")
    federation.wait_connected()


def test_a_server_reads_and_removes_no_file_of_a_site(federation, secret, tmp_path, monkeypatch):
    monkeypatch.setattr("flareclust.engines.job.ClusteringController", watching.ReadingController)
    folder = federation.run(export_job(build_job(get("lloyd"), {}, OPTIONS), tmp_path / "reading"))
    told = json.loads((folder / watching.ASKED).read_text())
    for site in SITES:
        assert "does not answer sys.shell" in told[f"{site} shell"]
        assert "was given 'local' as the name of a job, which is none" in told[f"{site} remove"]
        assert "does not" not in told[f"{site} status"]


@contextmanager
def connected_by_kit(federation, site) -> Iterator[Cell]:
    """Give a cell that the server takes for this site, by the keys of its kit."""
    startup = federation.kit(site) / "startup"
    about = json.loads((startup / "fed_client.json").read_text())
    server = about["servers"][0]["service"]
    target = json.loads((federation.kit(LEAD) / "startup" / "fed_admin.json").read_text())["admin"]
    certificate, key, root = (str(startup / name) for name in ("client.crt", "client.key", "rootCA.pem"))
    credentials = {
        DriverParams.CA_CERT.value: root,
        DriverParams.CLIENT_CERT.value: certificate,
        DriverParams.CLIENT_KEY.value: key,
    }
    url = f"{server.get('scheme', 'grpc')}://{target['host']}:{target['port']}"
    cell = Cell(fqcn=site, root_url=url, secure=True, credentials=credentials, create_internal_listener=False)
    cell.start()
    try:
        wait_until(lambda: cell.core_cell.is_cell_connected(SERVER), f"{site} is connected", every=0.1)
        authenticator = Authenticator(
            cell=cell,
            project_name="fct",
            client_name=site,
            client_type=ClientType.REGULAR,
            expected_sp_identity=about["servers"][0].get("identity", SERVER),
            secure_mode=True,
            root_cert_file=root,
            private_key_file=key,
            cert_file=certificate,
            msg_timeout=10.0,
            retry_interval=1.0,
            timeout=30.0,
        )
        fl_ctx = FLContext()
        fl_ctx.set_public_props({ReservedKey.IDENTITY_NAME: site})
        token, signature, ssid, _ = authenticator.authenticate(shared_fl_ctx=fl_ctx, abort_signal=Signal())
        set_add_auth_headers_filters(cell, site, token, signature, ssid)
        yield cell
    finally:
        cell.stop()
