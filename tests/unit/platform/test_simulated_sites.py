"""Processes of simulated sites: copies that do what NVFlare's command would, are told apart, and end with the simulator."""

import json
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import psutil
import pytest

from flareclust.platform import simulated, simulator
from flareclust.platform.simulated import _shorten_waits
from tests.patience import PATIENCE

#: Starts two sites, of which the second ends at once, kills the first, and prints what is known of them.
_TWO = """
import json, os, sys, threading, time
import numpy as np
from pathlib import Path
from flareclust.platform import simulated as copies

def at_work(arguments):
    drawn = [np.random.random(), copies.stream_utils.gen_stream_id()]
    Path(arguments.workspace, "drawn " + arguments.client).write_text(json.dumps(drawn))
    if arguments.client == "ends":
        return
    about = [os.getpid(), os.getsid(0), os.environ["MARK"], arguments.client, threading.active_count()]
    Path(arguments.workspace, "about").write_text(json.dumps(about))
    time.sleep(600)

copies.simulator_worker.main = lambda args: at_work(args)
processes = copies._SiteProcesses(2)
options = "-o {0} --logging_config l --token t --port 1 --parent_pid 1 --decomposer_module None --client"
command = [sys.executable, "-m", "nvflare.simulator_worker", *options.format(sys.argv[1]).split()]
stays, ends = (processes.start([*command, name], os.environ | {"MARK": name}, shell=False) for name in ("stays", "ends"))
file = Path(sys.argv[1], "about")
while ends.poll() is None or not file.exists() or not file.read_text():
    time.sleep(0.01)
said = [stays.pid, stays.poll(), ends.poll(), json.loads(file.read_text())]
if sys.argv[2] == "kill":
    stays.kill()
print(json.dumps([*said, stays.poll()]))
"""


def two_sites(folder, how: str) -> list:
    said = folder / "said"
    with said.open("wb") as output:  # a pipe would stay open for as long as the site that stays
        command = [sys.executable, "-c", _TWO, str(folder), how]
        subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
    return json.loads(said.read_text().splitlines()[-1])


def test_a_site_is_a_session_with_the_arguments_and_the_environment_of_its_command(tmp_path):
    pid, before, ended, about, after = two_sites(tmp_path, "kill")
    assert about == [pid, pid, "stays", "stays", 1]
    assert (before, ended, after) == (None, 0, -signal.SIGKILL)
    drawn = [json.loads((tmp_path / f"drawn {name}").read_text()) for name in ("stays", "ends")]
    assert all(one != other for one, other in zip(*drawn, strict=True)), "numbers that should be of each process"


def test_a_site_that_cannot_be_started_is_an_error_of_its_own(monkeypatch, tmp_path):
    """Copies of this process would have its threads, so the other side of the pipe is a thread here."""
    ours, theirs = Pipe()
    processes = object.__new__(simulated._SiteProcesses)
    processes._pipe, processes._lock = ours, threading.Lock()
    results = iter([OSError("no memory"), 123])

    def fork() -> int:
        if isinstance(result := next(results), OSError):
            raise result
        return result

    monkeypatch.setattr(simulated.os, "fork", fork)
    server = threading.Thread(target=simulated._serve, args=(theirs, 1))
    server.start()
    with pytest.raises(OSError, match="no memory"):
        processes.start(["site"], {})
    assert processes.start(["site"], {}).pid == 123
    ours.close()
    server.join(PATIENCE)


def test_what_makes_the_copies_ends_with_the_simulator(tmp_path):
    """Sites look for the simulator themselves, see NVFlare's check_parent_alive."""
    pid, *_, after = two_sites(tmp_path, "leave")
    site = psutil.Process(pid)
    try:
        assert after is None
        end = time.monotonic() + PATIENCE
        while any(str(tmp_path) in word for word in _parent_line(site)):
            assert time.monotonic() < end, "the process that makes copies is still there"
            time.sleep(0.05)
    finally:
        site.kill()


def _parent_line(process: psutil.Process) -> list[str]:
    parent = process.parent()
    return [] if parent is None else parent.cmdline()


def test_copies_draw_noise_of_their_own():
    pytest.importorskip("opendp")
    code = """
import os, numpy as np
from flareclust.privacy.dp.mechanism import gaussian
draw = lambda: print(gaussian(np.zeros(4, np.int64), 1.0, 1e-9).tolist(), flush=True)
draw()
for _ in range(3):
    if os.fork() == 0:
        draw()
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert len(set(done.stdout.splitlines())) == 4


def test_short_waits_are_shortened_and_long_ones_are_not(monkeypatch):
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    module = SimpleNamespace(time=None)
    _shorten_waits(module, 0.1)
    for seconds in (0.05, 0.5, 1.0, 5.0):
        module.time.sleep(seconds)
    assert waited == [0.05, 0.1, 0.1, 5.0]
    assert module.time.time is time.time


@pytest.fixture
def chosen(caplog):
    """How a simulator is started here; what was found out before is forgotten before and afterwards."""
    simulator._starts_by_itself.cache_clear()
    yield simulator._starts_by_itself
    simulator._starts_by_itself.cache_clear()


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, names in simulated._USED for name in names])
def test_where_nvflare_lacks_what_is_changed_it_starts_by_itself_with_one_warning(
    of, name, monkeypatch, chosen, caplog
):
    assert not chosen()
    assert not caplog.records
    chosen.cache_clear()
    monkeypatch.delattr(of, name)
    assert chosen()
    assert chosen()
    (warning,) = (record.getMessage() for record in caplog.records)
    assert f".{name})" in warning


def test_also_where_the_class_is_missing_that_ours_extends(monkeypatch, chosen, caplog):
    monkeypatch.delitem(sys.modules, simulated.__name__)
    monkeypatch.delattr(simulated.simulator_runner, "SimulatorClientRunner")
    assert chosen()
    assert "has no attribute 'SimulatorClientRunner'" in caplog.text


def test_the_modules_of_nvflare_use_nothing_else_of_what_is_replaced():
    import inspect
    import re

    from nvflare.private.fed.app.simulator import simulator_runner, simulator_worker
    from nvflare.private.fed.client import client_runner

    for module in (simulator_runner, simulator_worker, client_runner):
        assert set(re.findall(r"\btime\.(\w+)", inspect.getsource(module))) <= {"time", "sleep"}
    assert set(re.findall(r"\bsubprocess\.(\w+)", inspect.getsource(simulator_runner))) == {"Popen", "TimeoutExpired"}
