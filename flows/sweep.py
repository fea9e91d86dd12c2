"""The flow of a study: every trial is a task, a few at a time; MLflow has a parent run and a run per trial.

Trials are tasks and not flows of their own, because a flow takes a second even where it does nothing. What a trial
does is in `flareclust.experiment.sweeps.trials`, what is logged in `flareclust.tracking.sweep_runs`.
"""

# No `from __future__ import annotations` here: Prefect cannot resolve string annotations of a flow that it serves.

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.server import PREFECT_LOST, server_for_workers, server_reached, short_retries  # isort: split

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed

from flareclust._foundation.errors import FlareclustError
from flareclust.experiment.sweeps.folder import TRIALS, TrialFile, study_folder
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.experiment.sweeps.sweep import THREADS, Sweep, SweepRunner, parse_runner
from flareclust.experiment.sweeps.sweep import trials as trials_of
from flareclust.experiment.sweeps.trials import Attempt, OnDone, Trial, TrialRun, attempt_any
from flareclust.flows.configured import server_configured
from flareclust.flows.pages import StudyPage, show_study
from flareclust.flows.runners import attempts
from flareclust.tracking.run_logging import log_command
from flareclust.tracking.sweep_runs import SweepTracker

_WORKERS = 2

#: Runs the missing trials of a study, each by the given function, and logs the study; returns what all came to.
_Run = Callable[[Attempt], list[TrialRun]]


@dataclass
class TrackedRunner:
    """A `flareclust.experiment.sweeps.trials.Runner` whose trials are tasks of a Prefect flow and runs in MLflow.

    Called again with the same trials, it takes from MLflow and from the file what was finished and runs the rest. Every
    trial is run and answered, failed ones among them; the state of the flow and of the parent run says how many failed.
    A store or a Prefect server that fails while trials run costs no trial. Ctrl-C lets the trials that are running come
    to their end and starts no other.

    Attributes:
        study: name of the study; the parent run and the trials are found again by it.
        experiment: name of the MLflow experiment.
        uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        on_done: called with each trial that is over, from the threads that run them.
        workers: how many trials run side by side.
        file: where trials are kept; None for the folder of the study in `flareclust-sweeps`.
        later: how to log what could not be logged; by default `flareclust log`.
        runner: where the trials run; other than threads, it runs the trials of a `Sweep` only.
        kept: the file of the last call, as it was in the end.
        run_id: MLflow's parent run of the last call.
        run_page: the address of its page.
        warnings: what tracking could not do in that call, a sentence each.
    """

    study: str
    experiment: str = "flareclust"
    uri: str | None = None
    on_done: OnDone = lambda done: None
    workers: int = _WORKERS
    file: Path | None = None
    later: str = ""
    runner: SweepRunner = THREADS
    kept: TrialFile | None = field(default=None, init=False)
    run_id: str | None = field(default=None, init=False)
    run_page: str | None = field(default=None, init=False)
    warnings: list[str] = field(default_factory=list, init=False)

    def __call__(self, trials: Sequence[Trial]) -> list[TrialRun]:
        """Run all trials that are not done; return what all came to, in their order.

        Raises:
            UserError: the MLflow store cannot be opened, Prefect cannot be reached, or two trials are the same.
        """
        with self._opened(trials) as (file, run):
            lost = None
            if file.missing and not (self.runner.local and not server_configured()):
                lost = self._run_flow(run, len(file.missing))
            else:
                run(attempt_any)
        if lost is not None:
            reason = f"{PREFECT_LOST} ({type(lost).__name__})"
            self.warnings.append(f"{reason}, so its pages do not show how {self.study} ended; all trials are done")
        return file.done

    @contextmanager
    def _opened(self, trials: Sequence[Trial]) -> Iterator[tuple[TrialFile, _Run]]:
        """Give the file with what is finished, and what runs the rest; say in the end what tracking could not do."""
        path = self.file or study_folder(self.study, trials) / TRIALS
        file = TrialFile(path, self.study, trials, self.experiment)
        tracker = SweepTracker(self.study, trials, self.uri, self.experiment)
        self.kept, self.run_id, self.run_page = file, tracker.parent, tracker.page(tracker.parent)

        def over(done: TrialRun) -> None:
            tracker.add(done)
            self.on_done(done)

        def run(attempt: Attempt) -> list[TrialRun]:
            done = file.run(tracker.follow(attempt), self.workers, over)
            tracker.complete(done)
            return done

        try:
            file.results = tracker.finished(file.results) | file.results
            for done in file.done:
                over(done)
            yield file, run
        except BaseException:
            tracker.abandon()
            raise
        self.warnings = [file.warning] if file.warning else []
        if tracker.lost is not None:
            n, folder = tracker.unlogged, file.file.absolute().parent
            missing = f"{n} {'trial' if n == 1 else 'trials'} and " if n else ""
            self.warnings.append(
                f"{missing}the means of {self.study} (all are in {folder}) are not in MLflow: {tracker.lost}; "
                f"log them later with: {self.later or log_command(file.file.parent, self.uri)}"
            )

    def _as_tasks(self, run: _Run, missing: int) -> State[Any]:
        """Run a study's missing trials as tasks of the flow in whose function this is called."""
        with _tasks_here(missing) if self.runner.local else attempts(self.runner, self.workers) as attempt:
            done = run(attempt)
        show_study(done, self.run_page)
        found = StudySummary.of(done)
        return Failed(message=found.failure) if found.failed else Completed(message=f"{missing} trials run")

    def _run_flow(self, run: _Run, missing: int) -> Exception | None:
        """Run the missing trials in a flow, and where Prefect fails without it; return what it failed with.

        What ended the flow is raised. Failed trials do not.
        """
        entered: list[str] = []
        ended: list[State[Any]] = []

        def body() -> State[Any]:
            ended.append(state := self._as_tasks(run, missing))
            return state

        here = _Unsent(body)  # Prefect sends a flow along with its tasks, and this study has files and locks

        @flow(name="flareclust-trials", flow_run_name="{name}", persist_result=False)
        def trials_flow(name: str) -> State[Any]:
            entered.append(name)
            return here.value()  # type: ignore[no-any-return]

        try:
            with server_reached(), short_retries(), server_for_workers():
                state = trials_flow(self.study, return_state=True)
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
                run(attempt_any)
            return error
        return None


#: As docs/sweeps.md calls it.
tracked_runner = TrackedRunner


@contextmanager
def _tasks_here(trials: int) -> Iterator[Attempt]:
    """Give what runs a trial as a task in the thread that calls it, in the flow in whose function this is called."""
    page, here = StudyPage(trials), copy_context()
    lost: list[Exception] = []

    def attempt(trial: Trial) -> TrialRun:
        kept: list[TrialRun] = []

        @task(name="trial", task_run_name="{name}", cache_policy=NO_CACHE)
        def trial_task(name: str) -> State[Any]:
            kept.append(done := attempt_any(trial))
            page.trial_over()
            return Completed(message="done") if done.error is None else Failed(message=done.error)

        if not lost:
            try:
                here.copy().run(trial_task, trial.name, return_state=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is about Prefect's pages only
                lost.append(error)
        return kept[0] if kept else attempt_any(trial)

    yield attempt


@flow(name="flareclust-sweep", flow_run_name="{sweep.name}", persist_result=False)
def sweep_flow(sweep: Sweep) -> State[Any]:
    """Run a sweep and log it; for schedules and deployments. It goes on where an earlier run was stopped.

    Args:
        sweep: as its file has it.
    """
    runner = TrackedRunner(
        sweep.name, sweep.mlflow_experiment, workers=sweep.workers, runner=parse_runner(sweep.runner)
    )
    with runner._opened(trials_of(sweep)) as (file, run):
        state = runner._as_tasks(run, len(file.missing))
    for warning in runner.warnings:
        get_run_logger().warning(warning)
    return state


class _Unsent:
    """Holds a value of this process; a copy that is sent to another process holds None."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __reduce__(self) -> tuple[type["_Unsent"], tuple[()]]:
        return _Unsent, ()
