"""A server that misbehaves on demand, a lead's kit for it, and kits as NVFlare provisions them."""

import json
import shutil
from pathlib import Path

import pytest

from flareclust.engines import provisioned as production
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform import job_monitor as watched
from flareclust.platform.session import ADMIN_FILE
from flareclust.protocol.registry import get
from tests.fake_server import FakeServer
from tests.unit.engines.provision_cases import OURS, PROJECT, changed, provisioned


@pytest.fixture
def kit(tmp_path) -> Path:
    """The kit of a lead, as far as it is read without a connection."""
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    about = {"username": "lead@hub.org", "host": "server", "port": 8002, "project_name": "clinics"}
    (tmp_path / "kit" / ADMIN_FILE).write_text(json.dumps({"admin": about}))
    return tmp_path / "kit"


@pytest.fixture
def outcome(sites):
    return run_inprocess(get("feca"), {}, sites, JobOptions(k=4))


@pytest.fixture
def serve(monkeypatch, kit):
    """Let the engine meet a server; the returned function runs a FeCA job on it."""
    monkeypatch.setattr(production, "CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(watched, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watched, "ROUNDS_SECONDS", 0.0)
    monkeypatch.setattr(watched, "DISPATCH_SECONDS", 0.2)

    def run(server: FakeServer, *, token=None, on_round=lambda record: None, **options):
        monkeypatch.setattr(watched, "open_session", server.session)
        try:
            return production.run_production(get("feca"), {}, JobOptions(k=4, **options), kit, on_round, token=token)
        finally:
            assert server.opened == server.closed, "an open session keeps the process from ending"

    return run


@pytest.fixture(scope="session")
def kits(tmp_path_factory):
    return provisioned(PROJECT, tmp_path_factory.mktemp("provisioned"))[0]


@pytest.fixture(scope="session")
def plain_kits(tmp_path_factory):
    """Kits made without our Builder."""
    folder = tmp_path_factory.mktemp("plain")
    file = changed(
        folder, lambda p: p.update(builders=[builder for builder in p["builders"] if builder["path"] != OURS])
    )
    return provisioned(file, folder / "made")[0]


@pytest.fixture
def plain(plain_kits, tmp_path):
    """A copy of those kits to change."""
    return Path(shutil.copytree(plain_kits, tmp_path / "kits"))
