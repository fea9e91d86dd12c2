"""An experiment in MLflow: one run, found again by its key when the job is tried again."""

import logging
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.result import Result
from flareclust.features import result as partial
from flareclust.features.scaling import filling_of, scaling_of
from flareclust.features.space import of_directions
from flareclust.protocol.outcome import Outcome, is_round
from flareclust.tracking.note import NOTE_TAG, describe
from flareclust.tracking.origin import data_origin
from flareclust.tracking.promotion import METRIC
from flareclust.tracking.run_numbers import in_units, round_numbers, run_params
from flareclust.tracking.runs import Tracker
from flareclust.tracking.store import resolve_uri, store_errors

log = logging.getLogger(__name__)

#: The table of the clusters' profiles among the artifacts.
PROFILES_FILE = "profiles.json"

#: The tag with the job's id at its NVFlare server.
JOB_TAG = "nvflare.job_id"


class NotLogged(FlareclustError):
    """A result that is in its folder could not be logged to MLflow, or only in part."""


def log_run(result: Result, experiment: Experiment, run_id: str, started: float) -> Result:
    """Log a saved result to its MLflow run; return it with `run_id` set. What the run has already stays as it is.

    Args:
        result: a saved one.
        experiment: what was asked, with k.
        run_id: its MLflow run.
        started: when it began, seconds since 1970.

    Raises:
        NotLogged: the store failed; the text says what is missing.
    """
    if result.centroids_file is None or result.outcome is None:
        raise UserError("save the result before logging it")
    uri = resolve_uri(experiment.tracking_uri)
    parts = _Parts(result, result.outcome, run_id)
    todo: dict[str, Callable[[Tracker], object]] = {
        "metrics and files": lambda tracker: parts.log_result(tracker, chosen=experiment.k_range is not None),
        "the rounds": lambda tracker: parts.log_rounds(tracker, int(started * 1000)),
        "the model": parts.log_model,
    }
    if name := experiment.register_as:
        todo[f"the model's version in {name}"] = lambda tracker: tracker.register(run_id, name)
    try:
        with store_errors(uri):
            tracker = Tracker(uri, experiment.mlflow_experiment)
            for part in list(todo):
                todo[part](tracker)
                del todo[part]
            tracker.tag(run_id, NOTE_TAG, describe(result, experiment))
            parts.finish(tracker)
    except FlareclustError as error:
        left = f"missing are {', '.join(todo)}" if todo else "its run was not closed"
        raise NotLogged(f"{left} ({error})") from error
    return replace(result, run_id=run_id, run_page=tracker.page(run_id))


def log_or_warn(result: Result, experiment: Experiment, run_id: str, started: float, options: str = "") -> Result:
    """Log a saved result as `log_run` does; where that fails, return it with a warning that says how to log it later.

    Args:
        result, experiment, run_id, started: as of `log_run`.
        options: of the command that logs it later.
    """
    try:
        return log_run(result, experiment, run_id, started)
    except NotLogged as error:
        warning = not_logged(result, experiment, error, options)
        close_run(experiment, run_id, warning)
        return replace(result, warnings=[*result.warnings, warning])


def not_logged(result: Result, experiment: Experiment, error: NotLogged, options: str = "") -> str:
    """Return the warning about a saved result that MLflow does not have as a whole, with the command that logs it."""
    folder = Path(result.centroids_file or "").parent
    job = f" of the NVFlare job {result.job}" if result.job else ""
    command = log_command(folder, experiment.tracking_uri) + options
    return f"the result{job} is in {folder}, but not in MLflow: {error}; log it later with: {command}"


def log_command(folder: Path, uri: str | None) -> str:
    """Return the command that logs a folder to this store; an address with a password is left to the environment."""
    store = resolve_uri(uri)
    return f"flareclust log {shlex.quote(str(folder.absolute()))}" + (
        "" if "@" in store else f" --uri {shlex.quote(store)}"
    )


@dataclass(frozen=True)
class _Parts:
    """What is logged of a result."""

    result: Result
    outcome: Outcome
    run_id: str

    def log_rounds(self, tracker: Tracker, started_ms: int) -> None:
        records = [record for record in self.outcome.rounds if is_round(record)]
        tracker.log_rounds(
            self.run_id, [round_numbers(r, self.result.arrays, len(records)) for r in records], started_ms
        )

    def log_result(self, tracker: Tracker, *, chosen: bool) -> None:
        result = self.result
        folder = Path(result.centroids_file or "").parent
        took_part = result.n_sites - len(self.outcome.refused)
        counts = {"centroids_found": float(result.centroids_found), "sites_took_part": float(took_part)}
        cost = {f"seconds_{name}": value for name, value in result.seconds.items()}
        cost |= {f"bytes_{name}": float(value) for name, value in result.bytes.items()}
        tracker.log_result(
            self.run_id,
            final={
                **in_units(result.metrics, result.arrays),
                **counts,
                **({"chosen_k": float(result.k)} if chosen else {}),
            },
            cost=cost,
            centroids=result.centroids,
            columns=result.columns,
            files=sorted(path for path in folder.iterdir() if path.is_file() and path.name != LABELS_FILE),
        )
        profiles = profiles_of(result.arrays, result.columns) or shown_noisy_profiles(result)
        if profiles is not None:
            tracker.log_table(self.run_id, PROFILES_FILE, profiles.table())

    def log_model(self, tracker: Tracker) -> None:
        result = self.result
        settings = partial.model_settings(result.algorithm, result.params, result.arrays)
        metric = "cosine" if of_directions(result.arrays) else "euclidean"
        scaling, filling = scaling_of(result.arrays), filling_of(result.arrays)
        thresholds = None if settings else result.thresholds()
        parts = scaling, metric, filling, thresholds, result.words
        tracker.log_model(self.run_id, result.centroids, result.columns, settings, *parts)

    def finish(self, tracker: Tracker) -> None:
        if self.outcome.job:
            tracker.tag(self.run_id, JOB_TAG, self.outcome.job)
        tracker.finish(self.run_id)


def start_run(
    experiment: Experiment, run_key: str, tags: Mapping[str, object], prepared: Prepared | None = None
) -> str:
    """Find or create the MLflow run of this experiment, whose k must be known; return its id.

    Args:
        experiment: what is run.
        run_key: by which the run is found when it is tried again.
        tags: of the run.
        prepared: what it runs on, for MLflow's column Dataset; None where it is not here.
    """
    params = run_params(experiment)
    origin = None if prepared is None else data_origin(experiment, prepared)
    own = {"algorithm": experiment.algorithm, "partition": experiment.partition, "seed": experiment.seed}
    own |= {"engine": experiment.engine, "data": experiment.data, "flareclust.version": __version__}
    uri = resolve_uri(experiment.tracking_uri)
    with store_errors(uri):
        tracker = Tracker(uri, experiment.mlflow_experiment)
        run_id = tracker.start(run_key, experiment.name, params, {**own, **tags})
        if origin is not None:
            tracker.log_origin(run_id, origin)
        return run_id


def offer_alias(experiment: Experiment, run_id: str, alias: str, metric: str = METRIC) -> str:
    """Register the run's model and offer it the alias; return what came of it, in a sentence."""
    if experiment.register_as is None:
        raise UserError(
            "an alias needs a registered model: give the experiment register_as, the model's name in MLflow"
        )
    uri = resolve_uri(experiment.tracking_uri)
    with store_errors(uri):
        tracker = Tracker(uri, experiment.mlflow_experiment)
        version = tracker.register(run_id, experiment.register_as)
        decision = tracker.offer_alias(experiment.register_as, version, alias, metric)
    verb = "has" if decision.takes_over else "does not have"
    return f"version {version} of {experiment.register_as} {verb} the alias {alias}: it {decision.reason}"


def fail_run(experiment: Experiment, run_id: str, reason: str, *, stopped: bool = False) -> None:
    """Mark an MLflow run as failed, or as killed if it was stopped, with the reason."""
    uri = resolve_uri(experiment.tracking_uri)
    with store_errors(uri):
        Tracker(uri, experiment.mlflow_experiment).fail(run_id, reason, stopped=stopped)


def close_run(experiment: Experiment, run_id: str, reason: str, *, stopped: bool = False) -> bool:
    """Do as `fail_run` does, where the store answers; return whether it did. It must not hide why the run ended."""
    try:
        fail_run(experiment, run_id, reason, stopped=stopped)
    except FlareclustError as error:
        log.info("the MLflow run %s could not be closed: %s", run_id, error)
        return False
    return True


def was_stopped(error: BaseException) -> bool:
    """Return whether somebody wanted the end: Ctrl-C, a cancelled flow run, a service that was stopped.

    Python, asyncio and Prefect raise for these what is no Exception: KeyboardInterrupt, SystemExit, CancelledError,
    TerminationSignal.
    """
    return not isinstance(error, Exception)
