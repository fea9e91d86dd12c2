"""Two runs at a time with one output folder: the second ends before its job."""

import json
import os
import subprocess
import sys
import time

import pytest
from harness import LEAD, wait_until
from jobs import jobs_in_store
from machines import flareclust

from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


def test_a_run_whose_folder_another_run_is_on_the_way_to_submits_nothing(federation, tmp_path, record):
    words = ["run", "kfed", "--k", "5", "--engine", "production", "--kit", str(federation.kit(LEAD)), "--no-track"]
    words += ["--out", str(tmp_path / "out")]
    before = jobs_in_store(federation)
    with subprocess.Popen(
        [sys.executable, "-m", "flareclust", *words],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as first:
        wait_until(lambda: first.poll() is not None or jobs_in_store(federation) - before, "the first job is stored")
        began = time.monotonic()
        second = flareclust(tmp_path, *words, code=2)
        seconds = time.monotonic() - began
        assert first.poll() is None, "the first run ended before the second"
        printed, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, printed
    (job,) = jobs_in_store(federation) - before
    assert json.loads((tmp_path / "out" / "result.json").read_text())["job"] == job.name
    (line,) = second.stderr.splitlines()
    assert second.stdout == ""
    assert line.startswith(f"error: another run is on the way to {tmp_path / 'out'}; wait for its end, or")
    record(
        "two runs with one folder",
        "`flareclust run ... --out FOLDER` while another run of the same account with the same folder has its job at the server",
        "exit 2, and no second job; the first run has its result",
        line.replace(str(tmp_path / "out"), "FOLDER"),
        seconds,
    )
