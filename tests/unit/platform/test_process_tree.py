"""Processes that are looked for again until none is left."""

import os
import subprocess
import sys

import psutil
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.platform.poc import processes as poc_processes
from flareclust.platform.process_tree import end_all, ended


@pytest.fixture
def waiting():
    """A process that waits for its end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_a_process_that_the_system_does_not_show_has_ended(waiting, monkeypatch):
    assert not ended(waiting)

    def refuse():
        raise psutil.AccessDenied(waiting.pid)

    monkeypatch.setattr(waiting, "is_running", refuse)
    assert ended(waiting)


def test_all_are_ended_also_one_that_is_seen_at_the_second_look(waiting):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        found = [[waiting], [psutil.Process(later.pid)], []]
        assert end_all(lambda: found.pop(0), 20) == 2
    assert ended(waiting)


def test_those_that_cannot_be_ended_are_named(waiting):
    with pytest.raises(JobFailed, match=f"processes {waiting.pid} could not be ended"):
        end_all(lambda: [waiting], -1)
    assert not ended(waiting)


def test_a_pocs_processes_are_those_of_its_folder_alone(waiting, tmp_path):
    """They are ended in any state."""
    assert poc_processes.family(tmp_path) == []
    of_the_poc = os.environ | {poc_processes._MARK: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=of_the_poc) as own:
        assert poc_processes.family(tmp_path) == [psutil.Process(own.pid)]
        own.kill()
