"""The papers' tables through Prefect and MLflow: a parent run per table, a run per trial."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.papers.base import WORKERS, Report
from benchmarks.papers.report import FIGURE, SUMMARY, TABLE
from benchmarks.papers.running import EXPERIMENT, FolderRunner, OnSaved
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.flows.study import StudyRunner
from flareclust.tracking.store import NoAnswer, connect, resolve_uri, store_errors

#: Folder of the report's files in the parent run.
ARTIFACTS = "report"
#: How a table is logged that could not be.
LATER = "the same command, which runs nothing again"


class Tracked:
    """Runners for `run_papers` that track, and the parent runs that they wrote to.

    Args:
        uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
    """

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri
        self._runners: list[StudyRunner] = []

    def start(self, folder: FolderRunner) -> Callable[[study_trials.OnDone], study_trials.Runner]:
        """Return what makes an entry's runner."""
        self._runners = []

        def make(on_done: study_trials.OnDone) -> study_trials.Runner:
            def run(trials: Sequence[study_trials.Trial]) -> list[study_trials.TrialRun]:
                file = folder.file_of(trials)
                runner = StudyRunner(folder.study, EXPERIMENT, self.uri, on_done, WORKERS, file)
                self._runners.append(runner)
                done = runner(trials)
                for warning in runner.warnings:
                    folder.say(f"  warning: {warning}")
                return done

            return run

        return make

    @property
    def on_saved(self) -> OnSaved:
        """Return what puts a saved report into the entry's parent run."""
        return self._log

    def _log(self, report: Report, folder: Path) -> None:
        store = resolve_uri(self.uri)
        try:
            with store_errors(store):
                self._log_files(store, folder)
        except NoAnswer as error:
            print(
                f"  warning: the report in {folder} is not in MLflow: {error}; log it later with: {LATER}",
                file=sys.stderr,
            )

    def _log_files(self, store: str, folder: Path) -> None:
        client = connect(store)
        for runner in self._runners:
            if runner.run_id is None:
                continue
            for name in (TABLE, FIGURE, SUMMARY):
                with suppress(FileNotFoundError):
                    client.log_artifact(runner.run_id, str((folder / name).resolve(strict=True)), ARTIFACTS)
