"""An experiment in MLflow: one run, found again by its key when the job is tried again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flareclust import partial, registry
from flareclust.errors import UserError
from flareclust.flows.config import Experiment
from flareclust.outcome import Outcome, is_round
from flareclust.result import Result
from flareclust.sites import LABELS_FILE
from flareclust.tracking import Tracker
from flareclust.version import __version__


def log_run(result: Result, outcome: Outcome, experiment: Experiment, run_id: str, started: float) -> Result:
    """Log a saved result to its MLflow run; return it with `run_id` set."""
    if result.centroids_file is None:
        raise UserError("save the result before logging it")
    folder = Path(result.centroids_file).parent
    tracker = Tracker(experiment.tracking_uri, experiment.mlflow_experiment)
    chosen = {} if experiment.k_range is None else {"chosen_k": float(result.k)}
    rounds = [_numbers(record) for record in outcome.rounds if is_round(record)]
    tracker.log_rounds(run_id, rounds, int(started * 1000))
    cost = {f"seconds_{name}": value for name, value in result.seconds.items()}
    cost |= {f"bytes_{name}": float(value) for name, value in result.bytes.items()}
    tracker.log_result(
        run_id,
        final={**result.metrics, "centroids_found": float(result.centroids_found), **chosen},
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
    tracker.finish(run_id)
    return replace(result, run_id=run_id)


def start_run(experiment: Experiment, run_key: str, tags: Mapping[str, object]) -> str:
    """Find or create the MLflow run of this experiment, whose k must be known; return its id."""
    tracker = Tracker(experiment.tracking_uri, experiment.mlflow_experiment)
    params = experiment.model_dump(mode="json", exclude={"params", "tracking_uri", "mlflow_experiment", "retries"})
    if experiment.partition == "none":
        del params["clients"]  # as many as have brought rows; the metrics say how many took part
    settings = registry.get(experiment.algorithm).parameters() | experiment.params
    params |= {f"param.{name}": value for name, value in settings.items()}
    own = {"algorithm": experiment.algorithm, "partition": experiment.partition, "seed": experiment.seed}
    own |= {"engine": experiment.engine, "data": experiment.data, "flareclust.version": __version__}
    return tracker.start(run_key, experiment.name, params, {**own, **tags})


def fail_run(experiment: Experiment, run_id: str, reason: str) -> None:
    """Mark an MLflow run as failed, with the reason."""
    Tracker(experiment.tracking_uri, experiment.mlflow_experiment).fail(run_id, reason)


def _numbers(record: Mapping[str, object]) -> dict[str, float]:
    """Return a round's numbers for MLflow: the counts of sites in place of their names."""
    sites, refused, diagnostics = record["sites"], record["refused"], record["diagnostics"]
    assert isinstance(sites, list)
    assert isinstance(refused, dict)
    assert isinstance(diagnostics, dict)
    own = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
    return {**diagnostics, **own, "sites": float(len(sites)), "refused": float(len(refused))}
