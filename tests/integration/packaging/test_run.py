"""A run of the tests leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.paths import ROOT
from tests.patience import PATIENCE

LEAVES_A_DAEMON = """
import subprocess, sys, tempfile, pathlib, time
def test_it():
    daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    made = pathlib.Path(tempfile.mkdtemp())
    note = pathlib.Path(__file__).with_name("note.new")
    note.write_text(f"{daemon.pid} {made}")
    note.rename(note.with_name("note"))
    time.sleep(WAIT)
"""


def started(folder: Path, wait: float) -> "subprocess.Popen[bytes]":
    (folder / "test_it.py").write_text(LEAVES_A_DAEMON.replace("WAIT", str(wait)))
    command = [sys.executable, "-m", "tests.run", "-q", "-p", "no:cacheprovider", str(folder)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def left(folder: Path) -> tuple[bool, bool]:
    """Return whether the daemon runs, and whether its folder is there."""
    number, made = (folder / "note").read_text().split()
    return psutil.pid_exists(int(number)), Path(made).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda value: value.name)
def test_a_run_that_is_stopped_takes_its_daemons_along(tmp_path, number):
    run = started(tmp_path, 600)
    while not (tmp_path / "note").exists():
        assert run.poll() is None
        psutil.wait_procs([psutil.Process(run.pid)], timeout=0.05)
    assert left(tmp_path) == (True, True)
    run.send_signal(number)
    assert run.wait(PATIENCE) == 128 + number
    assert left(tmp_path) == (False, False)


def test_a_run_whose_tests_leave_a_daemon_fails(tmp_path):
    assert started(tmp_path, 0).wait(PATIENCE) == 1
    assert left(tmp_path) == (False, False)
