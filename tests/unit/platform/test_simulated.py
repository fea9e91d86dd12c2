"""Threads of the simulator that start sites at the same moment send each process its own site's name."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from nvflare.private.fed.app.simulator import simulator_runner

from flareclust.platform.simulated import _OwnNames
from tests.patience import PATIENCE


class Together:
    """Is copied between the moment when the name is written down and that when it is sent, by both threads at once."""

    workspace = "sites"

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=PATIENCE)

    def __deepcopy__(self, memo: dict[int, Any]) -> SimpleNamespace:
        self.barrier.wait()
        return SimpleNamespace(workspace="sites")


def names_sent(kind, monkeypatch, tmp_path) -> dict[str, str]:
    """Return which name each of two sites' processes gets."""
    arguments = SimpleNamespace(workspace=str(tmp_path), set=None, log_config="concise")
    for name in ("site-1/startup", "site-1/local", "site-2/startup", "site-2/local"):
        (tmp_path / name).mkdir(parents=True)
    runner = kind("", arguments, [], {}, Together(), {"client_name": "", "other": 1})
    sent = {}
    process = SimpleNamespace(poll=lambda: 0, returncode=0, pid=0)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)

    def start(name: str) -> None:
        def send(data: dict[str, Any]) -> None:
            assert data["build_ctx"]["other"] == 1
            sent[name] = data["build_ctx"]["client_name"]

        connections[threading.get_ident()] = SimpleNamespace(send=send)
        cell = SimpleNamespace(get_root_url_for_child=lambda: "", get_internal_listener_url=lambda: "")
        runner.do_one_task(SimpleNamespace(client_name=name, token="t", cell=cell), 2, None, threading.Lock())

    connections: dict[int, Any] = {}
    monkeypatch.setattr(runner, "_create_connection", lambda *_, **__: connections[threading.get_ident()])
    monkeypatch.setattr(runner, "_cleanup_process", lambda *_, **__: None)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(start, ["site-1", "site-2"]))
    return sent


def test_each_process_gets_its_own_name(monkeypatch, tmp_path):
    assert names_sent(_OwnNames, monkeypatch, tmp_path) == {"site-1": "site-1", "site-2": "site-2"}


def test_nvflares_own_class_still_needs_that(monkeypatch, tmp_path):
    """If this fails, flareclust.platform.simulated can go."""
    sent = names_sent(simulator_runner.SimulatorClientRunner, monkeypatch, tmp_path)
    assert len(set(sent.values())) == 1
