"""Sweeps in processes, on a real Dask cluster and on a real Ray cluster of this machine: as in threads, bit for bit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flareclust.studies.sweeps import sweep
from tests.mlflow_server import free_port
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

STUDY = {"name": "where", "data": "iris", "n_sites": 3, "algorithms": ["feca", "kfed"], "seeds": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """One Prefect server for all tests of this file; starting it takes seconds."""
    from prefect.testing.utilities import prefect_test_harness

    import flareclust.flows.sweep  # noqa: F401 - sets Prefect's switches before it is imported

    with prefect_test_harness(server_startup_timeout=int(PATIENCE)):
        yield


@pytest.fixture(scope="module")
def in_threads(tmp_path_factory):
    return found(sweep(STUDY, out=tmp_path_factory.mktemp("threads") / "out"))


def found(result):
    """Return what all trials came to, without seconds."""
    return [
        (one.trial.name, one.error, one.measured and (one.measured.final, one.measured.rounds)) for one in result.trials
    ]


@contextmanager
def running(command: list[str], ready: str) -> Iterator[None]:
    """Start a program of a cluster, wait for its line with `ready`, and end it in the end."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if ready in line:
                break
        else:
            pytest.fail(f"{command[0]} ended: {''.join(lines)}")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_processes(server, in_threads, tmp_path):
    assert found(sweep(STUDY, runner="processes", out=tmp_path / "out")) == in_threads


@pytest.mark.nightly
def test_a_dask_cluster_of_two_workers_tracked(server, in_threads, tmp_path, monkeypatch):
    pytest.importorskip("prefect_dask", reason="prefect-dask is not installed: pip install 'flareclust[dask]'")
    from mlflow import MlflowClient

    store = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    port, dask = str(free_port()), [sys.executable, "-m", "dask"]
    address = f"tcp://127.0.0.1:{port}"
    scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
    worker = [*dask, "worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
    with running(scheduler, "Scheduler at"), running(worker, "Registered to"):
        result = sweep(STUDY, runner=f"dask:{address}", track=True, out=tmp_path / "out")
    assert found(result) == in_threads
    assert MlflowClient(store).get_run(result.run_id).data.metrics["trials/done"] == 4


@pytest.mark.nightly
def test_a_ray_cluster(server, in_threads, tmp_path):
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'flareclust[ray]'")
    pytest.importorskip("prefect_ray", reason="prefect-ray is not installed: pip install 'flareclust[ray]'")
    port, program = str(free_port()), os.path.join(os.path.dirname(sys.executable), "ray")
    start = [
        "start",
        "--head",
        "--node-ip-address",
        "127.0.0.1",
        "--port",
        port,
        "--num-cpus",
        "2",
        "--include-dashboard=false",
        "--block",
    ]
    try:
        with running([program, *start, "--disable-usage-stats"], "Ray runtime started"):
            assert found(sweep(STUDY, runner=f"ray:127.0.0.1:{port}", out=tmp_path / "out")) == in_threads
    finally:
        ray.shutdown()
