"""Runs of `flareclust.run` that are tracked in this process."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed, UserError
from flareclust.data.datasets import load
from flareclust.tracking.runs import Tracker
from tests.unit.experiment.api_cases import rows


@pytest.fixture
def runs(store, monkeypatch, tmp_path):
    """Give the runs that were added since the test began, newest first."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)
    client = MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'flareclust'")

    def added():
        found = client.search_runs([experiment.experiment_id])
        return [run for run in found if run.info.run_id not in before]

    before: set[str] = set()
    before |= {run.info.run_id for run in added()}
    return added


def test_a_tracked_run_holds_the_result(runs, store, tmp_path):
    from mlflow import MlflowClient

    result = flareclust.run(
        "feca", data="iris", n_sites=3, partition="dirichlet:1", seed=2, track=True, min_sites=1, n_init=2
    )
    (run,) = runs()
    assert result.run_id == run.info.run_id
    assert (run.info.run_name, run.info.status) == ("feca/iris/k3/dirichlet:1/s2", "FINISHED")
    metrics = run.data.metrics
    for name, value in result.metrics.items():
        if value is not None:
            assert metrics[f"final/{name}"] == pytest.approx(value)
    assert metrics["final/centroids_found"] == result.centroids_found
    assert metrics["cost/bytes_up"] == result.bytes["up"]
    assert metrics["cost/seconds_total"] == pytest.approx(result.seconds["total"])
    assert metrics["round/sites"] == 3
    assert {name.split("/")[0] for name in metrics} == {"final", "cost", "round"}
    assert all(isinstance(value, str) for value in run.data.tags.values())
    assert (run.data.tags["algorithm"], run.data.tags["seed"]) == ("feca", "2")
    assert (run.data.params["partition"], run.data.params["param.n_init"]) == ("dirichlet:1", "2")
    client = MlflowClient(store)
    kept = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {
        "centroids.npz",
        "centroids.csv",
        "picture.png",
        "profiles.json",
        "report.html",
        "result.json",
        "rounds.jsonl",
    } <= kept
    table = pd.DataFrame(
        **json.loads(Path(client.download_artifacts(run.info.run_id, "profiles.json", str(tmp_path))).read_text())
    )
    np.testing.assert_allclose(table["mean"], result.profiles()["mean"])
    path = client.download_artifacts(run.info.run_id, "centroids.npz", str(tmp_path))
    np.testing.assert_array_equal(np.load(path)["centroids"], result.centroids)
    assert [folder.name.startswith("feca-") for folder in (tmp_path / "flareclust-runs").iterdir()] == [True]


def test_the_tracked_model_predicts_as_the_result_does(runs, store):
    import mlflow
    from mlflow.artifacts import download_artifacts

    result = flareclust.run("kfed", data="iris", n_sites=3, track=True)
    location = Tracker(store)._find_model(result.run_id).artifact_location
    model = mlflow.pyfunc.load_model(download_artifacts(artifact_uri=location, tracking_uri=store))
    table = pd.DataFrame(load("iris").X, columns=load("iris").columns)
    np.testing.assert_array_equal(model.predict(table), result.predict(table))


def test_a_failing_job_gives_a_failed_run_with_the_reason(runs, tmp_path):
    with pytest.raises(JobFailed) as failed:
        flareclust.run("feca", rows(), k=25, n_sites=2, track=True)
    (run,) = runs()
    assert run.info.status == "FAILED"
    assert run.data.tags["flareclust.error"] == str(failed.value)
    assert "2 sites (site-1, site-2): each has fewer rows than k=25" in run.data.tags["flareclust.error"]
    assert list(tmp_path.rglob("*")) == []


def test_a_wrong_request_leaves_no_run(runs):
    with pytest.raises(UserError):
        flareclust.run("feca", rows(), k=3, n_sites=99, track=True)
    assert runs() == []
