"""The targets in tests/fuzz under atheris, which looks for inputs that take new paths."""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.paths import ROOT

RUNS, SECONDS = 100_000, 300


@pytest.mark.nightly
@pytest.mark.timeout(SECONDS + 180)
@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed: pip install 'flareclust[fuzz]' (Linux)"
)
@pytest.mark.parametrize("target", ["messages", "config", "readers", "specs"])
def test_atheris_finds_no_input_that_raises(tmp_path, target):
    command = [sys.executable, "-m", f"tests.fuzz.fuzz_{target}", f"-runs={RUNS}", f"-max_total_time={SECONDS}"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=SECONDS + 120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    print("\n".join(said.splitlines()[-3:]))
    assert process.returncode == 0, said[-3000:]
    assert "Done" in said, said[-3000:]
