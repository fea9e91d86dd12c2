"""The files of a logged model: a models-from-code pyfunc with its arrays, nothing pickled."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.core import mixtures
from flareclust.core.mixtures import Mixture
from flareclust.data.cells import takes_numbers
from flareclust.evaluation.profiles import categories_among
from flareclust.preparation.assignment import BY_REPRESENTATIVES
from flareclust.preparation.scaling import Scaling

MODEL_NAME = "model"


def column_names(centroids: FloatArray, columns: Sequence[str] | None) -> list[str]:
    """Return the names of the columns of centroids (k, d), x0, x1, ... without any; UserError where they do not fit."""
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
    mixture: Mixture | None = None,
    representatives: Mapping[str, Any] | None = None,
) -> None:
    """Write the model of a run to `folder`.

    Args:
        columns: names that the model picks its columns by; None for arrays of exactly d columns.
        gaps: for centroids with unknown entries and rows that may lack columns, how distances are computed: see
            `flareclust.preparation.result.model_settings`; else None.
        scaling: of the columns, where the federation scaled them.
        metric: "cosine" where the clusters are of rows of length 1.
        filling: what gaps of the columns (d,) are filled with, where the federation filled them.
        thresholds: distances from the centroids (k,) beyond which a row is far from them, where they are known.
        words: columns whose cells may be words, with the values of an ordered column in their order, none for dates.
        mixture: in the units of scaled columns, where the clusters are its components.
        representatives: arrays of a result whose rows belong to the cluster of the nearest of these, as
            `flareclust.preparation.assignment.BY_REPRESENTATIVES` names them; else None.

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
    plain = gaps is None and names is not None
    raw = _raw_names(names or []) if plain else {}
    read = {name: {"values": values, "numbers": takes_numbers(values)} for name, values in (words or {}).items()}
    settings = {
        "gaps": gaps,
        "scaling": None if scaling is None else np.stack(scaling).tolist(),
        "filling": None if filling is None else filling.tolist(),
        "metric": metric,
        "thresholds": None if thresholds is None else thresholds.tolist(),
        "columns": names if plain and (words or raw) else None,
        "words": read if plain else None,
        "log_scales": None if mixture is None else mixtures.log_scales(mixture).tolist(),
    }
    if representatives is not None:
        points, cluster, reach = (representatives[name].tolist() for name in BY_REPRESENTATIVES)
        settings["representatives"] = {"representatives": points, "cluster": cluster, "reach": reach}
    with tempfile.TemporaryDirectory() as scratch:
        artifacts = {"centroids": str(Path(scratch, "centroids.npy")), "settings": str(Path(scratch, "settings.json"))}
        np.save(artifacts["centroids"], centroids, allow_pickle=False)
        if mixture is not None:
            artifacts["inverses"] = str(Path(scratch, "inverses.npy"))
            np.save(artifacts["inverses"], mixtures.inverses(mixture), allow_pickle=False)
        Path(artifacts["settings"]).write_text(json.dumps(settings), encoding="utf-8")
        if names is None:
            # Not unnamed columns: for those MLflow drops surplus columns of the input without a word.
            inputs = Schema([TensorSpec(np.dtype(np.float64), (-1, centroids.shape[1]))])
        else:
            # Not "double", which refuses integers: a column of these is what read_csv makes of ages.
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
    """Return the columns of each category that is no column itself, by its name."""
    categories = categories_among(columns, range(len(columns)))
    return {name: [columns[j] for j in own] for name, own in categories.items() if name and name not in columns}
