"""Results and sweeps that are in their folders, logged to MLflow: later, or for the first time.

A run is found by the key that the result keeps, so nothing is logged twice, and a run that was cut off is completed.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import Experiment
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.saved import read_result
from flareclust.experiment.sweeps.folder import all_trials
from flareclust.protocol.outcome import SUMMARY
from flareclust.tracking.promotion import METRIC, check_alias, check_metric
from flareclust.tracking.run_logging import NotLogged, log_run, offer_alias, start_run
from flareclust.tracking.runs import Tracker
from flareclust.tracking.store import NoAnswer, resolve_uri, store_errors
from flareclust.tracking.sweep_runs import SweepTracker


@dataclass(frozen=True)
class Logged:
    """What logging a folder came to.

    Attributes:
        run_id: MLflow's run, of a sweep the parent.
        known: whether MLflow had all of it before.
        decision: what came of offering the alias, in a sentence; empty where none was asked for.
    """

    run_id: str
    known: bool
    decision: str = ""


def log_folder(
    folder: Path, uri: str | None = None, alias: str | None = None, metric: str | None = None
) -> dict[Path, Logged]:
    """Log a saved result, or the studies of a sweep's folder, as their own runs would have done; return what came of it.

    Args:
        folder: of a result, or with files of trials.
        uri, alias, metric: as of `log_result`.

    Raises:
        UserError: the folder holds neither.
        NotLogged: the store failed.
    """
    files = [] if (folder / SUMMARY).exists() else sorted(folder.glob("trials*.jsonl"))
    if not files:
        return {folder: log_result(folder, uri, alias, metric)}
    if alias is not None or metric is not None:
        raise UserError(f"{folder} is of a sweep, which registers no model; leave out --alias and --metric")
    return {file: log_trials(file, uri) for file in files}


def log_trials(file: Path, uri: str | None = None) -> Logged:
    """Log the study whose trials a file holds; a run that MLflow has is left alone.

    Args:
        file: see `flareclust.experiment.sweeps.folder`.
        uri: address of the store; None for MLFLOW_TRACKING_URI or ./mlflow.db.

    Raises:
        UserError: the file does not hold a whole study.
        NotLogged: the store failed.
    """
    about, done = all_trials(file)
    store, failed = resolve_uri(uri), sum(one.measured is None for one in done)
    try:
        with store_errors(store):
            parent = Tracker(store, about["experiment"]).find(about["key"])
            if parent is not None and _has(parent, len(done) - failed, failed):
                return Logged(str(parent.info.run_id), known=True)
        tracker = SweepTracker(about["name"], [one.trial for one in done], store, about["experiment"])
        tracker.complete(done)
        if tracker.lost is not None:
            raise tracker.lost
    except NoAnswer as error:
        raise NotLogged(f"{file} is not in MLflow, or only in part: {error}") from error
    return Logged(tracker.parent, known=False)


def _has(parent: Any, done: int, failed: int) -> bool:
    """Return whether a study's run was closed with this many trials done and failed."""
    metrics = parent.data.metrics
    counts = metrics.get("trials/done"), metrics.get("trials/failed")
    return counts == (done, failed) and parent.info.status == ("FAILED" if failed else "FINISHED")


def log_result(folder: Path, uri: str | None = None, alias: str | None = None, metric: str | None = None) -> Logged:
    """Log a saved result to MLflow, as its own run would have done.

    Args:
        folder: with the result.
        uri: address of the store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        alias: of the registered model, to be offered to the version; None for none.
        metric: by which that is decided; None for simplified silhouette.

    Raises:
        UserError: the folder holds no complete result, or an alias is asked for a model that is not registered.
        NotLogged: the store failed.
    """
    if metric is not None and alias is None:
        raise UserError("--metric decides about an alias; say --alias, too")
    metric = check_metric(metric or METRIC)
    if alias is not None:
        check_alias(alias)
    result = read_result(folder)
    experiment = _experiment(result, folder).model_copy(update={"tracking_uri": uri})
    if alias is not None and experiment.register_as is None:
        raise UserError(f"the run in {folder} registers no model, so there is no alias; leave out --alias")
    tracking = _tracking(result, folder)
    known = _finished(experiment, tracking["key"])
    if known is None:
        run_id = start_run(experiment, tracking["key"], tracking["tags"])
        log_run(result, experiment, run_id, tracking["started"])
    else:
        run_id = known
    decision = "" if alias is None else offer_alias(experiment, run_id, alias, metric)
    return Logged(run_id, known is not None, decision)


def _experiment(result: Result, folder: Path) -> Experiment:
    """Return the experiment of a result, with k as its run has it."""
    if not result.experiment:
        raise UserError(f"{folder} does not say what was run; it cannot be logged")
    experiment = Experiment(**result.experiment)
    k = result.k if experiment.k_range is None else experiment.k_range[1]
    return experiment.model_copy(update={"k": experiment.k or k})


def _tracking(result: Result, folder: Path) -> Mapping[str, Any]:
    """Return how the MLflow run is found; of a run that was not tracked, by what its files say."""
    if result.tracking:
        return result.tracking
    summary = folder / SUMMARY
    key = hashlib.sha256(summary.read_bytes()).hexdigest()[:32]
    return {"key": key, "tags": {}, "started": summary.stat().st_mtime - result.seconds.get("total", 0.0)}


def _finished(experiment: Experiment, run_key: str) -> str | None:
    """Return the id of the run with this key if it has all that it should have."""
    uri = resolve_uri(experiment.tracking_uri)
    with store_errors(uri):
        run = Tracker(uri, experiment.mlflow_experiment).find(run_key)
    return str(run.info.run_id) if run is not None and run.info.status == "FINISHED" else None
