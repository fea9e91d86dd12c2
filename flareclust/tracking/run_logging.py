"""The one logger: results, sweeps and personalised models, which are in their folders, in MLflow.

A run is found by the key that its result keeps. So the same call logs it when it is over and later, nothing is logged twice,
and a run that was cut off is completed.
"""

import hashlib
import logging
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.evaluation.outcomes import outcomes_of
from flareclust.evaluation.profiles import profiles_of
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.profiled import shown_noisy_profiles
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.saved import read_result
from flareclust.experiment.sweeps import folder as study_files
from flareclust.preparation import result as partial
from flareclust.preparation.assignment import REPRESENTATIVES, mixture_of
from flareclust.preparation.scaling import filling_of, of_directions, scaling_of
from flareclust.protocol import registry
from flareclust.protocol.outcome import SUMMARY, folder_of, is_round, numbers_of_sites
from flareclust.tracking.note import NOTE_TAG, describe, in_units
from flareclust.tracking.origin import data_input
from flareclust.tracking.promotion import METRIC, check_alias, check_metric
from flareclust.tracking.runs import Tracker, numbers_of
from flareclust.tracking.store import NoAnswer, resolve_uri, store_errors
from flareclust.tracking.sweep_runs import SweepTracker

if TYPE_CHECKING:
    from flareclust.personal.result import PersonalResult

_log = logging.getLogger(__name__)

#: The table of the clusters' profiles among the artifacts.
_PROFILES_FILE = "profiles.json"

#: The table of the clusters' outcomes among the artifacts.
_OUTCOMES_FILE = "outcomes.json"

#: The tag with the job's id at its NVFlare server.
_JOB_TAG = "nvflare.job_id"

#: The experiment of personalised models.
_PERSONAL = "flareclust-personal"

#: What decides a run and is always logged; other options only where they differ from their defaults.
_ALWAYS = ("algorithm", "data", "k", "partition", "n_sites", "seed", "engine")
#: Options that say how a run is kept and tried again, not what it is.
_KEPT = ("params", "tracking_uri", "mlflow_experiment", "retries", "title", "row_name")

#: Numbers of a round that say the same as `cost/*` where there is one round.
_COST = ("bytes_up", "bytes_down", "seconds_merge")


class _NotLogged(FlareclustError):
    """A result that is in its folder could not be logged to MLflow, or only in part."""


class _Logged(NamedTuple):
    """What logging a folder came to.

    Attributes:
        run_id: MLflow's run, of a sweep the parent.
        known: whether MLflow had all of it before.
        decision: what came of offering the alias, in a sentence; empty where none was asked for.
    """

    run_id: str
    known: bool
    decision: str = ""


@contextmanager
def _opened(experiment: Experiment) -> Iterator[Tracker]:
    """Give the MLflow experiment that an experiment is logged to; NoAnswer where the store fails."""
    uri = resolve_uri(experiment.tracking_uri)
    with store_errors(uri):
        yield Tracker(uri, experiment.mlflow_experiment)


def start_run(
    experiment: Experiment, run_key: str, tags: Mapping[str, object], prepared: Prepared | None = None
) -> str:
    """Find or create the MLflow run of this experiment, whose k must be known; return its id.

    By the key the run is found when it is tried again; what it runs on, if that is here, is for MLflow's column Dataset.
    """
    data = None if prepared is None else data_input(experiment, prepared)
    own = {"algorithm": experiment.algorithm, "partition": experiment.partition, "seed": experiment.seed}
    own |= {"engine": experiment.engine, "data": experiment.data, "flareclust.version": __version__}
    with _opened(experiment) as tracker:
        run_id = tracker.start(run_key, experiment.name, _run_params(experiment), {**own, **tags})
        if data is not None:
            tracker.log_data(run_id, data)
        return run_id


def _run_params(experiment: Experiment) -> dict[str, Any]:
    """Return what MLflow shows as parameters: what decides the run, options that were set, settings that have a value."""
    fields, values = Experiment.model_fields, experiment.model_dump(mode="json", exclude=set(_KEPT))
    params = {name: values[name] for name in _ALWAYS}
    if experiment.partition == "none":
        del params["n_sites"]  # as many as have brought rows; the metrics say how many took part
    params |= {name: value for name, value in values.items() if name not in _ALWAYS and value != fields[name].default}
    if experiment.k_range is not None:  # k is logged once it is chosen
        params |= {"k": None, "k_range": "{}..{}".format(*experiment.k_range)}
    settings = registry.get(experiment.algorithm).parameters() | experiment.params
    params |= {f"param.{name}": value for name, value in settings.items()}
    return {name: value for name, value in params.items() if value is not None}


def _log_run(result: Result, experiment: Experiment, run_id: str, started: float) -> Result:
    """Log a saved result to its MLflow run; return it with `run_id` set. What the run has already stays as it is.

    It `started` so many seconds since 1970. _NotLogged where the store failed; the text says what is missing.
    """
    if result.centroids_file is None or result.outcome is None:
        raise UserError("save the result before logging it")
    outcome = result.outcome
    todo: dict[str, Callable[[Tracker], object]] = {
        "metrics and files": lambda tracker: _log_numbers(tracker, run_id, result, experiment),
        "the rounds": lambda tracker: tracker.log(run_id, numbers_of(rounds=_rounds(result)), int(started * 1000)),
        "the model": lambda tracker: _log_model(tracker, run_id, result),
    }
    if name := experiment.register_as:
        todo[f"the model's version in {name}"] = lambda tracker: tracker.register(run_id, name)
    try:
        with _opened(experiment) as tracker:
            for part in list(todo):
                todo[part](tracker)
                del todo[part]
            tracker.tag(run_id, NOTE_TAG, describe(result, experiment))
            if outcome.job:
                tracker.tag(run_id, _JOB_TAG, outcome.job)
            tracker.finish(run_id)
    except FlareclustError as error:
        left = f"missing are {', '.join(todo)}" if todo else "its run was not closed"
        raise _NotLogged(f"{left} ({error})") from error
    return replace(result, run_id=run_id, run_page=tracker.page(run_id))


def _log_numbers(tracker: Tracker, run_id: str, result: Result, experiment: Experiment) -> None:
    refused = {} if result.outcome is None else result.outcome.refused
    folder = Path(result.centroids_file or "").parent
    counts = {"centroids_found": float(result.centroids_found), "sites_took_part": float(result.n_sites - len(refused))}
    if (outcomes := outcomes_of(result.arrays)) is not None and (tests := outcomes.tests()):
        counts["outcome_p"] = tests[-1].p
    chosen = {} if experiment.k_range is None else {"k": result.k}
    counts |= {f"chosen_{name}": float(value) for name, value in chosen.items()}
    cost = {f"seconds_{name}": value for name, value in result.seconds.items()}
    cost |= {f"bytes_{name}": float(value) for name, value in result.bytes.items()}
    tracker.log(run_id, numbers_of({**in_units(result.ranked_metrics, result.arrays), **counts}, cost), params=chosen)
    tracker.log_files(run_id, sorted(path for path in folder.iterdir() if path.is_file() and path.name != LABELS_FILE))
    tracker.log_centroids(run_id, result.centroids, result.columns)
    if (outcomes := outcomes_of(result.arrays)) is not None:
        tracker.log_table(run_id, _OUTCOMES_FILE, outcomes.table())
    profiles = profiles_of(result.arrays, result.columns, result.row_name) or shown_noisy_profiles(result)
    if profiles is not None:
        tracker.log_table(run_id, _PROFILES_FILE, profiles.table())


def _rounds(result: Result) -> list[dict[str, float | None]]:
    """Return the numbers of each round for MLflow: the counts of sites in place of their names."""
    records = [] if result.outcome is None else [one for one in result.outcome.rounds if is_round(one)]
    left_out = _COST if len(records) == 1 else ()
    found = []
    for record in records:
        sites, refused = numbers_of_sites(record)
        diagnostics = record["diagnostics"]
        assert isinstance(diagnostics, dict)
        own = {name: value for name, value in record.items() if isinstance(value, int | float) and name not in left_out}
        numbers = {**in_units(diagnostics, result.arrays), **own, "sites": sites, "refused": refused}
        found.append({name: None if value is None else float(value) for name, value in numbers.items()})
    return found


def _log_model(tracker: Tracker, run_id: str, result: Result) -> None:
    gaps = partial.model_settings(result.algorithm, result.params, result.arrays)
    tracker.log_model(
        run_id,
        result.centroids,
        result.columns,
        gaps=gaps,
        scaling=scaling_of(result.arrays),
        metric="cosine" if of_directions(result.arrays) else "euclidean",
        filling=filling_of(result.arrays),
        thresholds=None if gaps else result.thresholds(),
        words=result.words,
        mixture=mixture_of({**result.arrays, "centroids": result.centroids}),
        representatives=result.arrays if REPRESENTATIVES in result.arrays else None,
    )


def log_or_warn(result: Result, experiment: Experiment, run_id: str, started: float, options: str = "") -> Result:
    """Log a saved result as `_log_run` does; where that fails, return it with a warning that says how to log it later.

    That command has the options, too.
    """
    try:
        return _log_run(result, experiment, run_id, started)
    except _NotLogged as error:
        folder = Path(result.centroids_file or "").parent
        job = f" of the NVFlare job {result.job}" if result.job else ""
        command = log_command(folder, experiment.tracking_uri) + options
        warning = f"the result{job} is in {folder}, but not in MLflow: {error}; log it later with: {command}"
        close_run(experiment, run_id, warning)
        return replace(result, warnings=[*result.warnings, warning])


def log_command(folder: Path, uri: str | None) -> str:
    """Return the command that logs a folder to this store; an address with a password is left to the environment."""
    store = resolve_uri(uri)
    option = "" if "@" in store else f" --uri {shlex.quote(store)}"
    return f"flareclust log {shlex.quote(str(folder.absolute()))}{option}"


def offer_alias(experiment: Experiment, run_id: str, alias: str, metric: str = METRIC) -> str:
    """Register the run's model and offer it the alias; return what came of it, in a sentence."""
    if experiment.register_as is None:
        raise UserError("an alias needs a registered model: give the experiment register_as, its name in MLflow")
    with _opened(experiment) as tracker:
        version = tracker.register(run_id, experiment.register_as)
        decision = tracker.offer_alias(experiment.register_as, version, alias, metric)
    verb = "has" if decision.takes_over else "does not have"
    return f"version {version} of {experiment.register_as} {verb} the alias {alias}: it {decision.reason}"


def close_run(experiment: Experiment, run_id: str, reason: str, *, stopped: bool = False) -> bool:
    """Mark an MLflow run as failed, or as killed if it was stopped, with the reason, where the store answers.

    Return whether it did. It must not hide why the run ended.
    """
    try:
        with _opened(experiment) as tracker:
            tracker.fail(run_id, reason, stopped=stopped)
    except FlareclustError as error:
        _log.info("the MLflow run %s could not be closed: %s", run_id, error)
        return False
    return True


def was_stopped(error: BaseException) -> bool:
    """Return whether somebody wanted the end: Ctrl-C, a cancelled flow run, a service that was stopped.

    Python, asyncio and Prefect raise for these what is no Exception: KeyboardInterrupt, SystemExit, CancelledError,
    TerminationSignal.
    """
    return not isinstance(error, Exception)


def log_folder(
    folder: Path, uri: str | None = None, alias: str | None = None, metric: str | None = None
) -> dict[Path, _Logged]:
    """Log a saved result, or the studies of a sweep's folder, as their own runs would have done; return what came of it.

    UserError where the folder holds neither, _NotLogged where the store failed; other arguments are as of `_log_result`.
    """
    folder = folder_of(folder)
    files = [] if (folder / SUMMARY).exists() else sorted(folder.glob("trials*.jsonl"))
    if not files:
        return {folder: _log_result(folder, uri, alias, metric)}
    if alias is not None or metric is not None:
        raise UserError(f"{folder} is of a sweep, which registers no model; leave out --alias and --metric")
    return {file: _log_trials(file, uri) for file in files}


def _log_trials(file: Path, uri: str | None) -> _Logged:
    """Log the study whose trials a file of `flareclust.experiment.sweeps.folder` holds; a run that MLflow has is left alone.

    UserError where the file does not hold a whole study, _NotLogged where the store failed.
    """
    about, done = study_files.all_trials(file)
    store, failed = resolve_uri(uri), sum(one.measured is None for one in done)
    try:
        with store_errors(store):
            parent = Tracker(store, about["experiment"]).find(about["key"])
            counts = {"trials/done": len(done) - failed, "trials/failed": failed}
            closed = parent is not None and parent.info.status == ("FAILED" if failed else "FINISHED")
            if closed and counts.items() <= parent.data.metrics.items():
                return _Logged(str(parent.info.run_id), known=True)
        tracker = SweepTracker(about["name"], [one.trial for one in done], store, about["experiment"])
        tracker.complete(done)
        if tracker.lost is not None:
            raise tracker.lost
    except NoAnswer as error:
        raise _NotLogged(f"{file} is not in MLflow, or only in part: {error}") from error
    return _Logged(tracker.parent, known=False)


def _log_result(folder: Path, uri: str | None = None, alias: str | None = None, metric: str | None = None) -> _Logged:
    """Log a saved result to MLflow, as its own run would have done, and offer its model's version the alias, if any.

    That is decided by the metric, None for simplified silhouette.

    Raises:
        UserError: the folder holds no complete result, or an alias is asked for a model that is not registered.
        _NotLogged: the store failed.
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
    with _opened(experiment) as tracker:
        run = tracker.find(tracking["key"])
    if known := run is not None and run.info.status == "FINISHED":  # it has all that it should have
        run_id = str(run.info.run_id)
    else:
        run_id = start_run(experiment, tracking["key"], tracking["tags"])
        _log_run(result, experiment, run_id, tracking["started"])
    decision = "" if alias is None else offer_alias(experiment, run_id, alias, metric)
    return _Logged(run_id, known, decision)


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


def log_personal(result: "PersonalResult", name: str) -> "PersonalResult":
    """Log a saved result as a finished run; return it with `run_id`, or with a warning where the store failed."""
    store = resolve_uri()
    tags = {"kind": "personal", "method": result.settings["method"], "flareclust.version": __version__}
    cost = {f"bytes_{way}": float(size) for way, size in result.bytes.items()} | {"seconds": result.seconds}
    try:
        with store_errors(store):
            tracker = Tracker(store, _PERSONAL)
            run_id = tracker.start(uuid.uuid4().hex, name, result.settings, tags)
            numbers = numbers_of({"accuracy": result.final_accuracy}, cost, result.rounds())
            tracker.log(run_id, numbers, int((time.time() - result.seconds) * 1000))
            tracker.log_files(run_id, sorted(Path(result.folder or "").iterdir()))
            tracker.finish(run_id)
    except FlareclustError as error:
        warning = f"the result is in {result.folder}, but not in MLflow as a whole: {error}"
        return replace(result, warnings=[*result.warnings, warning])
    return replace(result, run_id=run_id)
