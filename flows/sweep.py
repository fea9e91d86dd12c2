"""The flow of a study: every trial is a task, a few at a time; MLflow has a parent run and a run per trial.

Trials are tasks and not flows of their own, because a flow takes a second even where it does nothing. What a trial
does is in `flareclust.experiment.trials`, what is logged in `flareclust.tracking.sweep_runs`.
"""

# No `from __future__ import annotations` here: Prefect cannot resolve string annotations of a flow that it serves.

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.experiment import server_reached, start_server  # isort: split

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import wait
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flareclust.experiment.sweep import Sweep
from flareclust.experiment.sweep import trials as trials_of
from flareclust.experiment.sweep_report import write_files
from flareclust.experiment.trials import OnDone, Trial, TrialRun, attempt_any
from flareclust.tracking.sweep_runs import SweepTracker, failure

WORKERS = 2

log = logging.getLogger(__name__)


class _Study:
    """A list of trials under way: what is done already, what is missing."""

    def __init__(
        self, name: str, trials: Sequence[Trial], experiment: str, uri: str | None, workers: int, on_done: OnDone
    ) -> None:
        self.name, self.trials, self.workers, self.on_done = name, trials, workers, on_done
        self.tracker = SweepTracker(name, trials, uri, experiment)
        self.results: dict[int, TrialRun] = {}
        self.missing = list(range(len(trials)))

    def resume(self) -> None:
        """Take over what MLflow has."""
        self.results = self.tracker.finished()
        self.missing = [number for number in self.missing if number not in self.results]
        for done in self.results.values():
            self.on_done(done)

    def run(self, number: int) -> TrialRun:
        """Run and log one trial; one that cannot be logged counts as failed, so that it is tried again."""
        trial = self.trials[number]
        try:
            run_id = self.tracker.begin(number)
            done = attempt_any(trial)
            self.tracker.end(run_id, done)
        except Exception as error:  # MLflow's, of many kinds; the other trials may have better luck
            log.info("%s was not logged", trial.name, exc_info=True)
            done = TrialRun(trial, None, f"could not be logged: {error}")
        self.results[number] = done
        self.on_done(done)
        return done

    @property
    def done(self) -> list[TrialRun]:
        return [self.results[number] for number in range(len(self.trials))]

    def close(self) -> None:
        """Log the means, the table and the figure to the parent."""
        with tempfile.TemporaryDirectory() as scratch:
            self.tracker.close(self.done, write_files(self.name, self.done, Path(scratch)))


def _run_all(study: _Study) -> State[Any]:
    """Run the missing trials of a study as tasks of the flow in whose function this is called."""

    @task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE)
    def trial_task(name: str, number: int) -> State[Any]:
        done = study.run(number)
        return Completed(message="done") if done.error is None else Failed(message=done.error)

    names = [study.trials[number].name for number in study.missing]
    # A runner of our own: on leaving, also by Ctrl-C, it lets the tasks that are running end and drops the others.
    with ThreadPoolTaskRunner[Any](max_workers=study.workers) as runner:
        wait(list(runner.map(trial_task, {"name": names, "number": study.missing})) if names else [])
    study.close()
    failed = any(one.measured is None for one in study.done)
    return Failed(message=failure(study.done)) if failed else Completed(message=f"{len(names)} trials run")


@flow(name="flareclust-sweep", flow_run_name="{sweep.name}", persist_result=False)
def sweep_flow(sweep: Sweep) -> State[Any]:
    """Run a sweep and log it; for schedules and deployments. It goes on where an earlier run was stopped.

    Args:
        sweep: as its file has it.
    """
    study = _Study(sweep.name, trials_of(sweep), sweep.mlflow_experiment, None, sweep.workers, lambda done: None)
    try:
        study.resume()
        return _run_all(study)
    except BaseException:
        study.tracker.abandon()
        raise


class TrackedRunner:
    """The runner that `tracked_runner` returns; `run_id` is MLflow's parent run of the last call."""

    def __init__(self, study: str, experiment: str, uri: str | None, on_done: OnDone, workers: int) -> None:
        self.study, self.experiment, self.uri, self.on_done, self.workers = study, experiment, uri, on_done, workers
        self.run_id: str | None = None

    def __call__(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run all trials that MLflow does not have; return what all came to, in their order.

        Raises:
            UserError: the MLflow store cannot be opened, Prefect cannot be reached, or two trials are the same.
        """
        study = _Study(self.study, trials, self.experiment, self.uri, self.workers, self.on_done)
        self.run_id = study.tracker.parent
        try:
            study.resume()
            if study.missing:
                _through_flow(study)
            else:
                study.close()  # no need of Prefect's server
        except BaseException:
            study.tracker.abandon()
            raise
        return study.done


def tracked_runner(
    study: str,
    experiment: str = "flareclust",
    uri: str | None = None,
    on_done: OnDone = lambda done: None,
    workers: int = WORKERS,
) -> TrackedRunner:
    """Return a `flareclust.experiment.trials.Runner` whose trials are tasks of a Prefect flow and runs in MLflow.

    Called again with the same trials, it reads from MLflow what was finished and runs the rest. Every trial is run and
    answered, failed ones among them; the state of the flow and of the parent run says how many failed. Ctrl-C lets the
    trials that are running come to their end and starts no other.

    Args:
        study: name of the study; the parent run and the trials are found again by it.
        experiment: name of the MLflow experiment.
        uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        on_done: called with each trial that is over, from the threads that run them.
        workers: how many trials run side by side.
    """
    return TrackedRunner(study, experiment, uri, on_done, workers)


def _through_flow(study: _Study) -> None:
    """Run the flow; raise what ended it before it was through. Failed trials do not."""

    @flow(name="flareclust-trials", flow_run_name="{name}", persist_result=False)
    def trials_flow(name: str) -> State[Any]:
        return _run_all(study)

    try:
        with server_reached():
            start_server()
            state = trials_flow(study.name, return_state=True)
            if not state.is_completed() and state.message != failure(study.results.values()):
                state.result()
    except TerminationSignal:  # what Prefect makes of SIGTERM
        raise KeyboardInterrupt from None
