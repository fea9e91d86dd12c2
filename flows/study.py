"""A study, run: its trials are kept in a file, and are runs in MLflow and tasks of a Prefect flow where that is wanted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flareclust._foundation.own_files import reserved
from flareclust.experiment.sweeps import folder as study_files
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.flows.configured import server_configured

if TYPE_CHECKING:
    from flareclust.tracking.sweep_runs import SweepTracker


@dataclass
class StudyRunner:
    """A `flareclust.experiment.sweeps.trials.Runner` that keeps trials in a file, and logs them.

    Called again with the same trials, it takes from MLflow and from the file what was finished and runs the rest. Every
    trial is run and answered, failed ones among them; the state of the flow and of the parent run says how many failed.
    A store or a Prefect server that fails while trials run costs no trial. Ctrl-C lets the trials that are running come
    to their end and starts no other.

    Attributes:
        study: name of the study; the parent run and the trials are found again by it.
        experiment: name of the MLflow experiment.
        uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        on_done: called with each trial that is over, also with those of the file, from the threads that run them.
        workers: how many trials run side by side.
        file: where trials are kept; None for the folder of the study in `flareclust-sweeps`.
        runner: where the trials run; other than threads, it runs the trials of a `Sweep` only.
        track: whether the study is logged to MLflow, and is a flow where a Prefect server is set.
        kept: the file of the last call, as it was in the end.
        run_id: MLflow's parent run of the last call.
        run_page: the address of its page.
        warnings: what could not be written or logged in that call, a sentence each.
    """

    study: str
    experiment: str = "flareclust"
    uri: str | None = None
    on_done: study_trials.OnDone = lambda done: None
    workers: int = 2
    file: Path | None = None
    runner: sweep_settings.SweepRunner = sweep_settings.THREADS
    track: bool = True
    kept: study_files.TrialFile | None = field(default=None, init=False)
    run_id: str | None = field(default=None, init=False)
    run_page: str | None = field(default=None, init=False)
    warnings: list[str] = field(default_factory=list, init=False)

    def __call__(self, trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
        """Run all trials that are not done; return what all came to, in their order.

        Raises:
            UserError: the file or the MLflow store cannot be used, Prefect cannot be reached, or two trials are the same.
            JobFailed: trials that are over can be kept nowhere.
        """
        lost = ""
        with self.opened(trials) as (file, run):
            missing, elsewhere = len(file.missing), not self.runner.local
            # Prefect takes seconds to import, so only where it has something to do.
            if self.track and missing and (elsewhere or server_configured()):
                from flareclust.flows.runners import run_as_flow

                lost = run_as_flow(self.study, run, missing, self.runner, self.workers, self.run_page)
            elif missing and elsewhere:
                from flareclust.flows.runners import attempts

                with attempts(self.runner, self.workers) as attempt:
                    run(attempt)
            else:
                run(study_trials.attempt_any)
        if lost:
            self.warnings.append(f"{lost}, so its pages do not show how {self.study} ended; all trials are done")
        return file.done

    @contextmanager
    def opened(
        self, trials: Sequence[study_trials.Trial]
    ) -> Iterator[tuple[study_files.TrialFile, study_trials.RunMissing]]:
        """Give the file with what is finished, and what runs the rest; say in the end what tracking could not do."""
        path = self.file or study_files.study_folder(self.study, trials) / study_files.TRIALS
        with reserved(path):
            self.kept = file = study_files.TrialFile(path, self.study, trials, self.experiment)
            tracker = self._tracker(trials) if self.track else None

            def over(done: study_trials.TrialRun) -> None:
                if tracker is not None:
                    tracker.add(done)
                self.on_done(done)

            def run(attempt: study_trials.Attempt) -> list[study_trials.TrialRun]:
                if tracker is None:
                    return file.run(attempt, self.workers, over)
                done = file.run(tracker.follow(attempt), self.workers, over)
                tracker.complete(done)
                return done

            try:
                if tracker is not None:
                    file.results = tracker.finished(file.results) | file.results
                for done in file.done:
                    over(done)
                yield file, run
            except BaseException:
                if tracker is not None:
                    tracker.abandon()
                raise
            self.warnings = [file.warning] if file.warning else []
            if tracker is not None and tracker.lost is not None:
                self.warnings.append(self._not_logged(tracker, file.file.parent))

    def _tracker(self, trials: Sequence[study_trials.Trial]) -> "SweepTracker":
        from flareclust.tracking.sweep_runs import SweepTracker

        tracker = SweepTracker(self.study, trials, self.uri, self.experiment)
        self.run_id, self.run_page = tracker.parent, tracker.page(tracker.parent)
        return tracker

    def _not_logged(self, tracker: "SweepTracker", folder: Path) -> str:
        from flareclust.tracking import run_logging

        n = tracker.unlogged
        missing = f"{n} {'trial' if n == 1 else 'trials'} and " if n else ""
        return (
            f"{missing}the means of {self.study} (all are in {folder.absolute()}) are not in MLflow: {tracker.lost}; "
            f"log them later with: {run_logging.log_command(folder, self.uri)}"
        )
