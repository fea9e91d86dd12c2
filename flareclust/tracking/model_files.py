"""The files of a logged model: a models-from-code pyfunc with its arrays, nothing pickled."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.features.scaling import Scaling

MODEL_NAME = "model"


def column_names(centroids: FloatArray, columns: Sequence[str] | None) -> list[str]:
    """Return the names of the columns of centroids (k, d); x0, x1, ... without any.

    Raises:
        UserError: the names do not fit, or there are no centroids.
    """
    if centroids.ndim != 2 or not centroids.size:
        raise UserError(f"expected centroids of shape (k, d), got {centroids.shape}")
    d = centroids.shape[1]
    names = [f"x{i}" for i in range(d)] if columns is None else [str(name) for name in columns]
    if len(names) != d or len(set(names)) != d:
        raise UserError(f"expected {d} different column names, one per column of the centroids, got {names}")
    return names


def save_model(
    folder: Path,
    centroids: FloatArray,
    columns: Sequence[str] | None,
    gaps: Mapping[str, Any] | None,
    run_id: str,
    model_id: str,
    scaling: Scaling | None = None,
    metric: str = "euclidean",
    filling: FloatArray | None = None,
) -> None:
    """Write the model of a run to `folder`.

    Args:
        folder: a new one.
        centroids: (k, d).
        columns: names that the model picks its columns by; None for arrays of exactly d columns.
        gaps: for centroids with unknown entries and rows that may lack columns, how distances are computed: see
            `flareclust.features.result.model_settings`; else None.
        run_id: of the run.
        model_id: of the logged model.
        scaling: of the columns, where the federation scaled them.
        metric: "cosine" where the clusters are of rows of length 1.
        filling: what gaps of the columns (d,) are filled with, where the federation filled them.

    Raises:
        UserError: the centroids are not finite where they must be, or the names do not fit.
    """
    import pandas as pd
    from mlflow import __version__ as installed
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    names = column_names(centroids, columns) if columns is not None else None
    if gaps is None and not np.isfinite(centroids).all():
        raise UserError("expected finite centroids, got missing or infinite values; fill them before log_model")
    with tempfile.TemporaryDirectory() as scratch:
        array = Path(scratch, "centroids.npy")
        np.save(array, centroids, allow_pickle=False)
        artifacts = {"centroids": str(array)}
        if gaps is not None:
            Path(scratch, "settings.json").write_text(json.dumps(dict(gaps), allow_nan=False), encoding="utf-8")
            artifacts["settings"] = str(Path(scratch, "settings.json"))
        if scaling is not None:
            np.save(Path(scratch, "scaling.npy"), np.stack(scaling), allow_pickle=False)
            artifacts["scaling"] = str(Path(scratch, "scaling.npy"))
        if metric != "euclidean":
            Path(scratch, "metric.txt").write_text(metric, encoding="utf-8")
            artifacts["metric"] = str(Path(scratch, "metric.txt"))
        if filling is not None:
            np.save(Path(scratch, "filling.npy"), filling, allow_pickle=False)
            artifacts["filling"] = str(Path(scratch, "filling.npy"))
        if names is None:
            # Not unnamed columns: for those MLflow drops surplus columns of the input without a word.
            inputs = Schema([TensorSpec(np.dtype(np.float64), (-1, centroids.shape[1]))])
        else:
            # Not "double", which refuses integers: a column of these is what read_csv makes of ages.
            inputs = Schema([ColSpec(AnyType(), name, required=gaps is None) for name in names])
        example = np.nan_to_num(centroids[:1])
        pyfunc.save_model(
            folder,
            python_model=str(Path(__file__).with_name("model.py")),
            artifacts=artifacts,
            signature=ModelSignature(inputs, Schema([TensorSpec(np.dtype(np.int64), (-1,))])),
            input_example=example if names is None else pd.DataFrame(example, columns=names),
            pip_requirements=["numpy", "pandas", f"mlflow=={installed}"],
            mlflow_model=Model(artifact_path=MODEL_NAME, run_id=run_id, model_id=model_id, model_uuid=model_id),
        )
