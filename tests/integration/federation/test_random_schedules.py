"""Schedules of random faults that broke a promise once, by their seeds; docs/reliability.md says what each found."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="hosts need disks and networks of their own: root on Linux",
)
@pytest.mark.parametrize("seed", [1, 2, 9, 10, 53, 128, 167, 259, 270])
def test_a_schedule_that_broke_a_promise_keeps_all_now(seed, tmp_path):
    out = tmp_path / "chaos.jsonl"
    command = [sys.executable, "-m", "benchmarks.chaos", "--seed", str(seed), "--schedules", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    (record,) = map(json.loads, out.read_text().splitlines())
    assert record["wrong"] == [], done.stdout
    assert done.returncode == 0, done.stderr
