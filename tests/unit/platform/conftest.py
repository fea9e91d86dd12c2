"""A server that misbehaves on demand, a lead's kit for it, kits as NVFlare provisions them, and a context of NVFlare, made by hand."""

import json
import shutil
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform import job_monitor as watched
from flareclust.platform import provisioned as production
from flareclust.platform.session import _ADMIN_FILE
from flareclust.protocol.registry import get
from flareclust.sites.config import write_config
from tests.fake_server import FakeServer
from tests.unit.platform.provision_cases import OURS, PROJECT, changed, provisioned


@pytest.fixture
def kit(tmp_path) -> Path:
    """The kit of a lead, as far as it is read without a connection."""
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    about = {"username": "lead@hub.org", "host": "server", "port": 8002, "project_name": "clinics"}
    (tmp_path / "kit" / _ADMIN_FILE).write_text(json.dumps({"admin": about}))
    return tmp_path / "kit"


@pytest.fixture
def outcome(sites):
    return run_inprocess(get("feca"), {}, sites, JobOptions(k=4))


@pytest.fixture
def serve(monkeypatch, kit):
    """Let the engine meet a server; the returned function runs a FeCA job on it."""
    monkeypatch.setattr(production, "_CONNECT_SECONDS", 0.05)
    monkeypatch.setattr(watched, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watched, "ROUNDS_SECONDS", 0.0)
    monkeypatch.setattr(watched, "_DISPATCH_SECONDS", 0.2)

    def run(server: FakeServer, *, token=None, resume=None, expected=None, on_round=lambda record: None, **options):
        monkeypatch.setattr(watched, "open_session", server.session)
        job = {"token": token, "resume": resume, "expected": expected}
        try:
            return production.run_production(get("feca"), {}, JobOptions(k=4, **options), kit, on_round, **job)
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


@pytest.fixture
def context(tmp_path, sites) -> FLContext:
    """What NVFlare gives an executor at site-1, whose rows are in a file."""
    (tmp_path / "startup").mkdir()
    np.save(tmp_path / "rows.npy", sites["site-1"])
    write_config(tmp_path / "local", str(tmp_path / "rows.npy"))
    engine = MagicMock()
    engine.get_workspace.return_value = Workspace(str(tmp_path), site_name="site-1")
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.IDENTITY_NAME, "site-1", private=False, sticky=False)
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
    (tmp_path / "job").mkdir()
    return fl_ctx
