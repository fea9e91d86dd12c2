"""A study that is tracked: each trial is kept in a file first, and then logged; the store may fail at any time."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flareclust._foundation.errors import FlareclustError
from flareclust.experiment.sweeps.compare import write_files
from flareclust.experiment.sweeps.trials import Attempt, OnDone, Trial, TrialRun, attempt_any
from flareclust.experiment.sweeps.trials_file import TrialFile
from flareclust.tracking.store import store_errors
from flareclust.tracking.sweep_runs import SweepTracker

log = logging.getLogger(__name__)


class TrackedStudy:
    """A list of trials under way: what is done already, what is missing, what MLflow does not have.

    Args:
        name: of the study.
        trials: all of them.
        tracker: of the study.
        on_done: called with each trial that is over.
        file: where trials are kept; None for MLflow alone.

    Attributes:
        results: what the trials that are over came to, by their number.
        missing: the numbers of those to run, or to log.
        lost: what the store failed with, if MLflow does not have everything; else None.
        closed: whether all is done.
    """

    def __init__(
        self, name: str, trials: Sequence[Trial], tracker: SweepTracker, on_done: OnDone, file: TrialFile | None
    ) -> None:
        self.name, self.trials, self.tracker, self.on_done, self.file = name, trials, tracker, on_done, file
        self.results: dict[int, TrialRun] = {}
        self.missing = list(range(len(trials)))
        self.lost: FlareclustError | None = None
        self.closed = False
        self._unlogged: set[int] = set()
        self._kept: dict[int, TrialRun] = {} if file is None else dict(file.results)

    def resume(self) -> None:
        """Take over what MLflow has."""
        with store_errors(self.tracker.uri):
            self.results = self.tracker.finished()
        self.missing = [number for number in self.missing if number not in self.results]
        for number, done in self.results.items():
            if self.file is not None and number not in self.file.results:
                self.file.add(number, done)
            self.on_done(done)

    def run(self, number: int, attempt: Attempt = attempt_any) -> TrialRun:
        """Run a trial by `attempt`, unless the file has it, and log it, unless the store has failed."""
        run_id = self._begin(number)
        done = self._kept.get(number)
        if done is None:
            done = attempt(self.trials[number])
            if self.file is not None:
                self.file.add(number, done)
        self.results[number] = done
        self._end(number, run_id, done)
        self.on_done(done)
        return done

    @property
    def done(self) -> list[TrialRun]:
        """Return what all trials came to, in their order."""
        return [self.results[number] for number in range(len(self.trials))]

    @property
    def unlogged(self) -> int:
        """Return how many trials MLflow does not have."""
        return len(self._unlogged)

    def close(self) -> None:
        """Log what could not be logged before, and then the means, the table and the figure to the parent."""
        if self.file is not None:
            self.file.close()
        try:
            with store_errors(self.tracker.uri):
                self._catch_up()
                with tempfile.TemporaryDirectory() as scratch:
                    self.tracker.close(self.done, write_files(self.name, self.done, Path(scratch)))
            self.lost = None
        except FlareclustError as error:
            self.lost = error
        self.closed = True

    def abandon(self) -> None:
        """Close the parent run as killed, where the store answers: the study was stopped and can go on."""
        try:
            with store_errors(self.tracker.uri):
                self.tracker.abandon()
        except FlareclustError as error:
            log.info("the MLflow run %s could not be closed: %s", self.tracker.parent, error)

    def _begin(self, number: int) -> str | None:
        if self.lost is None:
            try:
                with store_errors(self.tracker.uri):
                    return self.tracker.begin(number)
            except FlareclustError as error:
                self.lost = error
        return None

    def _end(self, number: int, run_id: str | None, done: TrialRun) -> None:
        if run_id is not None and self.lost is None:
            try:
                with store_errors(self.tracker.uri):
                    return self.tracker.end(run_id, done)
            except FlareclustError as error:
                self.lost = error
        self._unlogged.add(number)
        return None

    def _catch_up(self) -> None:
        if not self._unlogged:
            return
        self._unlogged -= self.tracker.finished().keys()  # also finds runs that were made without our hearing of it
        for number in sorted(self._unlogged):
            self.tracker.end(self.tracker.begin(number), self.results[number])
            self._unlogged.remove(number)
