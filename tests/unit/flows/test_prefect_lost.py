"""What is done where Prefect does not answer any more: the steps go on, and what they came to counts."""

import os
import subprocess
import sys
import uuid

import pytest

from flareclust._foundation.errors import JobFailed
from tests.mlflow_server import free_port
from tests.patience import PATIENCE


class Lost(Exception):
    """What Prefect's client raises."""


@pytest.fixture
def steps(monkeypatch):
    """Steps whose Prefect fails at the moments that the list names: before or after the function."""
    from flareclust.flows import steps as module

    moments: list[str] = []

    def task(**options):
        def wrap(function):
            def call():
                if moments == ["before"]:
                    raise Lost
                try:
                    function()
                finally:
                    if moments == ["after"]:
                        raise Lost

            return call

        return wrap

    monkeypatch.setattr(module, "task", task)
    made = module.Steps()
    made.moments = moments
    return made


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_step_is_done_once_and_the_next_ones_without_prefect(steps, moment):
    calls = []
    assert steps.run("first", lambda x: calls.append(x) or x + 1, 1) == 2
    assert steps.lost is None
    steps.moments.append(moment)
    assert steps.run("second", lambda x: calls.append(x) or x + 1, 2) == 3
    assert isinstance(steps.lost, Lost)
    steps.moments[:] = ["before"]
    assert steps.run("third", lambda x: calls.append(x) or x + 1, 3) == 4
    assert calls == [1, 2, 3]
    steps.report(lambda: calls.append("reported"))
    assert calls == [1, 2, 3]


def test_what_a_step_raises_is_what_is_raised(steps):
    def fails():
        raise JobFailed("no quorum")

    with pytest.raises(JobFailed, match="no quorum"):
        steps.run("first", fails)
    assert steps.lost is None
    steps.moments.append("after")
    with pytest.raises(JobFailed, match="no quorum"):
        steps.run("second", fails)
    assert isinstance(steps.lost, Lost)


def test_what_only_informs_prefect_may_fail(steps):
    def fails():
        raise Lost

    steps.report(fails)
    assert isinstance(steps.lost, Lost)


@pytest.mark.slow
@pytest.mark.smoke
def test_a_process_of_a_worker_says_last_that_prefect_does_not_answer(tmp_path):
    from flareclust.flows.guard import _LOST

    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {"PREFECT_HOME": str(tmp_path), "PREFECT_CLIENT_MAX_RETRIES": "0", "PREFECT__FLOW_RUN_ID": str(uuid.uuid4())}
    done = subprocess.run(
        [sys.executable, "-m", "flareclust.flows.guard"],
        env=env | {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == _LOST
