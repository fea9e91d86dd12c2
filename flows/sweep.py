"""The flow of a study: every trial is a task, a few at a time; MLflow has a parent run and a run per trial.

Trials are tasks and not flows of their own, because a flow takes a second even where it does nothing. What a trial
does is in `flareclust.experiment.sweeps.trials`, what is logged in `flareclust.tracking.sweep_runs`.
"""

# No `from __future__ import annotations` here: Prefect cannot resolve string annotations of a flow that it serves.

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.server import PREFECT_LOST, server_for_workers, server_reached, short_retries  # isort: split

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import wait
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner

from flareclust._foundation.errors import FlareclustError
from flareclust.experiment.sweeps.runner import THREADS, SweepRunner, parse_runner
from flareclust.experiment.sweeps.sweep import Sweep
from flareclust.experiment.sweeps.sweep import trials as trials_of
from flareclust.experiment.sweeps.trials import OnDone, Trial, TrialRun
from flareclust.experiment.sweeps.trials_file import TRIALS, TrialFile, run_in_threads, study_folder
from flareclust.flows.configured import server_configured
from flareclust.flows.pages import StudyPage, show_study
from flareclust.flows.runners import attempts
from flareclust.tracking.run_logging import log_command
from flareclust.tracking.store import resolve_uri, store_errors
from flareclust.tracking.study import TrackedStudy
from flareclust.tracking.sweep_runs import SweepTracker, failure

WORKERS = 2

#: Gives the file that trials are kept in.
Keep = Callable[[Sequence[Trial]], TrialFile]


def _run_all(study: TrackedStudy, workers: int, runner: SweepRunner) -> State[Any]:
    """Run the missing trials of a study as tasks of the flow in whose function this is called."""
    number_run = len(study.missing)
    if runner.local:
        _run_here(study, workers)
    else:
        with attempts(runner, workers) as attempt:
            run_in_threads(partial(study.run, attempt=attempt), study.missing, workers)
    study.close()
    show_study(study.done, study.tracker.page(study.tracker.parent))
    failed = any(one.measured is None for one in study.done)
    return Failed(message=failure(study.done)) if failed else Completed(message=f"{number_run} trials run")


def _run_here(study: TrackedStudy, workers: int) -> None:

    @task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE)
    def trial_task(name: str, number: int) -> State[Any]:
        done = study.run(number)
        shown.trial_over()
        return Completed(message="done") if done.error is None else Failed(message=done.error)

    names = [study.trials[number].name for number in study.missing]
    shown = StudyPage(len(names))
    # A runner of our own: on leaving, also by Ctrl-C, it lets the tasks that are running end and drops the others.
    with ThreadPoolTaskRunner[Any](max_workers=workers) as runner:
        wait(list(runner.map(trial_task, {"name": names, "number": study.missing})) if names else [])


@flow(name="flareclust-sweep", flow_run_name="{sweep.name}", persist_result=False)
def sweep_flow(sweep: Sweep) -> State[Any]:
    """Run a sweep and log it; for schedules and deployments. It goes on where an earlier run was stopped.

    Args:
        sweep: as its file has it.
    """
    trials = trials_of(sweep)

    def keep(trials: Sequence[Trial]) -> TrialFile:
        return TrialFile(study_folder(sweep.name, trials) / TRIALS, sweep.name, trials, sweep.mlflow_experiment)

    study = _opened(sweep.name, trials, sweep.mlflow_experiment, None, lambda done: None, keep)
    try:
        study.resume()
        state = _run_all(study, sweep.workers, parse_runner(sweep.runner))
    except BaseException:
        study.abandon()
        raise
    for warning in _warnings(study, None, _later(study, None)):
        get_run_logger().warning(warning)
    return state


def _opened(
    name: str, trials: Sequence[Trial], experiment: str, uri: str | None, on_done: OnDone, keep: Keep | None
) -> TrackedStudy:
    """Return the study with its parent run; a store that does not answer leaves no file."""
    store = resolve_uri(uri)
    with store_errors(store):
        tracker = SweepTracker(name, trials, store, experiment)
    return TrackedStudy(name, trials, tracker, on_done, None if keep is None else keep(trials))


def _later(study: TrackedStudy, uri: str | None) -> str:
    """Return how the study is logged that could not be."""
    return "the same call" if study.file is None else log_command(study.file.file.parent, uri)


def _warnings(study: TrackedStudy, prefect: Exception | None, later: str) -> list[str]:
    """Return what tracking could not do, a sentence each."""
    warnings = [study.file.warning] if study.file is not None and study.file.warning else []
    if study.lost is not None:
        trials = f"{study.unlogged} {'trial' if study.unlogged == 1 else 'trials'} and " if study.unlogged else ""
        place = "" if study.file is None else f" (all are in {study.file.file.absolute().parent})"
        warnings.append(
            f"{trials}the means of {study.name}{place} are not in MLflow: {study.lost}; log them later with: {later}"
        )
    if prefect is not None:
        reason = type(prefect).__name__
        warnings.append(
            f"{PREFECT_LOST} ({reason}), so its pages do not show how {study.name} ended; all trials are done"
        )
    return warnings


class TrackedRunner:
    """The runner that `tracked_runner` returns.

    Attributes:
        run_id: MLflow's parent run of the last call.
        run_page: the address of its page.
        file: where the trials of the last call are kept; None for nowhere.
        warnings: what tracking could not do in that call, a sentence each.
    """

    def __init__(
        self,
        study: str,
        experiment: str,
        uri: str | None,
        on_done: OnDone,
        workers: int,
        keep: Keep | None,
        later: str,
        runner: SweepRunner,
    ) -> None:
        self.study, self.experiment, self.uri, self.on_done, self.workers = study, experiment, uri, on_done, workers
        self.keep, self.later, self.runner = keep, later, runner
        self.run_id: str | None = None
        self.run_page: str | None = None
        self.file: TrialFile | None = None
        self.warnings: list[str] = []

    def __call__(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run all trials that are not done; return what all came to, in their order.

        Raises:
            UserError: the MLflow store cannot be opened, Prefect cannot be reached, or two trials are the same.
        """
        study = _opened(self.study, trials, self.experiment, self.uri, self.on_done, self.keep)
        self.run_id, self.file, prefect = study.tracker.parent, study.file, None
        self.run_page = study.tracker.page(self.run_id)
        try:
            study.resume()
            if study.missing:
                prefect = _through_flow(study, self.workers, self.runner)
            else:
                study.close()  # no need of Prefect's server
        except BaseException:
            study.abandon()
            raise
        self.warnings = _warnings(study, prefect, self.later or _later(study, self.uri))
        return study.done


def tracked_runner(
    study: str,
    experiment: str = "flareclust",
    uri: str | None = None,
    on_done: OnDone = lambda done: None,
    workers: int = WORKERS,
    keep: Keep | None = None,
    later: str = "",
    runner: SweepRunner = THREADS,
) -> TrackedRunner:
    """Return a `flareclust.experiment.sweeps.trials.Runner` whose trials are tasks of a Prefect flow and runs in MLflow.

    Called again with the same trials, it takes from MLflow and from the file what was finished and runs the rest. Every
    trial is run and answered, failed ones among them; the state of the flow and of the parent run says how many failed.
    A store or a Prefect server that fails while trials run costs no trial. Ctrl-C lets the trials that are running come
    to their end and starts no other.

    Args:
        study: name of the study; the parent run and the trials are found again by it.
        experiment: name of the MLflow experiment.
        uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        on_done: called with each trial that is over, from the threads that run them.
        workers: how many trials run side by side.
        keep: gives the file that trials are kept in, too; None for none.
        later: how to log what could not be logged; by default `flareclust log`.
        runner: where the trials run; other than threads, it runs the trials of a `Sweep` only.
    """
    return TrackedRunner(study, experiment, uri, on_done, workers, keep, later, runner)


class Unsent:
    """Holds a value of this process; a copy that is sent to another process holds None."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type["Unsent"], tuple[()]]:
        return Unsent, ()


def _through_flow(study: TrackedStudy, workers: int, runner: SweepRunner) -> Exception | None:
    """Run the flow, or without a Prefect server the same in threads; raise what ended it. Failed trials do not.

    Where Prefect fails, the other trials are run without it; what it failed with is returned.
    """
    if runner.local and not server_configured():
        run_in_threads(study.run, study.missing, workers)
        study.close()
        return None
    entered: list[str] = []
    here = Unsent(study)  # Prefect sends a flow along with its tasks, and this study has files and locks

    @flow(name="flareclust-trials", flow_run_name="{name}", persist_result=False)
    def trials_flow(name: str) -> State[Any]:
        entered.append(name)
        return _run_all(here.value, workers, runner)

    try:
        with server_reached(), short_retries(), server_for_workers():
            state = trials_flow(study.name, return_state=True)
            if not state.is_completed() and state.message != failure(study.results.values()):
                state.result()
    except TerminationSignal:  # what Prefect makes of SIGTERM
        raise KeyboardInterrupt from None
    except FlareclustError:
        raise
    except Exception as error:
        if not entered:
            raise
        if not study.closed:
            run_in_threads(study.run, [n for n in study.missing if n not in study.results], workers)
            study.close()
        return error
    return None
