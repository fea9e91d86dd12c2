"""Prefect's task runner for each of a sweep's runners; none is started."""

import pickle
import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment.sweeps import sweep as sweep_settings
from tests.mlflow_server import free_port


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    for name in ("DASK_SCHEDULER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def test_processes_are_those_of_prefect():
    from prefect.task_runners import ProcessPoolTaskRunner

    from flareclust.flows.runners import task_runner

    runner = task_runner(sweep_settings.SweepRunner("processes"), 3)
    assert isinstance(runner, ProcessPoolTaskRunner)
    assert runner._max_workers == 3


def test_dask_makes_a_cluster_of_so_many_workers_or_takes_one_that_runs(monkeypatch):
    pytest.importorskip("prefect_dask", reason="prefect-dask is not installed: pip install 'flareclust[dask]'")
    from flareclust.flows.runners import task_runner

    own = task_runner(sweep_settings.SweepRunner("dask"), 3)
    assert own.address is None
    assert (own.cluster_kwargs["n_workers"], own.cluster_kwargs["threads_per_worker"]) == (3, 1)
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://10.0.0.6:8786")
    assert task_runner(sweep_settings.SweepRunner("dask"), 3).address == "tcp://10.0.0.6:8786"
    assert task_runner(sweep_settings.SweepRunner("dask", "tcp://10.0.0.5:8786"), 3).address == "tcp://10.0.0.5:8786"


def test_ray_makes_a_cluster_of_so_many_cores_or_takes_one_that_runs(monkeypatch):
    pytest.importorskip("prefect_ray", reason="prefect-ray is not installed: pip install 'flareclust[ray]'")
    from flareclust.flows.runners import task_runner

    assert task_runner(sweep_settings.SweepRunner("ray"), 3).init_kwargs["num_cpus"] == 3
    assert task_runner(sweep_settings.SweepRunner("ray"), 3).address is None
    named = task_runner(sweep_settings.SweepRunner("ray", "ray://head:10001"), 3)
    assert named.address == "ray://head:10001"
    assert "num_cpus" not in named.init_kwargs, "Ray refuses it for a cluster that runs already"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.6:6379")
    assert task_runner(sweep_settings.SweepRunner("ray"), 3).address == "10.0.0.6:6379"


@pytest.mark.parametrize(("name", "scheme"), [("dask", "tcp://"), ("ray", "ray://"), ("ray", "")])
def test_a_cluster_where_nobody_listens_is_an_error_at_once(name, scheme):
    """Ray would try for minutes."""
    pytest.importorskip(f"prefect_{name}", reason=f"prefect-{name} is not installed: pip install 'flareclust[{name}]'")
    from flareclust.flows.runners import started, task_runner

    chosen = sweep_settings.SweepRunner(name, f"{scheme}127.0.0.1:{free_port()}")
    with (
        pytest.raises(UserError, match=f"the {name} cluster at {chosen.address} cannot be reached"),
        started(task_runner(chosen, 2), chosen),
    ):
        pytest.fail("it was started")


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:abc", "tcp://127.0.0.1:99999", "tcp://[::1", f"tcp://{'a' * 64}:1"]
)
def test_an_address_that_is_none_is_an_error(address):
    pytest.importorskip("prefect_dask", reason="prefect-dask is not installed: pip install 'flareclust[dask]'")
    from flareclust.flows.runners import started, task_runner

    chosen = sweep_settings.SweepRunner("dask", address)
    with (
        pytest.raises(UserError, match=r"the dask cluster at tcp.* cannot be reached"),
        started(task_runner(chosen, 2), chosen),
    ):
        pytest.fail("it was started")


@pytest.fixture
def stand_in(monkeypatch):
    """A task runner that runs a task at once in this process, and needs no server; return what it did."""
    from flareclust.flows import runners

    did = []

    class Runner:
        def __enter__(self):
            did.append("start")

        def __exit__(self, *error):
            did.append("stop")

        def submit(self, task, parameters):
            did.append(parameters["name"])
            return SimpleNamespace(result=lambda: task.fn(**parameters))

    monkeypatch.setattr(runners, "task_runner", lambda chosen, workers: Runner())
    monkeypatch.setattr(runners, "server_for_workers", nullcontext)
    return did


def test_a_trial_goes_through_the_runner_and_comes_to_the_same(stand_in):
    from flareclust.flows.runners import attempts

    study = sweep_settings.Sweep(name="where", data="iris", n_sites=3, algorithms=["kfed"], seeds=1)
    (trial,) = sweep_settings.trials(study)
    with attempts(sweep_settings.SweepRunner(), 2) as here:
        expected = here(trial)
    assert stand_in == []
    with attempts(sweep_settings.SweepRunner("processes"), 2) as attempt:
        found = attempt(trial)
        broken = attempt(replace(trial, params={**trial.params, "data_digest": "other"}))
    assert found.measured.final == expected.measured.final
    assert "differ from those of the sweep" in broken.error
    assert stand_in[0] == "start"
    assert stand_in[1:] == [stand_in[1], stand_in[1], "stop"]
    assert stand_in[1].endswith("/s0")


def test_what_stays_in_this_process_is_not_sent_along_with_a_task():
    from flareclust.flows.runners import _Unsent

    here = _Unsent(threading.Lock())
    assert here.value is not None
    assert pickle.loads(pickle.dumps(here)).value is None
