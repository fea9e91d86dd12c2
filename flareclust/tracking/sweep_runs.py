"""A study in MLflow: a parent run with the means, and a child run per trial.

Trials are logged while they run, and what the store did not take is logged in the end, or by a later call. The parent is found again by the fingerprint of the study's name and all its trials, a child by its trial's; so a study
that was stopped goes on in the same runs. A child is three requests: create, one batch, terminate.
"""

import json
import logging
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

from flareclust._foundation.errors import FlareclustError
from flareclust._foundation.version import __version__
from flareclust.experiment.sweeps import folder as study_files
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.experiment.sweeps.report import StudySummary
from flareclust.tracking.note import NOTE_TAG, describe_study
from flareclust.tracking.origin import source_tags
from flareclust.tracking.runs import ERROR_TAG, RUN_KEY_TAG, Tracker, numbers_of
from flareclust.tracking.store import resolve_uri, sqlite_file, store_errors

_log = logging.getLogger(__name__)

_PARENT_TAG = "mlflow.parentRunId"
_VERSION_TAG = "flareclust.version"
#: Names of qualities that a trial has without a value; MLflow keeps numbers only.
_UNDEFINED_TAG = "flareclust.undefined"
_PAGE = 1000


class SweepTracker(Tracker):
    """Logs one study to one MLflow experiment; the database is made here, before anything runs in parallel.

    Attributes:
        parent: id of the parent run.
        lost: what the store failed with, if MLflow does not have everything; else None.

    Raises:
        UserError: The store cannot be opened, or two trials are the same.
    """

    def __init__(
        self, study: str, trials: Sequence[study_trials.Trial], uri: str | None = None, experiment: str = "flareclust"
    ) -> None:
        self._trials = dict(zip(study_files.trial_keys(study, trials), trials, strict=True))
        with store_errors(resolve_uri(uri)):
            super().__init__(uri, experiment)
            # SQLite takes one writer at a time, and MLflow's threads would wait for each other in its own way: by failing.
            self._lock = Lock() if sqlite_file(self.uri) else nullcontext()
            tags = {**source_tags(), "kind": "sweep", "study": study, _VERSION_TAG: __version__}
            params = {"trials": len(trials), **_axes(trials)}
            self.parent = self.start(study_files.study_key(study, list(self._trials)), study, params, tags)
        self.study = study
        self.lost: FlareclustError | None = None
        self._children: dict[str, Any] = {}
        self._begun: dict[str, str] = {}
        self._logged: set[str] = set()

    def finished(self, kept: Collection[int] = ()) -> dict[int, study_trials.TrialRun]:
        """Find the child runs of earlier times; return the finished trials by their number, but for those kept in the folder."""
        with store_errors(self.uri):
            self._find_children()
            return {
                number: self._found(trial, self._children[key])
                for number, (key, trial) in enumerate(self._trials.items())
                if key in self._logged and number not in kept
            }

    def _found(self, trial: study_trials.Trial, run: Any) -> study_trials.TrialRun:
        version = run.data.tags.get(_VERSION_TAG, __version__)
        return study_trials.TrialRun(trial, self._read(run), resumed=True, version=version)

    @property
    def unlogged(self) -> int:
        """Return how many trials MLflow does not have."""
        return len(self._trials) - len(self._logged)

    def follow(self, attempt: study_trials.Attempt) -> study_trials.Attempt:
        """Return what runs a trial as `attempt` does, and opens its run before, unless the store has failed."""

        def run(trial: study_trials.Trial) -> study_trials.TrialRun:
            key = trial.key(self.study)
            if self.lost is None:
                with self._loss():
                    self._begun[key] = self._begin(key)
            return attempt(trial)

        return run

    @contextmanager
    def _loss(self) -> Iterator[None]:
        """Keep what the store fails with."""
        try:
            with store_errors(self.uri):
                yield
        except FlareclustError as error:
            self.lost = error

    def add(self, done: study_trials.TrialRun) -> None:
        """Log a trial that is over, unless MLflow has it or the store has failed."""
        key = done.trial.key(self.study)
        if key not in self._logged and self.lost is None:
            with self._loss():
                self._end(self._begun.get(key) or self._begin(key), done)

    def complete(self, done: Sequence[study_trials.TrialRun]) -> None:
        """Log the trials, all in their order, that could not be logged before, and then means, tables and figure to the parent."""
        with self._loss():
            if self.unlogged:
                self._find_children()  # also those that were made without our hearing of it
                for one in done:
                    if (key := one.trial.key(self.study)) not in self._logged:
                        self._end(self._begin(key), one)
            with tempfile.TemporaryDirectory() as scratch:
                self._close(done, study_files.write_files(self.study, done, Path(scratch)))
            self.lost = None

    def abandon(self) -> None:
        """Close the parent as KILLED, where the store answers: the study was stopped and can go on."""
        try:
            with store_errors(self.uri):
                self._client.set_terminated(self.parent, "KILLED")
        except FlareclustError as error:
            _log.info("the MLflow run %s could not be closed: %s", self.parent, error)

    def _begin(self, key: str) -> str:
        """Open the child run of a trial and return its id; one that failed or was cut off is used again."""
        trial, run = self._trials[key], self._children.get(key)
        with self._lock:
            if run is not None:
                self.reopen(run)
            else:
                tags = {"kind": "trial", "seed": trial.seed, _VERSION_TAG: __version__, **trial.cell}
                own = {_key(name): value for name, value in tags.items()}
                run = self.create(key, trial.name, own | {_PARENT_TAG: self.parent})
        return str(run.info.run_id)

    def _end(self, run_id: str, done: study_trials.TrialRun) -> None:
        """Log what a trial came to in one batch, and close its run as FINISHED or FAILED."""
        key, measured = done.trial.key(self.study), done.measured
        tags, numbers = {_VERSION_TAG: done.version}, []
        if measured is None:
            tags[ERROR_TAG] = str(done.error)
        else:
            numbers = numbers_of(measured.final, measured.cost, measured.rounds)
            if undefined := [name for name, value in measured.final.items() if value is None]:
                tags[_UNDEFINED_TAG] = json.dumps(undefined)
        params = {name: value for name, value in _flat(done.trial.params).items() if value is not None}
        # One that was cut off after its batch has all of it.
        known = self._children[key].data.metrics if key in self._children else {}
        with self._lock:
            self.log(run_id, numbers, known=known, params={**params, "seed": done.trial.seed}, tags=tags)
            self._client.set_terminated(run_id, "FAILED" if measured is None else "FINISHED")
            self._logged.add(key)

    def _close(self, done: Sequence[study_trials.TrialRun], files: Sequence[Path]) -> None:
        """Log the means and the files to the parent, and close it: FAILED if a trial failed.

        Its metrics are `final/<name>`, the mean over all trials, so that MLflow's charts of parents show something, and
        how many trials were `trials/done` and have `trials/failed`. What each cell came to is in the files: as metrics it
        would be hundreds of columns in MLflow's tables. The description has the table of the main qualities.
        """
        found = StudySummary.of(done)
        means = {_key(name): value for name, value in study_trials.cell_of({}, done).mean.items()}
        counts = [("trials/done", float(len(done) - found.failed), 0), ("trials/failed", float(found.failed), 0)]
        self.log(self.parent, [*numbers_of(means), *counts])
        self.log_files(self.parent, files)
        if found.failed:
            self.fail(self.parent, found.failure)
        else:
            self.finish(self.parent)
        self.tag(self.parent, NOTE_TAG, describe_study(found))

    def _find_children(self) -> None:
        """Find the child runs of earlier times, and which of them are finished."""
        token = None
        while True:
            children = f"tags.`{_PARENT_TAG}` = '{self.parent}'"
            page = self._client.search_runs([self._experiment_id], children, max_results=_PAGE, page_token=token)
            self._children |= {run.data.tags[RUN_KEY_TAG]: run for run in page if RUN_KEY_TAG in run.data.tags}
            if not (token := page.token):
                break
        finished = {key for key, run in self._children.items() if run.info.status == "FINISHED"}
        self._logged |= finished & self._trials.keys()

    def _read(self, run: Any) -> study_trials.TrialResult:
        undefined: list[str] = json.loads(run.data.tags.get(_UNDEFINED_TAG, "[]"))
        final: dict[str, float | None] = {**_under("final", run.data.metrics), **dict.fromkeys(undefined)}
        rounds: dict[int, dict[str, float]] = {}
        for name in _under("round", run.data.metrics):
            for metric in self._client.get_metric_history(run.info.run_id, f"round/{name}"):
                rounds.setdefault(metric.step, {"round": float(metric.step)})[name] = metric.value
        by_step = [rounds[step] for step in sorted(rounds)]
        return study_trials.TrialResult(final, _under("cost", run.data.metrics), by_step)


def _axes(trials: Sequence[study_trials.Trial]) -> dict[str, str]:
    """Return what the trials range over, for the parent's params."""
    axes: dict[str, dict[str, None]] = {}
    for trial in trials:
        for name, value in trial.cell.items():
            axes.setdefault(_key(name), {})[value] = None
    seeds = sorted({trial.seed for trial in trials})
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    text = f"{seeds[0]}..{seeds[-1]}" if whole else ", ".join(map(str, seeds))
    return {**{name: ", ".join(values) for name, values in axes.items()}, "seeds": text}


def _flat(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params as MLflow takes them: an algorithm's own as `param.<name>`, like a single run's."""
    flat: dict[str, Any] = {}
    for name, value in params.items():
        inner = value if isinstance(value, Mapping) else None
        prefix = "param" if name == "params" else name
        flat |= {_key(name): value} if inner is None else {_key(f"{prefix}.{k}"): v for k, v in inner.items()}
    return flat


def _under(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix(f"{prefix}/"): v for name, v in metrics.items() if name.startswith(f"{prefix}/")}


def _key(text: str) -> str:
    """Return a text as MLflow takes it for a name: letters, digits and _ - . : and space."""
    return re.sub(r"[^\w\-. :]", "-", text.replace("=", ":"))
