"""What the simulator retries, notices and refuses, without starting it."""

import inspect
import subprocess
import sys
import time

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.engines.options import JobOptions
from flareclust.platform import simulator
from flareclust.platform.simulator import run_simulator
from flareclust.platform.simulator_watch import LOST_SITE, LostSite, Watch
from flareclust.protocol.registry import get


def test_a_recipe_for_the_simulator_must_say_where_rows_are(tmp_path):
    from nvflare.recipe.sim_env import SimEnv

    import flareclust

    with pytest.raises(UserError, match="rows="):
        flareclust.recipe("feca", k=4).run(SimEnv(num_clients=2, workspace_root=str(tmp_path)))


def test_a_lost_site_is_tried_again_a_few_times(monkeypatch, tmp_path, sites):
    tries = []

    def lose(scratch, algorithm, names, watch):
        tries.append(watch.last)
        if not watch.last:
            raise LostSite("site-2")
        raise JobFailed("as the quorum says")

    monkeypatch.setattr(simulator, "_simulate", lose)
    with pytest.raises(JobFailed, match="as the quorum says"):
        run_simulator(get("feca"), {}, sites, JobOptions(k=4), tmp_path)
    assert tries == [False, False, False, True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("last", "raised"), [(False, LostSite), (True, JobFailed)])
def test_a_lost_site_is_noticed_before_its_task_times_out(monkeypatch, tmp_path, sites, last, raised):
    """The command is replaced by one that says what the simulator says, and then ends."""
    words = "Communication error with client site-2: [Errno 104] Connection reset by peer"
    popen = subprocess.Popen
    seconds = 0.5 if last else 60

    def talk(command, **options):
        return popen(
            [sys.executable, "-c", f"import time; print({words!r}, flush=True); time.sleep({seconds})"], **options
        )

    monkeypatch.setattr(simulator.subprocess, "Popen", talk)
    (tmp_path / "workspace").mkdir()
    started = time.monotonic()
    watch = Watch(tmp_path, JobOptions(k=4), lambda record: None, None, 0, last=last)
    with pytest.raises(raised, match="site-2"):
        simulator._simulate(tmp_path, get("feca"), list(sites), watch)
    assert time.monotonic() - started < 30


def test_the_words_of_a_lost_site_are_nvflares():
    """The race is known by what NVFlare logs; another wording in a new version must not go unnoticed."""
    from nvflare.private.fed.app.simulator import simulator_runner, simulator_worker

    text = inspect.getsource(simulator_runner) + inspect.getsource(simulator_worker)
    for words in (
        "Communication error with client {client.client_name}: ",
        "Failed to create connection to the child process",
        "Could not connect to the server cell",
    ):
        assert words in text
        assert LOST_SITE.search(words.replace("{client.client_name}", "site-1"))


def test_a_python_that_nvflare_cannot_start_is_said_at_once(monkeypatch, tmp_path, sites):
    monkeypatch.setattr(simulator.sys, "executable", "/home/me/my tools/python")
    with pytest.raises(UserError, match="has a space"):
        run_simulator(get("feca"), {}, sites, JobOptions(k=4), tmp_path)


def test_a_recipe_whose_sites_would_read_one_file_is_refused(tmp_path):
    from nvflare.recipe.sim_env import SimEnv

    import flareclust

    with pytest.raises(UserError, match=r"must have \{site\} in it"):
        flareclust.recipe("feca", k=4, rows="rows.npy").run(SimEnv(num_clients=2, workspace_root=str(tmp_path)))


def test_more_sites_than_the_simulator_holds_is_said_at_once(tmp_path):
    sites = {f"site-{i}": np.ones((3, 2)) for i in range(101)}
    with pytest.raises(UserError, match="at most 100 sites, got 101"):
        run_simulator(get("feca"), {}, sites, JobOptions(k=2), tmp_path)
