"""Prefect's task runners for the trials of a sweep: processes of this machine, a Dask cluster, a Ray cluster.

A trial is sent as JSON values and measured from data that its worker loads. What is kept and logged stays in the process
that the command runs in, so a cluster needs neither MLflow nor the folder of the sweep.
"""

# No `from __future__ import annotations` here: Prefect cannot resolve string annotations of a task.

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any
from urllib.parse import urlsplit

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.server import server_for_workers, server_reached, stop_signals_blocked  # isort: split

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner

from flareclust._foundation.errors import UserError
from flareclust.experiment.sweeps.sweep import SweepRunner
from flareclust.experiment.sweeps.trials import Attempt, attempt_any, attempt_elsewhere, measure_message

#: Where Dask and Ray look for the address of a cluster themselves.
_ADDRESSES = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}


@task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def trial_task(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Measure one trial; `name` is what Prefect's page calls it."""
    return measure_message(message)


def task_runner(chosen: SweepRunner, workers: int) -> TaskRunner[Any]:
    """Return Prefect's task runner, not started; without an address it makes a cluster of `workers` processes.

    Raises:
        UserError: a package is missing.
    """
    chosen.require()
    runner: TaskRunner[Any]
    address = _address_of(chosen)
    if chosen.name == "processes":
        runner = ProcessPoolTaskRunner(max_workers=workers, initializer=_end_with_the_command)
    elif chosen.name == "dask":
        from prefect_dask.task_runners import DaskTaskRunner

        own = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        runner = DaskTaskRunner(address=address) if address else DaskTaskRunner(cluster_kwargs=own)
    elif chosen.name == "ray":
        from prefect_ray.task_runners import RayTaskRunner

        quiet = {"log_to_driver": False}
        own = {"num_cpus": workers, "include_dashboard": False, "configure_logging": False}
        runner = RayTaskRunner(address=address, init_kwargs=quiet if address else {**quiet, **own})
    else:
        raise ValueError(f"{chosen.name} needs no task runner")
    return runner


def _address_of(chosen: SweepRunner) -> str | None:
    """Return where the cluster is that a runner uses; None where it makes its own, or needs none."""
    return chosen.address or os.environ.get(_ADDRESSES.get(chosen.name, "")) or None


def _end_with_the_command() -> None:
    """Make a worker outlive Ctrl-C, which reaches all processes of a terminal, and end at once where the command was killed."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_after_command, name="end-after-command", daemon=True).start()


def _end_after_command() -> None:
    command = multiprocessing.parent_process()
    assert command is not None
    command.join()
    os._exit(1)  # nobody is there to take a result


@contextmanager
def attempts(chosen: SweepRunner, workers: int) -> Iterator[Attempt]:
    """Give what runs one trial at a time, for as many threads as call it; tasks of a flow where this is called in one.

    Raises:
        UserError: a package is missing, or the cluster or Prefect's server cannot be reached.
    """
    if chosen.local:
        yield attempt_any
        return
    runner = task_runner(chosen, workers)
    with server_reached(), server_for_workers(), started(runner, chosen):
        here = copy_context()  # with the flow and Prefect's settings, for threads that have neither

        def measure(message: dict[str, Any]) -> dict[str, Any]:
            name = "/".join([*message["cell"].values(), f"s{message['experiment']['seed']}"])
            future = here.copy().run(runner.submit, trial_task, {"name": name, "message": message})
            answer: dict[str, Any] = future.result()
            return answer

        yield partial(attempt_elsewhere, measure=measure)


def _check_listening(address: str) -> None:
    """Raise OSError where nobody listens at an address with host and port: Ray tries for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), timeout=10).close()


@contextmanager
def started(runner: TaskRunner[Any], chosen: SweepRunner) -> Iterator[None]:
    """Start the task runner, and stop it in the end; a cluster is left running where it was running before."""
    address = _address_of(chosen)
    try:
        if address:
            _check_listening(address)
        with stop_signals_blocked():
            runner.__enter__()
            if chosen.name == "dask":
                _ = runner.client  # type: ignore[attr-defined]  # connects; else the first trial would
    except (OSError, ValueError, RuntimeError) as error:
        place = f" at {address}" if address else ""
        raise UserError(f"the {chosen.name} cluster{place} cannot be reached: {error}") from error
    try:
        yield
    finally:
        runner.__exit__(None, None, None)
