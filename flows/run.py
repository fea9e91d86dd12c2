"""A run from its settings to a result that is kept and logged: by plain calls, or as a flow run of Prefect."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flareclust._foundation.errors import JobFailed
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.artifacts import keep
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.results.result import Result
from flareclust.experiment.submit import Kept, submit
from flareclust.federation import OnRound
from flareclust.tracking import load as tracked_results

T = TypeVar("T")


class Calls:
    """Does the steps of a run by plain calls; those of a flow run are its tasks (`flareclust.flows.steps.Steps`).

    Attributes:
        key: of the run that these are the steps of; the same where it is tried again.
        tags: of its MLflow run.
        log: for what is said of the run.
    """

    log: Any = logging.getLogger(__name__)

    def __init__(self, key: str = "", tags: Mapping[str, str] | None = None) -> None:
        self.key, self.tags = key or uuid.uuid4().hex, tags or {}

    def run(self, name: str, function: Callable[..., T], *args: Any, retries: int = 0) -> T:
        """Do the step of this name: call a function, and up to `retries` times again where a job ended for a reason outside of it."""
        for _ in range(retries):
            try:
                return function(*args)
            except JobFailed as error:
                if not error.transient:
                    raise
                self.log.warning("the job is started again: %s", error)
        return function(*args)

    @contextmanager
    def watched(self, experiment: Experiment, on_round: OnRound) -> Iterator[OnRound]:
        """Give what is called with a record per exchange of an experiment whose k is known."""
        yield on_round

    def ended(self, experiment: Experiment, reason: str, *, stopped: bool) -> None:
        """Say why a run ended without a result."""


def carry_out(
    experiment: Experiment,
    prepared: Prepared | None,
    out: Path | None,
    on_round: OnRound,
    kept: Kept,
    *,
    track: bool,
    calls: Calls | None = None,
    earlier: Callable[[], tracked_results.Reference | None] | None = None,
    match_to: Result | None = None,
    options: str = "",
) -> Result:
    """Prepare, submit, evaluate, keep and log an experiment; its MLflow run is closed in any case.

    Args:
        experiment: what to run.
        prepared: the federation, where its rows are in memory; None to prepare it from the experiment.
        out: folder of the result's files; None for none, of runs that are not tracked.
        on_round, kept: as of `submit`.
        track: whether it has an MLflow run. Its job is started again where it ended for a reason outside of it.
        calls: does the steps.
        earlier: finds the result whose numbers the clusters get; by default the one that the experiment names.
        match_to: that result, where it is in memory and in no folder.
        options: of the command that logs the result where the store fails.
    """
    calls, started = calls or Calls(), time.time()
    named = partial(tracked_results.reference_of, match_to or experiment.match_to, experiment.tracking_uri)
    reference = calls.run("load the earlier result", earlier or named)
    prepared = prepared or calls.run("prepare", prepare, experiment)
    if experiment.start_from is not None:
        prepared = calls.run("load the start", tracked_results.with_start, experiment, prepared)
    if not track:
        outcome = submit(experiment, prepared, on_round, kept=kept)
        result = evaluate(experiment, prepared, outcome, time.time() - started)
        result = tracked_results.with_numbers_of(reference, result)
        return result if out is None else keep(result, out)
    assert out is not None
    from flareclust.tracking import run_logging
    from flareclust.tracking.origin import source_tags

    experiment = experiment.model_copy(update=prepared.settled(experiment.params))
    key, tags = experiment.key(calls.key), {**source_tags(), **calls.tags}
    run_id = calls.run("start MLflow run", run_logging.start_run, experiment, key, tags, prepared)
    try:
        with calls.watched(experiment, on_round) as shown:
            of_job = experiment, prepared, shown, key, kept
            outcome = calls.run("submit", submit, *of_job, retries=experiment.retries)
            result = calls.run("evaluate", evaluate, experiment, prepared, outcome, time.time() - started)
            result = tracked_results.with_numbers_of(reference, result)
            result = keep(replace(result, tracking={"key": key, "tags": tags, "started": started}), out)
            of_run = experiment, run_id, started, options
            return calls.run("log to MLflow", run_logging.log_or_warn, result, *of_run)
    except BaseException as error:
        reason, stopped = str(error) or type(error).__name__, run_logging.was_stopped(error)
        calls.ended(experiment, reason, stopped=stopped)
        if not run_logging.close_run(experiment, run_id, reason, stopped=stopped):
            calls.log.warning("the MLflow run %s could not be closed", run_id)
        raise
