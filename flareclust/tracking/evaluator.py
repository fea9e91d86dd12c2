"""MLflow's evaluation of models that place rows in clusters: `mlflow.models.evaluate(..., model_type="clustering")`.

MLflow finds the class through its entry point `mlflow.model_evaluator`. It takes any model whose predictions are numbers
of clusters, one per row, not only ours.
"""

import time
from typing import Any

import numpy as np
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray

_MODEL_TYPE = "clustering"

#: Rows that the silhouette is computed from, which needs all their distances; drawn with this seed.
_SAMPLE, _SEED = 2000, 0


class ClusteringEvaluator(ModelEvaluator):
    """Measures clusters by the rows, and by true classes where the data have a column of targets."""

    @classmethod
    def can_evaluate(cls, *, model_type: str, evaluator_config: object, **kwargs: object) -> bool:
        """Return whether this is a clustering."""
        return model_type == _MODEL_TYPE

    def evaluate(self, *, dataset: Any, run_id: str, model: Any = None, predictions: Any = None, **kwargs: Any) -> Any:
        """Measure the clusters that a model predicts, or that come with the data, and log the measures to the run.

        UserError where there is neither a model nor a prediction, or a prediction is no number of a cluster.
        """
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        features = dataset.features_data
        found = model.predict(features) if model is not None else predictions
        if found is None and dataset.has_predictions:
            found = dataset.predictions_data
        if found is None:
            raise UserError("give mlflow.models.evaluate a model, or data with a column of predictions")
        y = np.asarray(dataset.labels_data) if dataset.has_targets else None
        values, now = _clustering_metrics(_numeric(features), _labels(found), y), time.time_ns() // 1_000_000
        MlflowClient().log_batch(run_id, [Metric(name, value, now, 0) for name, value in values.items()])
        return EvaluationResult(metrics=values, artifacts={}, run_id=run_id)


def _clustering_metrics(X: FloatArray, labels: IntArray, y: Any = None) -> dict[str, float]:
    """Return measures of a clustering of rows (n, d) with labels and maybe true classes (n,).

    Rows with a label below 0 are in no cluster, and only counted.

    Returns:
        `rows`, `rows_without_cluster`, `clusters`; with two clusters or more scikit-learn's `silhouette` (of at most 2000 rows),
        `davies_bouldin` and `calinski_harabasz`; with `y` also `ari`, `nmi`, `purity`, `accuracy`.
    """
    from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score, silhouette_score

    from flareclust.evaluation import metrics

    placed = labels >= 0
    X, labels, rows = X[placed], labels[placed], len(labels)
    clusters = len(np.unique(labels))
    values = {"rows": float(rows), "rows_without_cluster": float(rows - len(labels)), "clusters": float(clusters)}
    if 2 <= clusters < len(labels):
        drawn = np.random.default_rng(_SEED).permutation(len(labels))[:_SAMPLE]
        if 2 <= len(np.unique(labels[drawn])) < len(drawn):
            values["silhouette"] = float(silhouette_score(X[drawn], labels[drawn]))
        values["davies_bouldin"] = float(davies_bouldin_score(X, labels))
        values["calinski_harabasz"] = float(calinski_harabasz_score(X, labels))
    if y is not None and len(labels):
        classes = np.unique(np.asarray(y)[placed], return_inverse=True)[1]
        measures = {"ari": metrics.ari, "nmi": metrics.nmi, "purity": metrics.purity, "accuracy": metrics.accuracy}
        values |= {name: float(measure(labels, classes)) for name, measure in measures.items()}
    return values


def _labels(found: Any) -> IntArray:
    values = np.asarray(found)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or values.dtype.kind not in "iuf" or not np.array_equal(values, np.floor(values)):
        raise UserError("expected one number of a cluster per row as prediction; this model predicts something else")
    return values.astype(np.int64)


def _numeric(features: Any) -> FloatArray:
    table = features.select_dtypes("number") if hasattr(features, "select_dtypes") else features
    return np.asarray(table, dtype=np.float64)
