"""What Prefect's page of a flow run shows: rounds and warnings as logs, tags, progress, and the result as an artifact."""

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from uuid import UUID

# First, because it sets Prefect's switches before that is imported.
from flareclust.flows.steps import Steps  # isort: split

from prefect import artifacts, get_run_logger
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from flareclust.experiment.config import Experiment
from flareclust.experiment.results.disclosure import PICTURE
from flareclust.experiment.results.result import Result
from flareclust.experiment.sweeps import trials as study_trials
from flareclust.federation import OnRound
from flareclust.protocol.outcome import numbers_of_sites
from flareclust.protocol.task import StepName
from flareclust.tracking import store
from flareclust.tracking.note import describe

#: What keys of artifacts end in; Prefect lists all versions of one, so each flow has its own.
_RESULT, _ROUNDS, _SWEEP, _TRIALS = "result", "rounds", "cells", "progress"

#: Seconds between two reports of progress, each of which is a request.
_PAUSE = 2.0


def artifact_key(name: str) -> str:
    """Return the key of an artifact of this flow run: the name of the flow, in the letters that Prefect allows, and this name."""
    flow = re.sub(r"[^a-z0-9]+", "-", str(flow_run.flow_name or "flareclust").lower()).strip("-")
    return f"{flow}-{name}"


class _Progress:
    """A bar on the page of the flow run that makes this; what cannot be reported ends in `lost` of its steps."""

    def __init__(self, steps: Steps, key: str, description: str) -> None:
        self._steps, self._next = steps, 0.0
        self._id: UUID | None = None
        steps.report(lambda: self._begin(key, description))

    def _begin(self, key: str, description: str) -> None:
        made: Any = artifacts.create_progress_artifact(0.0, key=artifact_key(key), description=description)
        self._id = made

    def show(self, share: float, *, always: bool = False) -> None:
        """Report how many per cent are done; unless `always`, not again within two seconds."""
        if self._id is None or (time.monotonic() < self._next and not always):
            return
        self._next, bar = time.monotonic() + _PAUSE, self._id
        self._steps.report(lambda: artifacts.update_progress_artifact(bar, progress=share))


class RunPage:
    """The page of the flow run in whose function this is made, which gets tags: algorithm, data, engine.

    What cannot be reported ends in `lost` of its steps.
    """

    def __init__(self, steps: Steps, experiment: Experiment) -> None:
        self._steps, self._experiment, self._log = steps, experiment, get_run_logger()
        self._progress: _Progress | None = None
        own = {experiment.algorithm, experiment.data, experiment.engine}
        run_id, tags = UUID(str(flow_run.id)), sorted({*flow_run.tags, *own})

        def send() -> None:
            with get_client(sync_client=True) as client:
                client.update_flow_run(run_id, tags=tags)

        steps.report(send)

    @contextmanager
    def watched(self, then: OnRound) -> Iterator[OnRound]:
        """Show what flareclust logs, from warnings on, among the logs of the flow run; give what is called with each exchange."""
        handler, ours = _ToRun(self._log), logging.getLogger("flareclust")
        ours.addHandler(handler)
        try:
            yield self._on_round(then)
        finally:
            ours.removeHandler(handler)

    def _on_round(self, then: OnRound) -> OnRound:
        """Return a callback that logs an exchange and shows progress, and then calls another."""
        rounds = self._experiment.params.get("rounds")
        if isinstance(rounds, int) and rounds > 1:
            self._progress = _Progress(self._steps, _ROUNDS, f"of at most {rounds} rounds")

        def called(record: Mapping[str, object]) -> None:
            sites, _ = numbers_of_sites(record)
            refused = record.get("newly_refused", record["refused"])
            assert isinstance(refused, dict)
            lost = "".join(f"; {site} {why}" for site, why in sorted(refused.items()))
            self._log.info("%s, round %s: %d sites%s", record["step"], record["round"], sites, lost)
            if self._progress is not None and record["step"] != StepName.ASSESS:
                self._progress.show(min(99.0, 100.0 * (float(str(record["round"])) + 1) / float(rounds or 1)))
            then(record)

        return called

    def result(self, result: Result, decision: str) -> None:
        """Show a result: as an artifact with metrics, the link to MLflow and the picture there, its warnings as logs."""
        page, link = result.run_page, ""
        if page is not None:
            link = f"\n\n[The run in MLflow]({page})"
            saved = None if result.centroids_file is None else Path(result.centroids_file).with_name(PICTURE)
            served = store.resolve_uri(self._experiment.tracking_uri).startswith("http")
            if served and result.run_id is not None and saved is not None and saved.exists():
                # By its address: it shows rows, so it stays in MLflow, and readers need a way there. A file has no pages.
                link += f"\n\n![picture]({store.file_address(page, result.run_id, PICTURE)})"
        summary = describe(result, self._experiment) + link + (f"\n\n{decision}" if decision else "")
        self._steps.report(
            lambda: artifacts.create_markdown_artifact(
                summary, key=artifact_key(_RESULT), description=self._experiment.name
            )
        )
        if self._progress is not None:
            self._progress.show(100.0, always=True)
        for warning in result.warnings:
            self._log.warning(warning)


class _ToRun(logging.Handler):
    """Sends records to a flow run's own logger, which any thread may use."""

    def __init__(self, to: Any) -> None:
        super().__init__(logging.WARNING)
        self._to = to

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        self._to.log(record.levelno, record.getMessage())


class StudyPage:
    """The page of a study's flow run, in whose function this is made: how many of the trials to run are over."""

    def __init__(self, trials: int) -> None:
        self._trials, self._over, self._lock = trials, 0, Lock()
        self._progress = _Progress(Steps(), _TRIALS, f"of {trials} trials") if trials > 1 else None

    def trial_over(self) -> None:
        """Show that one more trial is over; threads may call it side by side."""
        with self._lock:
            self._over += 1
            if self._progress is not None:
                self._progress.show(100.0 * self._over / self._trials, always=self._over == self._trials)


def show_study(done: Sequence[study_trials.TrialRun], page: str | None) -> None:
    """Show what a study came to as a table: a row per cell with the means of its qualities."""
    rows = [
        {**cell.cell, "done": cell.n, "failed": cell.failed, **{name: f"{v:.5g}" for name, v in cell.mean.items()}}
        for cell in study_trials.by_cell(done)
    ]
    about = None if page is None else f"[The sweep in MLflow]({page})"
    Steps().report(lambda: artifacts.create_table_artifact(rows, key=artifact_key(_SWEEP), description=about))
