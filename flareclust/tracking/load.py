"""`flareclust.load_result`: a result from a folder or from MLflow."""

import tempfile
from dataclasses import replace
from pathlib import Path

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.saved import read_result
from flareclust.protocol.outcome import ARRAYS, ROUNDS, SUMMARY

#: How the names of results in MLflow begin: of runs, and of registered models.
RUN, MODEL = "runs:/", "models:/"


def load_result(source: str | Path, *, tracking_uri: str | None = None) -> Result:
    """Return a result that `run(out=...)`, `Result.save` or a tracked run has kept.

    It has no rows of sites, so there is no picture to `plot`; a run in MLflow has no labels either.

    Args:
        source: the folder; "runs:/<run id>"; or of a registered model "models:/<name>@<alias>" or "models:/<name>/<version>".
        tracking_uri: MLflow's store; None for MLFLOW_TRACKING_URI or ./mlflow.db.

    Raises:
        UserError: there is no complete result.
    """
    text = str(source)
    if not text.startswith((RUN, MODEL)):
        return read_result(Path(source))
    run_id = text.removeprefix(RUN).strip("/")
    if text.startswith(RUN) and (not run_id or "/" in run_id):
        raise UserError(f"expected runs:/ and the id of one run, got {source!r}")
    require("tracking", f"a result of {source}")
    from flareclust.tracking.store import download, existing_store

    store = existing_store(tracking_uri)
    if text.startswith(MODEL):
        from flareclust.tracking.model_registry import run_of

        run_id = run_of(store, text.removeprefix(MODEL))
    with tempfile.TemporaryDirectory(prefix="flareclust-") as folder:
        result = read_result(download(run_id, (ARRAYS, ROUNDS, SUMMARY), Path(folder), store))
    return replace(result, run_id=run_id, centroids_file=None)
