"""The command `flareclust sweep` in a process of its own: interrupted, and without tracking."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from tests.integration.flows.sweep_runs import parent_and_children
from tests.living import naming, short_folder
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


def gone_on(command, where, trials, total):
    """Return the trials that a killed sweep has done, after the same command has done the rest."""
    before = trials.read_text().splitlines()
    assert 1 <= len(before) < total
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE, **where)
    assert again.returncode == 0, again.stderr
    reported = json.loads(again.stdout)
    assert (reported["resumed"], reported["done"]) == (len(before), total)
    return before


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_killed_sweep_in_processes_leaves_none_and_the_same_command_goes_on(tmp_path):
    (tmp_path / "s.toml").write_text(
        'name = "s"\ndata = "iris"\nn_sites = 3\nseeds = 6\nalgorithms = ["kfed"]\nrunner = "processes"\nworkers = 2\n'
    )
    trials = tmp_path / "out" / "trials.jsonl"
    command = [sys.executable, "-m", "flareclust", "sweep", "s.toml", "--no-track", "--out", "out", "--json"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT")}
    where = {"cwd": tmp_path, "env": own | {"PREFECT_HOME": str(tmp_path / "prefect")}}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where)
    try:
        while not (trials.exists() and trials.stat().st_size):
            assert process.poll() is None
            psutil.wait_procs([psutil.Process(process.pid)], timeout=0.05)
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3  # Prefect's server and two workers
        process.kill()
        process.wait()
        assert psutil.wait_procs(started, timeout=PATIENCE)[1] == []
        before = gone_on(command, where, trials, 6)
        assert set(before) <= set(trials.read_text().splitlines())
    finally:
        for left in (process, *naming(tmp_path)):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


@pytest.mark.nightly
def test_an_interrupt_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    """A terminal sends the interrupt to every process of its group."""
    from mlflow import MlflowClient

    (tmp_path / "s.toml").write_text(
        'name = "s"\ndata = "iris"\nn_sites = 3\nseeds = 60\nalgorithms = ["kfed", "feca"]\nworkers = 1\n'
    )
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect")}
    command = [sys.executable, "-m", "flareclust", "sweep", "s.toml"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    limit = threading.Timer(150, process.kill)
    limit.start()
    try:
        first = process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    finally:
        limit.cancel()
        process.kill()
        process.wait()
    assert first.startswith("12 of 120 trials, "), first + errors
    assert process.returncode == 130, errors
    assert out == ""
    words = errors.splitlines()[-1].split()
    assert words[:2] == ["error:", "interrupted;"], errors
    assert " ".join(words[3:]) == "of 120 trials are done and kept, the same command does the others"
    assert "Traceback" not in errors
    (kept,) = (tmp_path / "flareclust-sweeps").glob("*/*")
    assert (kept.name, len(kept.read_text().splitlines())) == ("trials.jsonl", int(words[2]))

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    parent, before = parent_and_children(client, "flareclust")
    assert parent.info.status == "KILLED"
    assert {run.info.status for run in before.values()} == {"FINISHED"}
    assert 12 <= len(before) == int(words[2]) < 120

    again = subprocess.run(
        [*command, "--json"],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert again.returncode == 0, again.stderr
    reported = json.loads(again.stdout)
    assert (reported["resumed"], reported["done"], reported["run_id"]) == (len(before), 120, parent.info.run_id)
    parent, after = parent_and_children(client, "flareclust")
    assert parent.info.status == "FINISHED"
    assert len(after) == 120
    assert {name: after[name].info.end_time for name in before} == {n: run.info.end_time for n, run in before.items()}
    assert all(Path(file).is_file() for file in (tmp_path / name for name in reported["files"]))


def test_without_tracking_neither_prefect_nor_mlflow_is_imported(tmp_path):
    (tmp_path / "s.toml").write_text('name = "s"\ndata = "iris"\nn_sites = 3\nseeds = 1\nalgorithms = ["kfed"]\n')
    code = (
        "import sys\nfrom flareclust.cli.main import main\n"
        "try:\n    main(['sweep', 's.toml', '--no-track'])\nexcept SystemExit as done:\n    assert not done.code\n"
        "assert not {'mlflow', 'prefect'} & set(sys.modules), 'imported'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
def test_a_killed_sweep_goes_on_with_the_same_command_and_leaves_no_federation(tmp_path):
    """Nothing can be cleaned up by a process that is killed: the next one does it."""
    (tmp_path / "s.toml").write_text(
        'name = "s"\ndata = "iris"\nn_sites = 3\nseeds = 3\nalgorithms = ["kfed"]\nengine = "simulator"\nworkers = 1\n'
    )
    temporary, trials = Path(tempfile.mkdtemp(dir=short_folder())), tmp_path / "out" / "trials.jsonl"
    command = [sys.executable, "-m", "flareclust", "sweep", "s.toml", "--no-track", "--out", "out", "--json"]
    where = {"cwd": tmp_path, "env": os.environ | {"TMPDIR": str(temporary)}}
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where
    )
    try:
        # Until a trial is done, and processes of the next one are there.
        while not (trials.exists() and trials.stat().st_size and len(naming(temporary)) > 1):
            assert process.poll() is None
            psutil.wait_procs([psutil.Process(process.pid)], timeout=0.05)
        process.kill()
        process.wait()
        before = gone_on(command, where, trials, 3)
        assert trials.read_text().splitlines()[: len(before)] == before
        assert naming(temporary) == []
        assert list(temporary.iterdir()) == []
    finally:
        for left in (process, *naming(temporary)):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        shutil.rmtree(temporary, ignore_errors=True)
