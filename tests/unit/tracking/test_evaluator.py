"""MLflow's evaluation of clusterings."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.datasets import load
from flareclust.tracking.evaluator import ClusteringEvaluator, _clustering_metrics, _labels


def test_the_measures_are_those_of_scikit_learn_over_the_rows_that_have_a_cluster(rng):
    X = rng.normal(size=(300, 3))
    labels = rng.integers(-1, 4, 300)
    y = np.array(list("abc"))[rng.integers(0, 3, 300)]
    found = _clustering_metrics(X, labels, y)
    kept = labels >= 0
    expected = {
        "rows": 300,
        "rows_without_cluster": (~kept).sum(),
        "clusters": 4,
        "silhouette": metrics.silhouette_score(X[kept], labels[kept]),
        "davies_bouldin": metrics.davies_bouldin_score(X[kept], labels[kept]),
        "calinski_harabasz": metrics.calinski_harabasz_score(X[kept], labels[kept]),
        "ari": metrics.adjusted_rand_score(y[kept], labels[kept]),
        "nmi": metrics.normalized_mutual_info_score(y[kept], labels[kept]),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert set(found) - set(expected) == {"purity", "accuracy"}


def test_one_cluster_has_no_measures_of_separation():
    assert _clustering_metrics(np.eye(3), np.zeros(3, dtype=np.int64)) == {
        "rows": 3.0,
        "rows_without_cluster": 0.0,
        "clusters": 1.0,
    }


@pytest.mark.parametrize("found", [["a", "b"], [[1, 2], [3, 4]], [0.5, 1.0]])
def test_predictions_that_are_no_clusters_are_refused(found):
    with pytest.raises(UserError, match="one number of a cluster per row"):
        _labels(found)


@pytest.mark.parametrize("where", ["model", "predictions", "column", "nowhere"])
def test_clusters_come_from_the_model_the_predictions_or_a_column_of_the_data(where, rng, monkeypatch):
    logged = {}

    def log_batch(self, run_id, metrics):
        logged[run_id] = {one.key: one.value for one in metrics}

    monkeypatch.setattr("mlflow.MlflowClient.log_batch", log_batch)
    table = pd.DataFrame(rng.normal(size=(20, 2)), columns=["a", "b"]).assign(name="x")
    labels = np.arange(20) % 2
    data = SimpleNamespace(
        features_data=table,
        has_targets=where == "model",
        labels_data=labels,
        has_predictions=where == "column",
        predictions_data=labels,
    )
    model = SimpleNamespace(predict=lambda features: labels[:, None]) if where == "model" else None
    given = {
        "dataset": data,
        "run_id": "run",
        "model": model,
        "predictions": labels if where == "predictions" else None,
    }
    assert ClusteringEvaluator.can_evaluate(model_type="clustering", evaluator_config=None)
    if where == "nowhere":
        with pytest.raises(UserError, match=r"give mlflow\.models\.evaluate a model, or data with a column"):
            ClusteringEvaluator().evaluate(**given)
        return
    found = ClusteringEvaluator().evaluate(**given).metrics
    assert found == logged["run"]
    assert (found["rows"], found["clusters"], found.get("ari")) == (20, 2, 1.0 if where == "model" else None)


@pytest.mark.slow
def test_mlflow_finds_the_evaluator_and_evaluates_a_run_of_ours(store, monkeypatch, tmp_path):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)
    result = flareclust.run("feca", data="iris", n_sites=3, track=True)
    data = load("iris")
    table = pd.DataFrame(data.X, columns=data.columns).assign(species=data.y)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store)
    try:
        with mlflow.start_run() as run:
            model = f"runs:/{result.run_id}/model"
            found = mlflow.models.evaluate(model, table, targets="species", model_type="clustering")
        logged = mlflow.get_run(run.info.run_id).data.metrics
    finally:
        mlflow.set_tracking_uri(before)
    assert found.metrics["ari"] == logged["ari"] == pytest.approx(result.metrics["ari"])
