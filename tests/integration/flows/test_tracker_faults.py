"""Trackers that die while a job runs: the result is in its folder, the command ends well, and `flareclust log` does the rest."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from flareclust.tracking.runs import Tracker
from tests.mlflow_server import free_port, kill, mlflow_server, process_group, wait_until_healthy
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

#: The command line, with a fault when the first round of a run, or the first trial of a sweep, is over.
COMMAND = """
import contextlib, os, signal, sqlite3, sys
import psutil
from flareclust.experiment.reports import terminal
from flareclust.experiment.sweeps import report as sweep_report

held = []

def killed(pid):
    os.killpg(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) and os.getpid() == psutil.Process(pid).ppid() else [])

def stopped(pid):
    os.killpg(pid, signal.SIGSTOP)

def locked(file):
    held.append(sqlite3.connect(file, isolation_level=None))
    held[0].execute("BEGIN EXCLUSIVE")

def filled(folder):
    with contextlib.suppress(OSError), open(folder + "/filler", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

happened = []

def fault(record):
    if not happened:
        happened.append(record)
        FAULT
        open("happened", "w").close()

@contextlib.contextmanager
def progress(experiment):
    yield fault

@contextlib.contextmanager
def sweep_progress(n):
    fault.n, fault.failed = 0, 0
    yield fault

terminal.progress, sweep_report.sweep_progress = progress, sweep_progress
from flareclust.cli.main import main
main(sys.argv[1:])
"""

#: Within which the command is over, from the fault on.
SECONDS = 240

RUN = ("run", "feca", "--data", "iris", "--n-sites", "3", "--out", "out", "--json")
IN_PROCESS = (*RUN, "--engine", "inprocess")
SWEEP = 'name = "s"\ndata = "iris"\nn_sites = 3\nseeds = 3\nalgorithms = ["kfed"]\n'
SWEEPS = ("sweep", "s.toml", "--out", "out", "--json")


def command(
    folder: Path, *args: str, fault: str = "pass", uri: str | None = None, prefect: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder; the fault is a statement, `prefect` the address of a server to report to."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "PREFECT_"))}
    env |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    env |= {} if prefect is None else {"PREFECT_API_URL": prefect}
    happened = folder / "happened"
    happened.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.replace("FAULT", fault), *args],
        cwd=folder,
        env=env if uri is None else env | {"MLFLOW_TRACKING_URI": uri},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )
    if happened.exists():
        seconds = time.time() - happened.stat().st_mtime
        print(f"{fault}: {seconds:.1f} s until the command was over")
        assert seconds < SECONDS, done.stderr
    return done


def only_warning(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one warning of a command that ended well and said nothing else, but that it wrote no checkpoint."""
    said = [line for line in done.stderr.splitlines() if "no checkpoint was written" not in line]
    assert (done.returncode, said) == (0, [])
    (warning,) = json.loads(done.stdout)["warnings"]
    return str(warning)


def only_run(uri: str):
    """Return a client, and the only run of the store that is nobody's child."""
    tracker = Tracker(uri)
    runs = tracker._client.search_runs([tracker._experiment_id])
    (run,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    return tracker._client, run


def assert_logged(folder: Path, uri: str) -> None:
    """Log the folder `out`, twice, and see that the run has everything once."""
    first, second = command(folder, "log", "out", uri=uri), command(folder, "log", "out", uri=uri)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    client, run = only_run(uri)
    assert first.stdout == f"out was logged as run {run.info.run_id}\n"
    assert second.stdout == f"out is already in MLflow as run {run.info.run_id}\n"
    assert run.info.status == "FINISHED"
    assert {name.split("/")[0] for name in run.data.metrics} == {"final", "cost", "round"}
    for name in run.data.metrics:
        assert len(client.get_metric_history(run.info.run_id, name)) == 1
    kept = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"centroids.npz", "picture.png", "result.json", "rounds.jsonl"} <= kept


@pytest.fixture
def store(tmp_path) -> str:
    """A SQLite store in the folder of the test."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    Tracker(uri)
    return uri


def test_an_mlflow_server_that_is_killed_costs_no_result(tmp_path):
    port = free_port()
    with mlflow_server(tmp_path, port) as (uri, process):
        done = command(tmp_path, *IN_PROCESS, fault=f"killed({process.pid})", uri=uri)
        kill(process)
    warning = only_warning(done)
    assert "\n" not in warning
    for part in (f"in {tmp_path}/out", "missing are metrics and files, the rounds, the model", f"127.0.0.1:{port}"):
        assert part in warning
    assert f"log it later with: flareclust log {tmp_path}/out --uri {uri}" in warning
    assert (tmp_path / "out" / "result.json").exists()
    refused = command(tmp_path, "log", "out", uri=uri)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: no MLflow server answers at 127.0.0.1:{port}")
    with mlflow_server(tmp_path, port):
        assert_logged(tmp_path, uri)


def test_an_mlflow_server_that_accepts_and_never_answers_costs_no_result(tmp_path):
    """A stopped process: the kernel takes its connections."""
    with mlflow_server(tmp_path) as (uri, process):
        done = command(tmp_path, *IN_PROCESS, fault=f"stopped({process.pid})", uri=uri)
        os.killpg(process.pid, signal.SIGCONT)
        warning = only_warning(done)
        assert f"in {tmp_path}/out" in warning
        assert f"log it later with: flareclust log {tmp_path}/out --uri {uri}" in warning
        assert (tmp_path / "out" / "result.json").exists()
        assert_logged(tmp_path, uri)


def test_a_store_that_another_process_has_locked_costs_no_result(tmp_path, store):
    done = command(tmp_path, *IN_PROCESS, fault=f"locked('{tmp_path}/mlflow.db')", uri=store)
    assert "cannot be written (database is locked)" in only_warning(done)
    assert_logged(tmp_path, store)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of this size; leave the test out where that is not permitted."""
    folder.mkdir()
    mounted = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=False).returncode == 0
    )
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)  # this process may have the store open


def test_a_store_on_a_full_disk_costs_no_result(tmp_path, store):
    with small_disk(tmp_path / "disk", "16m"):
        shutil.move(tmp_path / "mlflow.db", tmp_path / "disk")
        uri = f"sqlite:///{tmp_path}/disk/mlflow.db"
        done = command(tmp_path, *IN_PROCESS, fault=f"filled('{tmp_path}/disk')", uri=uri)
        assert "the MLflow store failed" in only_warning(done)
        (tmp_path / "disk" / "filler").unlink()
        assert_logged(tmp_path, uri)


def test_an_out_folder_on_a_full_disk_costs_no_result(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with small_disk(tmp_path / "disk", "1m"):
        out = ("--no-track", "--out", "disk/out")
        done = command(tmp_path, *IN_PROCESS, *out, fault=f"filled('{tmp_path}/disk')")
        (kept,) = (tmp_path / "state" / "flareclust" / "results").iterdir()
        assert only_warning(done).startswith(
            f"the result is in {kept}: {tmp_path}/disk/out cannot be written to (No space left"
        )
        assert json.loads(done.stdout)["centroids_file"] == str(kept / "result.npz")
        again = command(tmp_path, *IN_PROCESS, *out)
        assert (again.returncode, again.stdout) == (2, "")
        assert "cannot be written to (No space left on device)" in again.stderr


@contextlib.contextmanager
def prefect_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Start a Prefect server; give the address of its API, and its process, which leads a group."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    env = os.environ | {"PREFECT_HOME": str(folder / "server"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with process_group(command, env=env, cwd=folder, **quiet) as process:
        wait_until_healthy(process, url)
        yield url, process.pid


def test_a_prefect_server_that_is_killed_costs_no_result(tmp_path, store):
    with prefect_server(tmp_path) as (url, pid):
        done = command(tmp_path, *RUN, fault=f"killed({pid})", uri=store, prefect=url)
    assert only_warning(done).startswith("Prefect's server stopped answering")
    _, run = only_run(store)
    assert run.info.status == "FINISHED"
    assert {"final/ari", "round/sites"} <= set(run.data.metrics)


def test_a_run_that_reports_to_prefect_says_nothing_else_and_its_page_has_the_rounds(tmp_path, store):
    with prefect_server(tmp_path) as (url, _):
        done = command(tmp_path, *RUN, uri=store, prefect=url)
        request = urllib.request.Request(f"{url}/logs/filter", b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            logs = [line["message"] for line in json.load(answer)]
    assert (done.returncode, done.stderr) == (0, "")
    assert {"cluster, round 0: 3 sites", "assess, round 1: 3 sites"} <= set(logs)


def test_a_prefect_server_that_is_killed_costs_no_trial_of_a_sweep(tmp_path, store):
    (tmp_path / "s.toml").write_text(SWEEP)
    with prefect_server(tmp_path) as (url, pid):
        done = command(tmp_path, *SWEEPS, fault=f"killed({pid})", uri=store, prefect=url)
    assert only_warning(done).startswith("Prefect's server stopped answering")
    assert_all_trials(tmp_path, store, done)


def test_a_store_that_is_locked_costs_no_trial_of_a_sweep(tmp_path, store):
    (tmp_path / "s.toml").write_text(SWEEP)
    done = command(tmp_path, *SWEEPS, fault=f"locked('{tmp_path}/mlflow.db')", uri=store)
    warning = only_warning(done)
    assert f"the means of s (all are in {tmp_path}/out) are not in MLflow: the MLflow store" in warning
    assert warning.endswith(f"log them later with: flareclust log {tmp_path}/out --uri {store}")
    logged = command(tmp_path, "log", "out", uri=store)
    assert logged.returncode == 0, logged.stderr
    assert_all_trials(tmp_path, store, done)


def assert_all_trials(folder: Path, store: str, done: subprocess.CompletedProcess[str]) -> None:
    """See that folder and store have all three trials, and that the sweep has nothing left to do."""
    assert json.loads(done.stdout)["done"] == 3
    assert len((folder / "out" / "trials.jsonl").read_text().splitlines()) == 3
    client, parent = only_run(store)
    assert (parent.info.status, parent.data.metrics["trials/done"]) == ("FINISHED", 3)
    children = client.search_runs([parent.info.experiment_id], filter_string="tags.kind = 'trial'")
    assert [(run.info.status, run.data.metrics["final/ari"] > 0) for run in children] == [("FINISHED", True)] * 3
    again = command(folder, *SWEEPS, uri=store)
    assert (again.returncode, json.loads(again.stdout)["warnings"]) == (0, [])
