"""Federations and processes that several test files of tracking use."""

import os
from pathlib import Path

import numpy as np

from flareclust.preparation.assignment import REPRESENTATIVES, mixture_of
from flareclust.preparation.scaling import filling_of, of_directions, scaling_of
from flareclust.tracking.model_files import save_model
from flareclust.tracking.runs import numbers_of

CENTROIDS = np.array([[0.0, 0.1], [10.0, 1 / 3]])

ROUNDS = [{"round": r, "inertia": 100.0 / (r + 1), "moved": 10.0 - r} for r in range(10)]

STARTED = 1_700_000_000_000

CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DO_NOT_TRACK"))}


def history(client, run_id, key):
    return [(metric.step, metric.value, metric.timestamp) for metric in client.get_metric_history(run_id, key)]


def artifact(tracker, run_id, path):
    from mlflow.artifacts import download_artifacts

    return Path(download_artifacts(run_id=run_id, artifact_path=path, tracking_uri=tracker.uri))


def model_folder(tracker, run_id):
    """Not by runs:/<id>/model, which MLflow looks up in its global store whatever tracking_uri says."""
    from mlflow.artifacts import download_artifacts

    location = tracker._find_model(run_id).artifact_location
    return Path(download_artifacts(artifact_uri=location, tracking_uri=tracker.uri))


def saved_model(folder, centroids, columns, **parts):
    """Save a model in a folder, and return it as MLflow loads it."""
    import mlflow

    save_model(folder, centroids, columns, run_id="0" * 32, model_id="m-" + "0" * 32, **parts)
    return mlflow.pyfunc.load_model(str(folder))


def model_of(result, folder):
    """Return the loaded model of a result."""
    parts = {"scaling": scaling_of(result.arrays), "filling": filling_of(result.arrays), "words": result.words}
    parts["representatives"] = result.arrays if REPRESENTATIVES in result.arrays else None
    parts["metric"] = "cosine" if of_directions(result.arrays) else "euclidean"
    parts["mixture"] = mixture_of({**result.arrays, "centroids": result.centroids})
    return saved_model(folder, result.centroids, result.columns, thresholds=result.thresholds(), **parts)


def log_federation(tracker, run_key="key"):
    run_id = tracker.start(run_key, "feca/iid/s0", {"k": 2, "seed": 0}, {"seed": 0, "kind": "trial"})
    tracker.log(run_id, numbers_of(rounds=ROUNDS), STARTED)
    tracker.log(run_id, numbers_of({"ari": 0.5, "nmi": None}, {"seconds": 1.5}))
    tracker.log_centroids(run_id, CENTROIDS, None)
    tracker.log_model(run_id, CENTROIDS)
    tracker.finish(run_id)
    return run_id
