"""NVFlare's simulator: the same bits as in-process, faults named by site, nothing left behind."""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform import simulator
from flareclust.platform.simulator import run_simulator
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.protocol.registry import Algorithm, get
from flareclust.testing import iid_sites
from tests.living import short_folder
from tests.paths import TESTS
from tests.patience import PATIENCE
from tests.same_outcome import OPTIONS, PRIVATE, RUNS, case_of, cases_of, check_same


@pytest.fixture
def faulty(monkeypatch) -> Algorithm:
    """The algorithm of tests/faulty.py, importable here and in the sites' processes."""
    folder = TESTS
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert importlib.util.find_spec("faulty")
    return Algorithm("faulty", "misbehaves", "faulty.FaultyExecutor", "faulty.FaultyAggregator")


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A TMPDIR that is short enough for NVFlare, by whose name the processes of a test are known."""
    with tempfile.TemporaryDirectory(prefix="t-", dir=short_folder()) as folder:
        yield Path(folder)


def processes_of(mark: str) -> list[str]:
    lines = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return [line for line in lines if mark in line]


def at_work(temporary: Path) -> bool:
    """Return whether the process of a simulated site has begun."""
    return any(temporary.glob("fc-*/*/workspace/site-*/log.txt"))


def _simulated(name: str, algorithm: Algorithm, number: int) -> object:
    """Return a run of an algorithm; tests/unit/platform/test_adapter.py has all of them, without processes."""
    marks = {
        "feca": [pytest.mark.smoke, pytest.mark.slow],
        "deepfeca": [pytest.mark.smoke, pytest.mark.slow],
        "proxy": [pytest.mark.slow],  # test_resume.py has lloyd
    }
    return pytest.param(algorithm, number, marks=marks.get(algorithm.name, [pytest.mark.nightly]), id=name)


@pytest.mark.parametrize(("algorithm", "number"), [_simulated(name, *run) for name, run in RUNS.items()])
def test_simulator_equals_inprocess_bit_for_bit(algorithm, number, tmp_path):
    sites, params = cases_of(algorithm)[number]
    seen = []
    there = run_simulator(algorithm, params, sites, OPTIONS, tmp_path, seen.append)
    check_same(algorithm, there, number)
    assert [r["step"] for r in seen] == [r["step"] for r in there.rounds]
    assert list(tmp_path.iterdir()) == [], "the simulator left files"
    assert not processes_of(str(tmp_path)), "the simulator left processes"


@pytest.mark.slow
def test_nvflares_own_start_gives_the_same_result(monkeypatch, tmp_path):
    monkeypatch.setattr(simulator, "_starts_by_itself", lambda: True)
    algorithm = get("feca")
    sites, params = case_of(algorithm)
    check_same(algorithm, run_simulator(algorithm, params, sites, OPTIONS, tmp_path))
    assert not processes_of(str(tmp_path)), "the simulator left processes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [PRIVATE[0], *(pytest.param(one, marks=pytest.mark.nightly) for one in PRIVATE[1:])],
    ids=lambda a: a.name,
)
def test_private_algorithms_find_the_same_clusters_in_both_engines(algorithm, tmp_path):
    sites, centers = iid_sites(m=3, k=5)
    policy = Policy(dp=DifferentialPrivacy(bounds=(-20.0, 20.0), epsilon=20.0, delta=1e-4, budget=20.0))
    there, here = (
        run(algorithm, {"epsilon": 15.0}, sites, JobOptions(k=5, seed=3), *folder, policy=policy)
        for run, folder in ((run_simulator, [tmp_path]), (run_inprocess, []))
    )
    assert not there.refused
    assert set(there.arrays) == set(here.arrays)
    assert not np.array_equal(there.centroids, here.centroids), "the noise came from the seed"
    for found in (there, here):
        nearest = np.sqrt(((centers[:, None] - found.centroids[None]) ** 2).sum(axis=2)).min(axis=1)
        assert nearest.max() < 5, "a cluster was not found"


@pytest.mark.slow
def test_faulty_sites_are_named_and_the_others_go_on(faulty, tmp_path, sites):
    many = {f"site-{i}": rows for i, rows in enumerate([*sites.values(), *sites.values(), *sites.values()], 1)}
    faults = {
        "site-1": "raises",
        "site-2": "never answers",
        "site-3": "wrong columns",
        "site-4": "missing array",
        "site-5": "wrong kind",
        "site-6": "error code",
        "site-7": "unknown object",
        "site-8": "references",
    }
    outcome = run_simulator(
        faulty, {"faults": faults}, many, JobOptions(k=1, min_sites=4, task_timeout=40, assess=False), tmp_path
    )
    assert outcome.refused == {
        "site-1": "raised ZeroDivisionError; the traceback is at the site, in flareclust_error.txt",
        "site-2": "did not answer in time",
        "site-3": "has 4 columns where 4 other sites have 3",
        "site-4": "sent a bad reply: expected the arrays ['centroids', 'counts']; "
        "missing ['centroids', 'counts'], not expected ['rows']",
        "site-5": "sent a DXO of kind METRICS where WEIGHTS was expected",
        "site-6": "failed with NVFlare's return code BAD_TASK_DATA; log.txt of the job there says why, such as a full disk",
        "site-7": "sent a reply that cannot be decoded (ValueError)",
        "site-8": "sent references to arrays in the place of arrays",
    }
    rest = [many[f"site-{i}"].mean(axis=0) for i in (10, 11, 12, 9)]
    np.testing.assert_array_equal(outcome.centroids[0], np.mean([m[None] for m in rest], axis=0)[0])
    assert not processes_of(str(tmp_path))


@pytest.mark.slow
def test_below_the_quorum_the_reason_reaches_the_user_without_data(faulty, tmp_path, sites, caplog):
    with caplog.at_level(logging.ERROR), pytest.raises(JobFailed) as caught:
        run_simulator(
            faulty, {"faults": {"site-2": "raises"}}, sites, JobOptions(k=1, min_sites=4, task_timeout=600), tmp_path
        )
    assert "3 of 4 sites took part where at least 4 are needed" in str(caught.value)
    assert "site-2 raised ZeroDivisionError" in str(caught.value)
    assert "123456" not in str(caught.value), "the text of an exception left the site"
    assert "123456" in caplog.text, "in the simulator the site's traceback is shown to its user"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "again"),
    [
        pytest.param(signal.SIGINT, (), id="ctrl-c"),
        pytest.param(signal.SIGTERM, (0.5,), id="terminated twice"),
        # One handler serves all signals; tests/unit/cli/test_interrupts.py sends it each of them, once and again.
        pytest.param(signal.SIGINT, (0.05, 0.05), id="ctrl-c three times", marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, (), id="terminated", marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, (), id="terminal closed", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_leaves_nothing(number, again, tmp_path, short_tmp):
    """The command is stopped once its sites run; their names make them known, for they are in other sessions."""
    with _running_sites(tmp_path, short_tmp) as process:
        process.send_signal(number)
        for seconds in again:
            time.sleep(seconds)
            process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    # A last signal may come while Python itself ends, which has given up the handlers by then.
    assert process.returncode in ((130, -number) if again else (130,)), errors
    assert b"interrupted" in errors
    assert not processes_of(str(short_tmp))
    assert list(short_tmp.iterdir()) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_a_killed_run_leaves_goes_when_the_next_one_begins(tmp_path, short_tmp):
    with _running_sites(tmp_path, short_tmp) as process:
        process.kill()
        process.communicate(timeout=PATIENCE)
    (left,) = short_tmp.glob("fc-*/simulator-1")
    assert list(left.glob("data/*.npy")), "the rows of the sites are there, or this test shows nothing"
    time.sleep(5)  # younger folders are left alone
    code = "from flareclust.platform.scratch import scratch_folder\nwith scratch_folder():\n    pass"
    environment = os.environ | {"TMPDIR": str(short_tmp)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=PATIENCE)
    assert not processes_of(str(short_tmp))
    assert list(short_tmp.iterdir()) == []


@contextmanager
def _running_sites(folder: Path, temporary: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Give the process of a run in the simulator whose sites run."""
    command = [sys.executable, "-m", "flareclust", "run", "minibatch", "--data", "iris", "--n-sites", "3"]
    command += ["--set", "rounds=10000", "--no-track", "--out", str(folder / "out")]
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        end = time.monotonic() + PATIENCE
        while not at_work(temporary):
            assert time.monotonic() < end, "the sites did not start"
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_ctrl_c_in_a_tracked_run_ends_it_within_seconds(tmp_path, short_tmp):
    """A terminal sends the interrupt to every process of its group."""
    command = [sys.executable, "-m", "flareclust", "run", "minibatch", "--data", "iris", "--n-sites", "2"]
    command += ["--set", "rounds=10000"]
    environment = os.environ | {"TMPDIR": str(short_tmp), "PREFECT_HOME": str(tmp_path / "prefect")}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        end = time.monotonic() + PATIENCE
        while not at_work(short_tmp):
            assert time.monotonic() < end, "the sites did not start"
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, errors
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert not (tmp_path / "flareclust-runs").exists()
    assert not processes_of(str(short_tmp))


@pytest.mark.slow
def test_a_recipe_runs_in_nvflares_own_environment(tmp_path, sites):
    from nvflare.recipe.sim_env import SimEnv

    import flareclust
    from flareclust.protocol.outcome import read

    for site, rows in sites.items():
        np.save(tmp_path / f"{site}.npy", rows)
    recipe = flareclust.recipe("feca", k=4, seed=3, rows=str(tmp_path / "{site}.npy"))
    recipe.run(SimEnv(num_clients=4, workspace_root=str(tmp_path / "ws"), log_config="ERROR"))
    outcome, about = read(tmp_path / "ws" / "feca" / "server" / "simulate_job")
    here = run_inprocess(get("feca"), {}, sites, JobOptions(k=4, seed=3))
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    assert about["algorithm"] == "feca"


def test_many_sites_take_turns(monkeypatch):
    monkeypatch.setattr(simulator.os, "sched_getaffinity", lambda pid: {0, 1})
    assert [simulator.threads_for(m) for m in (1, 10, 32, 33, 100)] == [1, 10, 32, 12, 12]
