"""The papers' tables through Prefect and MLflow: a parent run per table, a run per trial."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.papers.base import Entry, Report, Study
from benchmarks.papers.report import FIGURE, SUMMARY, TABLE
from benchmarks.papers.running import WORKERS, OnSaved, study_name
from flareclust.experiment.trials import OnDone, Runner
from flareclust.flows.sweep import TrackedRunner, tracked_runner
from flareclust.tracking.store import connect, resolve_uri

#: Name of the MLflow experiment.
EXPERIMENT = "flareclust-papers"
#: Folder of the report's files in the parent run.
ARTIFACTS = "report"


class Tracked:
    """Runners for `run_papers` that track, and the parent runs that they wrote to."""

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri
        self._runners: list[TrackedRunner] = []

    def start(self, entry: Entry, study: Study) -> Callable[[OnDone], Runner]:
        """Return what makes the entry's runner."""
        self._runners = []

        def make(on_done: OnDone) -> Runner:
            runner = tracked_runner(study_name(entry, study), EXPERIMENT, self.uri, on_done, WORKERS)
            self._runners.append(runner)
            return runner

        return make

    @property
    def on_saved(self) -> OnSaved:
        """Return what puts a saved report into the entry's parent run."""
        return self._log

    def _log(self, report: Report, folder: Path) -> None:
        client = connect(resolve_uri(self.uri))
        for runner in self._runners:
            if runner.run_id is None:
                continue
            for name in (TABLE, FIGURE, SUMMARY):
                with suppress(FileNotFoundError):
                    client.log_artifact(runner.run_id, str((folder / name).resolve(strict=True)), ARTIFACTS)
