"""The files of a logged model: a models-from-code pyfunc with its arrays, nothing pickled."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.data.words import takes_numbers
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
    *,
    run_id: str,
    model_id: str,
    gaps: Mapping[str, Any] | None = None,
    scaling: Scaling | None = None,
    metric: str = "euclidean",
    filling: FloatArray | None = None,
    thresholds: FloatArray | None = None,
    words: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write the model of a run to `folder`.

    Args:
        folder: a new one.
        centroids: (k, d).
        columns: names that the model picks its columns by; None for arrays of exactly d columns.
        run_id: of the run.
        model_id: of the logged model.
        gaps: for centroids with unknown entries and rows that may lack columns, how distances are computed: see
            `flareclust.features.result.model_settings`; else None.
        scaling: of the columns, where the federation scaled them.
        metric: "cosine" where the clusters are of rows of length 1.
        filling: what gaps of the columns (d,) are filled with, where the federation filled them.
        thresholds: distances from the centroids (k,) beyond which a row is far from them, where they are known.
        words: columns whose cells may be words, with the values of an ordered column in their order, none for dates.

    Raises:
        UserError: the centroids are not finite where they must be, or the names do not fit.
    """
    import pandas as pd
    from mlflow import __version__ as installed
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import AnyType

    names = column_names(centroids, columns) if columns is not None else None
    if gaps is None and not np.isfinite(centroids).all():
        raise UserError("expected finite centroids, got missing or infinite values; fill them before log_model")
    with tempfile.TemporaryDirectory() as scratch:
        artifacts = _artifacts(
            Path(scratch), centroids=centroids, scaling=scaling, filling=filling, thresholds=thresholds
        )
        texts = {"settings": None if gaps is None else json.dumps(dict(gaps), allow_nan=False)}
        texts["metric"] = None if metric == "euclidean" else metric
        if gaps is None and names is not None:
            texts["columns"] = json.dumps(names) if words or _raw_names(names) else None
            read = {
                name: {"values": values, "numbers": takes_numbers(values)} for name, values in (words or {}).items()
            }
            texts["words"] = json.dumps(read) if read else None
        artifacts |= _text_artifacts(Path(scratch), texts)
        if names is None:
            # Not unnamed columns: for those MLflow drops surplus columns of the input without a word.
            inputs = Schema([TensorSpec(np.dtype(np.float64), (-1, centroids.shape[1]))])
        else:
            # Not "double", which refuses integers: a column of these is what read_csv makes of ages.
            raw = _raw_names(names) if gaps is None else {}
            optional = {column for columns in raw.values() for column in columns}
            own = [ColSpec(AnyType(), name, required=gaps is None and name not in optional) for name in names]
            inputs = Schema(own + [ColSpec(AnyType(), name, required=False) for name in raw])
        example = np.nan_to_num(centroids[:1])
        pyfunc.save_model(
            folder,
            python_model=str(Path(__file__).with_name("model.py")),
            artifacts=artifacts,
            signature=ModelSignature(
                inputs,
                Schema([TensorSpec(np.dtype(np.int64), (-1,))]),
                ParamSchema([ParamSpec("details", DataType.boolean, False)]),
            ),
            input_example=example if names is None else pd.DataFrame(example, columns=names),
            pip_requirements=["numpy", "pandas", f"mlflow=={installed}"],
            mlflow_model=Model(artifact_path=MODEL_NAME, run_id=run_id, model_id=model_id, model_uuid=model_id),
        )


def _raw_names(columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the columns of each category, such as `sex=f` and `sex=m` of `sex`, by the name of the category."""
    found: dict[str, list[str]] = {}
    for column in columns:
        name, equals, _ = column.partition("=")
        if equals and name and name not in columns:
            found.setdefault(name, []).append(column)
    return found


def _artifacts(folder: Path, **arrays: Any) -> dict[str, str]:
    """Write those arrays that are there, each to a file of its name; return the files by name."""
    files = {}
    for name, values in arrays.items():
        if values is not None:
            files[name] = str(folder / f"{name}.npy")
            np.save(files[name], np.stack(values), allow_pickle=False)
    return files


def _text_artifacts(folder: Path, texts: Mapping[str, str | None]) -> dict[str, str]:
    """Write those texts that are there, each to a file of its name; return the files by name."""
    files = {}
    for name, text in texts.items():
        if text is not None:
            path = folder / f"{name}.{'txt' if name == 'metric' else 'json'}"
            path.write_text(text, encoding="utf-8")
            files[name] = str(path)
    return files
