"""The command `flareclust sweep` in a process of its own: interrupted, and without tracking."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.flows.sweep_runs import parent_and_children
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_an_interrupt_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    """A terminal sends the interrupt to every process of its group."""
    from mlflow import MlflowClient

    (tmp_path / "s.toml").write_text(
        'name = "s"\ndata = "iris"\nclients = 3\nseeds = 60\nalgorithms = ["kfed", "feca"]\nworkers = 1\n'
    )
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect")}
    command = [sys.executable, "-m", "flareclust.cli", "sweep", "s.toml"]
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
    (tmp_path / "s.toml").write_text('name = "s"\ndata = "iris"\nclients = 3\nseeds = 1\nalgorithms = ["kfed"]\n')
    code = (
        "import sys\nfrom flareclust.cli.main import main\n"
        "try:\n    main(['sweep', 's.toml', '--no-track'])\nexcept SystemExit as done:\n    assert not done.code\n"
        "assert not {'mlflow', 'prefect'} & set(sys.modules), 'imported'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
