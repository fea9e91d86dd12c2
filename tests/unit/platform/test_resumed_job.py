"""A server keeps the checkpoints of its jobs, and goes on with the one that a new job names."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust._foundation.errors import UserError
from flareclust.engines.inprocess import run_inprocess
from flareclust.executors.lloyd import LloydExecutor
from flareclust.platform import controller
from flareclust.platform.controller import _CHECKPOINTS, checkpoint_at
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.registry import get
from tests.same_outcome import OPTIONS, case_of
from tests.unit.platform.test_adapter import JOB, run_adapter

LLOYD = get("lloyd")
ROWS, PARAMS = case_of(LLOYD)


@pytest.fixture(scope="module", autouse=True)
def _encoding():
    nvflare_fobs_initialize()


def run(server: Path, job: str, monkeypatch, *, params=PARAMS, **settings) -> list[str]:
    """Run a job of Lloyd's algorithm at the server whose folder is `server`; return why it panicked."""
    return run_adapter(LLOYD, params, ROWS, server, monkeypatch, job, **settings)[1]


def kept(server: Path) -> set[str]:
    return {path.name for path in (server / _CHECKPOINTS).iterdir()}


def test_a_job_goes_on_from_the_checkpoint_that_the_server_kept_of_another(tmp_path, monkeypatch):
    assert run(tmp_path, "first", monkeypatch, stop=2) == ["the server's side raised RuntimeError: killed"]
    assert kept(tmp_path) == {"first.npz"}
    assert checkpoint_at(tmp_path, "first").stat().st_mode & 0o777 == 0o600
    assert run(tmp_path, "second", monkeypatch, resume="first") == []
    found, _ = outcome_files.read(tmp_path / "second")
    expected = run_inprocess(LLOYD, PARAMS, ROWS, OPTIONS)
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value)
    assert found.metrics == expected.metrics
    assert [record["step"] for record in found.rounds] == [record["step"] for record in expected.rounds]
    assert kept(tmp_path) == set()


def test_a_job_that_is_not_that_one_or_unknown_ends_with_the_reason(tmp_path, monkeypatch):
    run(tmp_path, "first", monkeypatch, stop=2)
    (reason,) = run(tmp_path, "other", monkeypatch, params={**PARAMS, "rounds": 7}, resume="first")
    assert reason.startswith("checkpoints/first.npz is of another job: rounds is not given there and 7 here")
    (reason,) = run(tmp_path, "third", monkeypatch, resume="unknown")
    assert reason.startswith("checkpoints holds no unknown.npz, so there is nothing to resume"), (
        "paths are the server's own"
    )
    assert kept(tmp_path) == {"first.npz"}


@pytest.mark.parametrize("name", ["../first", "a/b", "", "." * 3, "x" * 65])
def test_a_job_names_no_other_file_of_the_server(tmp_path, name, monkeypatch):
    with pytest.raises(UserError, match="is no id of a job"):
        checkpoint_at(tmp_path, name)
    (reason,) = run(tmp_path, JOB, monkeypatch, resume=name)
    assert "is no id of a job" in reason


def test_a_job_that_brings_a_checkpoint_does_not_go_on_from_it(tmp_path, monkeypatch):
    run(tmp_path, "first", monkeypatch, stop=2)
    brought = tmp_path / "second" / "app_server" / "config"
    brought.mkdir(parents=True)
    checkpoint_at(tmp_path, "first").rename(brought / "checkpoint.npz")
    (reason,) = run(tmp_path, "second", monkeypatch, resume="first")
    assert "holds no first.npz" in reason


def test_what_nobody_has_gone_on_from_for_a_month_is_removed_at_the_next_job(tmp_path, monkeypatch):
    for job in ("first", "old", "fresh"):
        run(tmp_path, job, monkeypatch, stop=2)
    (tmp_path / _CHECKPOINTS / "killed.npz.part").touch()
    for name in ("first.npz", "old.npz", "killed.npz.part"):
        os.utime(tmp_path / _CHECKPOINTS / name, (time.time() - 31 * 24 * 3600,) * 2)
    run(tmp_path, "second", monkeypatch, stop=0, resume="first")
    assert kept(tmp_path) == {"first.npz", "fresh.npz"}


def test_a_private_job_which_cannot_be_resumed_keeps_no_checkpoint(tmp_path, monkeypatch):
    seen = []

    def watched(aggregator, *args, on_checkpoint, **more):
        seen.append(on_checkpoint)
        raise UserError("enough")

    monkeypatch.setattr(controller, "run_federation", watched)
    run(tmp_path, "lloyd", monkeypatch)
    monkeypatch.setattr(LloydExecutor, "private", True)
    run(tmp_path, "private", monkeypatch)
    assert callable(seen[0])
    assert seen[1] is None
