"""An experiment in MLflow: one run, found again by its key when the job is tried again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.data.labels import LABELS_FILE
from flareclust.experiment.config import Experiment
from flareclust.experiment.result import Result
from flareclust.features import result as partial
from flareclust.protocol import registry
from flareclust.protocol.outcome import Outcome, is_round
from flareclust.tracking.promotion import METRIC
from flareclust.tracking.runs import Tracker

#: The tag with the job's id at its NVFlare server.
JOB_TAG = "nvflare.job_id"


def log_run(result: Result, outcome: Outcome, experiment: Experiment, run_id: str, started: float) -> Result:
    """Log a saved result to its MLflow run; return it with `run_id` set."""
    if result.centroids_file is None:
        raise UserError("save the result before logging it")
    folder = Path(result.centroids_file).parent
    tracker = Tracker(experiment.tracking_uri, experiment.mlflow_experiment)
    took_part = result.n_sites - len(outcome.refused)
    counts = {"centroids_found": float(result.centroids_found), "sites_took_part": float(took_part)}
    chosen = {} if experiment.k_range is None else {"chosen_k": float(result.k)}
    rounds = [_numbers(record) for record in outcome.rounds if is_round(record)]
    tracker.log_rounds(run_id, rounds, int(started * 1000))
    cost = {f"seconds_{name}": value for name, value in result.seconds.items()}
    cost |= {f"bytes_{name}": float(value) for name, value in result.bytes.items()}
    tracker.log_result(
        run_id,
        final={**result.metrics, **counts, **chosen},
        cost=cost,
        centroids=result.centroids,
        columns=result.columns,
        files=sorted(path for path in folder.iterdir() if path.is_file() and path.name != LABELS_FILE),
    )
    tracker.log_model(
        run_id, result.centroids, result.columns, partial.model_settings(result.algorithm, result.params, result.arrays)
    )
    if experiment.register_as:
        tracker.register(run_id, experiment.register_as)
    if outcome.job:
        tracker.tag(run_id, JOB_TAG, outcome.job)
    tracker.finish(run_id)
    return replace(result, run_id=run_id)


def start_run(experiment: Experiment, run_key: str, tags: Mapping[str, object]) -> str:
    """Find or create the MLflow run of this experiment, whose k must be known; return its id."""
    tracker = Tracker(experiment.tracking_uri, experiment.mlflow_experiment)
    params = experiment.model_dump(mode="json", exclude={"params", "tracking_uri", "mlflow_experiment", "retries"})
    if experiment.partition == "none":
        del params["n_sites"]  # as many as have brought rows; the metrics say how many took part
    settings = registry.get(experiment.algorithm).parameters() | experiment.params
    params |= {f"param.{name}": value for name, value in settings.items()}
    own = {"algorithm": experiment.algorithm, "partition": experiment.partition, "seed": experiment.seed}
    own |= {"engine": experiment.engine, "data": experiment.data, "flareclust.version": __version__}
    return tracker.start(run_key, experiment.name, params, {**own, **tags})


def offer_alias(experiment: Experiment, run_id: str, alias: str, metric: str = METRIC) -> str:
    """Register the run's model and offer it the alias; return what came of it, in a sentence."""
    if experiment.register_as is None:
        raise UserError(
            "an alias needs a registered model: give the experiment register_as, the model's name in MLflow"
        )
    tracker = Tracker(experiment.tracking_uri, experiment.mlflow_experiment)
    version = tracker.register(run_id, experiment.register_as)
    decision = tracker.offer_alias(experiment.register_as, version, alias, metric)
    verb = "has" if decision.takes_over else "does not have"
    return f"version {version} of {experiment.register_as} {verb} the alias {alias}: it {decision.reason}"


def fail_run(experiment: Experiment, run_id: str, reason: str, *, stopped: bool = False) -> None:
    """Mark an MLflow run as failed, or as killed if it was stopped, with the reason."""
    Tracker(experiment.tracking_uri, experiment.mlflow_experiment).fail(run_id, reason, stopped=stopped)


def was_stopped(error: BaseException) -> bool:
    """Return whether somebody wanted the end: Ctrl-C, a cancelled flow run, a service told to stop.

    Python, asyncio and Prefect raise for these what is no Exception: KeyboardInterrupt, SystemExit, CancelledError,
    TerminationSignal.
    """
    return not isinstance(error, Exception)


def _numbers(record: Mapping[str, object]) -> dict[str, float]:
    """Return a round's numbers for MLflow: the counts of sites in place of their names."""
    sites, refused, diagnostics = record["sites"], record["refused"], record["diagnostics"]
    assert isinstance(sites, list)
    assert isinstance(refused, dict)
    assert isinstance(diagnostics, dict)
    own = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
    return {**diagnostics, **own, "sites": float(len(sites)), "refused": float(len(refused))}
