"""How Prefect runs the trials of a study: as tasks of a flow, in threads, processes, a Dask cluster or a Ray cluster.

Trials are tasks and not flows of their own, because a flow takes a second even where it does nothing.
A trial is sent as JSON values and measured from data that its worker loads. What is kept and logged stays in the process
that the command runs in, so a cluster needs neither MLflow nor the folder of the sweep.
"""

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any
from urllib.parse import urlsplit

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.server import (  # isort: split
    PREFECT_LOST,
    server_for_workers,
    server_reached,
    short_retries,
    stop_signals_blocked,
)

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.flows.pages import StudyPage, show_study

#: Where Dask and Ray look for the address of a cluster themselves.
_ADDRESSES = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}


@task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE, persist_result=False)
def trial_task(name: str, message: dict[str, Any]) -> dict[str, Any]:
    """Measure one trial; `name` is what Prefect's page calls it."""
    return study_trials.measure_message(message)


def task_runner(chosen: sweep_settings.SweepRunner, workers: int) -> TaskRunner[Any]:
    """Return Prefect's task runner, not started; without an address it makes a cluster of `workers` processes.

    It raises UserError where a package is missing.
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


def _address_of(chosen: sweep_settings.SweepRunner) -> str | None:
    """Return where the cluster is that a runner uses; None where it makes its own, or needs none."""
    return chosen.address or os.environ.get(_ADDRESSES.get(chosen.name, "")) or None


def _end_with_the_command() -> None:
    """Make a worker outlive Ctrl-C, which reaches all processes of a terminal, and end at once where the command was killed."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def end_after_command() -> None:
        command = multiprocessing.parent_process()
        assert command is not None
        command.join()
        os._exit(1)  # nobody is there to take a result

    threading.Thread(target=end_after_command, name="end-after-command", daemon=True).start()


@contextmanager
def attempts(chosen: sweep_settings.SweepRunner, workers: int) -> Iterator[study_trials.Attempt]:
    """Give what runs one trial at a time, for as many threads as call it; tasks of a flow where this is called in one.

    Raises:
        UserError: a package is missing, or the cluster or Prefect's server cannot be reached.
    """
    if chosen.local:
        yield study_trials.attempt_any
        return
    runner = task_runner(chosen, workers)
    with server_reached(), server_for_workers(), started(runner, chosen):
        here = copy_context()  # with the flow and Prefect's settings, for threads that have neither

        def measure(message: dict[str, Any]) -> dict[str, Any]:
            name = "/".join([*message["cell"].values(), f"s{message['experiment']['seed']}"])
            future = here.copy().run(runner.submit, trial_task, {"name": name, "message": message})
            answer: dict[str, Any] = future.result()
            return answer

        yield partial(study_trials.attempt_elsewhere, measure=measure)


def _tasks_here(trials: int) -> study_trials.Attempt:
    """Return what runs a trial as a task in the thread that calls it, in the flow in whose function this is called."""
    page, here = StudyPage(trials), copy_context()
    lost: list[Exception] = []

    def attempt(trial: study_trials.Trial) -> study_trials.TrialRun:
        kept: list[study_trials.TrialRun] = []

        @task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE)
        def trial_task(name: str) -> State[Any]:
            kept.append(done := study_trials.attempt_any(trial))
            page.trial_over()
            return Completed(message="done") if done.error is None else Failed(message=done.error)

        if not lost:
            try:
                here.copy().run(trial_task, trial.name, return_state=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about Prefect's pages only
                lost.append(error)
        return kept[0] if kept else study_trials.attempt_any(trial)

    return attempt


def as_tasks(
    run: study_trials.RunMissing, missing: int, chosen: sweep_settings.SweepRunner, workers: int, page: str | None
) -> State[Any]:
    """Run so many missing trials of a study as tasks of the flow in whose function this is called; return how that ended.

    `page` is the address of the study in MLflow.
    """
    with nullcontext(_tasks_here(missing)) if chosen.local else attempts(chosen, workers) as attempt:
        done = run(attempt)
    show_study(done, page)
    found = StudySummary.of(done)
    return Failed(message=found.failure) if found.failed else Completed(message=f"{missing} trials run")


def run_as_flow(
    study: str,
    run: study_trials.RunMissing,
    missing: int,
    chosen: sweep_settings.SweepRunner,
    workers: int,
    page: str | None,
) -> str:
    """Run the missing trials in a flow, and where Prefect fails without it; return what it failed with, in words.

    What ended the flow is raised. Failed trials do not. The arguments are those of `as_tasks`, and the study's name.
    """
    entered: list[str] = []
    ended: list[State[Any]] = []

    def body() -> State[Any]:
        ended.append(state := as_tasks(run, missing, chosen, workers, page))
        return state

    here = _Unsent(body)  # Prefect sends a flow along with its tasks, and this study has files and locks

    @flow(name="flareclust-trials", flow_run_name="{name}", persist_result=False)
    def trials_flow(name: str) -> State[Any]:
        entered.append(name)
        return here.value()  # type: ignore[no-any-return]

    try:
        with server_reached(), short_retries(), server_for_workers():
            state = trials_flow(study, return_state=True)
            if not ended:
                state.result()
    except TerminationSignal:  # what Prefect makes of SIGTERM
        raise KeyboardInterrupt from None
    except FlareclustError:
        raise
    except Exception as error:
        if not entered:
            raise
        if not ended:
            run(study_trials.attempt_any)
        return f"{PREFECT_LOST} ({type(error).__name__})"
    return ""


@contextmanager
def started(runner: TaskRunner[Any], chosen: sweep_settings.SweepRunner) -> Iterator[None]:
    """Start the task runner, and stop it in the end; a cluster is left running where it was running before."""
    address = _address_of(chosen) or ""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        if parts.hostname and parts.port:  # where nobody listens, Ray tries for minutes
            socket.create_connection((parts.hostname, parts.port), timeout=10).close()
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


class _Unsent:
    """Holds a value of this process; a copy that is sent to another process holds None."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type["_Unsent"], tuple[()]]:
        return _Unsent, ()
