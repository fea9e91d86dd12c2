"""The guard of coverage counts what all workers have reached."""

import pytest
from xdist.workermanage import NodeManager

from tests import coverage_guard


def test_what_a_worker_measured_is_written_before_it_is_killed(monkeypatch):
    monkeypatch.setattr(NodeManager, "EXIT_TIMEOUT", 10)
    coverage_guard.pytest_configure()
    assert NodeManager.EXIT_TIMEOUT == 600


def test_the_runs_of_pytest_load_the_guard(monkeypatch, tmp_path):
    ran = []

    def run(command, **options):
        ran.append(command)
        raise InterruptedError

    monkeypatch.setattr(coverage_guard.subprocess, "run", run)
    with pytest.raises(InterruptedError):
        coverage_guard.reached(["-n", "1"], tmp_path / "quick")
    (command,) = ran
    assert command[command.index("-p") + 1] == coverage_guard.__name__
