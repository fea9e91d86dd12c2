"""Sites that reach the server through relays, with mTLS on both connections."""

import json
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from harness import ADMIN, Federation, wait_until
from jobs import Job

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.sites.running import protection
from flareclust.testing import iid_sites
from tests.kit_certificates import renew
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

RELAYS = {"relay-north": ("bergen", "oslo"), "relay-south": ("rome",)}
SITES = tuple(site for sites in RELAYS.values() for site in sites)

#: How many seconds a relay's certificate lasts: two minutes, or so many times what the machine needs to renew it.
LIFE, STARTS = 120, 3

OPTIONS = JobOptions(k=5, seed=3, min_sites=len(SITES))


@pytest.fixture(scope="module")
def relayed() -> Iterator[Federation]:
    """A server, two relays, and sites behind them, with a file each."""
    with Federation(SITES, relays=RELAYS).running() as federation:
        for site, rows in zip(SITES, iid_sites(m=len(SITES), k=5)[0].values(), strict=True):
            np.save(rows_of(federation, site), rows)
            federation.configure(site, path=str(rows_of(federation, site)))
        yield federation


def rows_of(federation: Federation, site: str) -> Path:
    return federation.kit(site) / "rows.npy"


def renew_relay(federation: Federation, relay: str, lasts: timedelta) -> datetime:
    """Give a relay a new `startup/` and start it again, once the server has missed its sites; return when its new certificate ends."""
    ends = renew(federation.kits.parent / "state" / "cert.json", [relay], lasts)
    made = federation.provision(federation.kits.parents[1])
    federation.stop(relay)
    shutil.rmtree(federation.kit(relay) / "startup")
    shutil.copytree(made / relay / "startup", federation.kit(relay) / "startup")
    federation.wait_connected([site for site in SITES if site not in RELAYS[relay]])
    federation.start(relay)
    federation.wait_connected()
    return ends


def check_job(relayed: Federation) -> None:
    """A job has all sites, and its result is that of one process."""
    files = {site: rows_of(relayed, site) for site in SITES}
    there = Job(relayed, get("lloyd"), OPTIONS).outcome()
    here = run_inprocess(get("lloyd"), {}, files, OPTIONS)
    assert there.sites == sorted(SITES)
    assert there.refused == {}
    assert set(there.arrays) == set(here.arrays)
    for array, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[array], value, err_msg=array)


def test_a_job_through_relays_equals_one_process_bit_for_bit(relayed):
    """In one process is as without relays, which test_same_result shows."""
    check_job(relayed)


def test_the_server_has_the_connections_of_relays_only(relayed):
    with relayed.session(ADMIN) as session:
        clients = session.check_status("server")["clients"]
    behind = {site: f"{relay}.{site}" for relay, sites in RELAYS.items() for site in sites}
    assert {client["client_name"]: client["fqcn"] for client in clients} == behind


@pytest.mark.parametrize("relay", RELAYS)
def test_the_messages_of_a_running_relay_hold_no_files(relayed, relay):
    words, errors = protection(relayed.kit(relay))
    assert words.startswith("in force in process")
    assert errors == []


def test_a_relay_takes_no_connection_without_a_certificate(relayed):
    relay, (site, *_) = next(iter(RELAYS.items()))
    listens = json.loads((relayed.kit(relay) / "local" / "comm_config.json").read_text())["internal"]["resources"]
    context = ssl.create_default_context(cafile=str(relayed.kit(site) / "startup" / "rootCA.pem"))
    context.check_hostname = False
    address = listens["host"], listens["port"]
    with (
        socket.create_connection(address, PATIENCE) as plain,
        context.wrap_socket(plain) as connection,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
    ):
        connection.recv(1)


@pytest.mark.nightly
def test_a_relay_goes_on_with_renewed_certificates_after_the_end_of_the_old_ones(relayed):
    """Its sites connect again by themselves, with their own kits as they are."""
    relay = "relay-north"
    began = time.monotonic()
    renew_relay(relayed, relay, timedelta(days=1))
    life = timedelta(seconds=max(LIFE, STARTS * (time.monotonic() - began)))
    ends = renew_relay(relayed, relay, life)
    check_job(relayed)
    renew_relay(relayed, relay, timedelta(days=1))
    assert datetime.now(timezone.utc) < ends, "the machine was too slow for what is to be shown"
    wait_until(lambda: datetime.now(timezone.utc) > ends, "the first certificates have ended", 2 * life.total_seconds())
    check_job(relayed)
