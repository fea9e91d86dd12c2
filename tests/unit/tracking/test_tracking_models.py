"""The model of a run: without pickle, with its columns, in the registry, and served by MLflow."""

import json
import pickletools
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from flareclust._foundation.errors import UserError
from flareclust.preparation.scaling import Scaling
from tests.mlflow_server import process_group
from tests.patience import PATIENCE
from tests.unit.tracking.tracking_cases import CENTROIDS, CLEAN_ENV, log_federation, model_folder


# --- the model ---
def is_pickle(file):
    try:
        return sum(1 for _ in pickletools.genops(file.read_bytes())) > 1
    except ValueError:
        return False


def test_logged_model_loads_without_pickle_and_checks_its_columns(tracker):
    import mlflow

    run_id = tracker.start("key", "name", {})
    assert tracker.log_model(run_id, CENTROIDS) == f"runs:/{run_id}/model"
    folder = model_folder(tracker, run_id)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"MLmodel", "model.py", "centroids.npy"} <= {path.name for path in files}
    assert not [path for path in files if path.suffix in (".pkl", ".pickle") or is_pickle(path)]
    requirements = (folder / "requirements.txt").read_text().split()
    assert requirements == ["numpy", "pandas", f"mlflow=={mlflow.__version__}"]
    model = mlflow.pyfunc.load_model(str(folder))
    assert model.predict(np.array([[9.0, 0.0], [1.0, 0.0]])).tolist() == [1, 0]
    assert model.predict(pd.DataFrame({"p": [9.0], "q": [0.0]})).tolist() == [1]
    for surplus in (np.zeros((1, 3)), np.zeros((1, 1))):
        with pytest.raises(mlflow.MlflowException, match=r"does not match expected shape \(-1, 2\)"):
            model.predict(surplus)


@pytest.mark.parametrize(
    ("centroids", "space", "rows", "labels"),
    [
        (CENTROIDS, {}, {"b": [0.0, 0.0], "id": [7, 8], "a": [9.0, 1.0]}, [1, 0]),
        (
            [[0.0, 5000.0], [4.0, 5000.0]],  # of rows as they are, the first would be nearest to both
            {"scaling": Scaling(np.array([0.0, 5000.0]), np.array([1.0, 1000.0]))},
            {"a": [1.0, 3.0], "b": [9000.0, 5500.0]},
            [0, 1],
        ),
        (
            [[0.0, 5000.0], [4.0, 5000.0]],
            {"filling": np.array([3.0, 5000.0])},
            {"a": [1.0, np.nan], "b": [np.nan, 4999.0]},
            [0, 1],
        ),
        (np.eye(2), {"metric": "cosine"}, {"a": [9.0, 0.1, 0.0], "b": [8.0, 0.2, 0.0]}, [0, 1, -1]),
    ],
    ids=["by name", "scaled", "filled", "directions"],
)
def test_a_model_takes_rows_in_the_units_and_with_the_gaps_of_its_columns(tracker, centroids, space, rows, labels):
    import mlflow

    run_id = tracker.start("key", "name", {})
    tracker.log_model(run_id, np.array(centroids), ["a", "b"], **space)
    model = mlflow.pyfunc.load_model(str(model_folder(tracker, run_id)))
    assert model.predict(pd.DataFrame(rows)).tolist() == labels
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['b'\]"):
        model.predict(pd.DataFrame({"a": [9.0]}))


def test_model_is_logged_once_and_belongs_to_its_run(tracker, client):
    run_id = tracker.start("key", "name", {"k": 2})
    tracker.log_model(run_id, CENTROIDS)
    tracker.log_model(run_id, CENTROIDS)
    (model,) = client.search_logged_models([tracker._experiment_id])
    assert (model.source_run_id, str(model.status), model.params) == (run_id, "READY", {"k": "2"})
    assert [output.model_id for output in client.get_run(run_id).outputs.model_outputs] == [model.model_id]
    with pytest.raises(UserError, match="finite centroids"):
        tracker.log_model(run_id, np.array([[np.nan, 1.0]]))


def test_registering_twice_gives_one_version(tracker, client):
    import mlflow

    runs = [log_federation(tracker, key) for key in ("a", "b")]
    assert [tracker.register(run, "clusters") for run in (*runs, runs[1])] == [1, 2, 2]
    assert client.get_model_version("clusters", "2").run_id == runs[1]
    source = client.get_model_version_download_uri("clusters", "1")
    assert mlflow.pyfunc.load_model(source).predict(CENTROIDS).tolist() == [0, 1]
    with pytest.raises(UserError, match="call log_model first"):
        tracker.register(tracker.start("c", "name", {}), "clusters")
    with pytest.raises(UserError, match="model name without quotes"):
        tracker.register(runs[0], "o'clusters")


@pytest.mark.slow
def test_mlflow_models_predict_gives_the_labels(tracker, store, tmp_path):
    run_id = log_federation(tracker)
    (tmp_path / "in.json").write_text(json.dumps({"inputs": [[9, 0], [1, 0], [5.1, 0]]}))
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", f"runs:/{run_id}/model"]
    command += ["--env-manager", "local", "-i", "in.json", "-t", "json"]
    env = CLEAN_ENV | {"MLFLOW_TRACKING_URI": store, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with process_group(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(output) == {"predictions": [1, 0, 1]}
