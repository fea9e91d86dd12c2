"""A site that is away when a job begins is named in the result, or waited for; so are the sites of a job that a crash has ended."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import SITES
from harness import LEAD, wait_until
from jobs import Job

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import read
from flareclust.protocol.registry import get
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

AWAY = SITES[-1]


def run(folder: Path, kit: Path, out: str, *more: str) -> subprocess.Popen[str]:
    """Start a job of all sites that are connected, two at least."""
    job = ["run", "kfed", "--k", "5", "--seed", "3", "--engine", "production", "--kit", str(kit), "--min-sites", "2"]
    with (folder / f"{out}.err").open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "flareclust", *job, "--no-track", "--out", out, "--json", *more],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def ended(process: subprocess.Popen[str], errors: Path) -> list[str]:
    """Return the warnings of a job's result."""
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors.read_text()
    return json.loads(printed)["warnings"]


def test_a_site_that_is_stopped_is_named_and_can_be_waited_for(federation, files, tmp_path, record):
    kit = federation.kit(LEAD)
    ended(run(tmp_path, kit, "all"), tmp_path / "all.err")
    federation.leave(AWAY)
    began = time.monotonic()
    warnings = ended(run(tmp_path, kit, "without"), tmp_path / "without.err")
    seconds = time.monotonic() - began
    assert [text for text in warnings if "was not connected" in text] == [
        text
        for text in warnings
        if text.startswith(f"{AWAY} was not connected when the job began, and had part in one of")
    ]
    (words,) = [text for text in warnings if text.startswith(AWAY)]
    record(
        "absent site",
        "one of three sites is stopped before the job, and had part in the job before; quorum 2",
        "the job runs with the others",
        words,
        seconds,
    )

    errors = tmp_path / "waited.err"
    process = run(tmp_path, kit, "waited", "--expect-sites", ",".join(SITES), "--for", f"{PATIENCE:.0f}")
    try:
        wait_until(lambda: process.poll() is not None or f"missing: {AWAY}" in errors.read_text(), "it waits")
        assert process.poll() is None, errors.read_text()
        federation.start(AWAY)
        began = time.monotonic()
        assert not any("was not connected" in text for text in ended(process, errors))
        seconds = time.monotonic() - began
    finally:
        process.kill()
        process.wait()
    here = run_inprocess(get("kfed"), {}, files, JobOptions(k=5, seed=3))
    np.testing.assert_array_equal(read(tmp_path / "waited")[0].centroids, here.centroids)
    record(
        "absent site, waited for",
        "a job with `--expect-sites` and `--for` while one of three sites is stopped, which is started then",
        "the job is kept back until the site is connected, and its result is that of all sites; the seconds run from the start of the site until the result",
        next(line for line in errors.read_text().splitlines() if f"missing: {AWAY}" in line),
        seconds,
    )


def test_a_job_that_is_submitted_again_waits_for_the_sites_of_the_lost_one(federation, files, caplog, record):
    params = {"rounds": 25, "tol": 0.0}
    options = JobOptions(k=5, seed=3, min_sites=2, deadline=600)
    lost = Job(federation, get("fkm"), options, params, token="absent-sites")
    lost.wait_round(2)
    federation.stop(AWAY)
    federation.crash_server()
    with pytest.raises(JobFailed, match="has lost the job"):
        lost.outcome()

    again = Job(federation, get("fkm"), options, params, token="absent-sites")
    wait_until(lambda: again.ended or any(text.endswith(f"missing: {AWAY}") for text in caplog.messages), "it waits")
    federation.start(AWAY)
    began = time.monotonic()
    found = again.outcome()
    assert found.refused == {}
    here = run_inprocess(get("fkm"), params, files, options)
    np.testing.assert_array_equal(found.centroids, here.centroids)
    record(
        "crash of the server, and a late site",
        "SIGKILL of the server in the middle of a job, while one of three sites is stopped; the job is submitted again, and the site started then",
        "the new job is kept back for the sites of the lost one, and its result is that of all sites; the seconds run from the start of the site until the result",
        next(text for text in caplog.messages if text.endswith(f"missing: {AWAY}")),
        again.ended - began,
    )
