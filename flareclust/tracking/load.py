"""Earlier results, from a folder or from MLflow: `flareclust.load_result`, and those under whose numbers a run gives its clusters."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.results.result import Result
from flareclust.experiment.results.saved import read_result
from flareclust.experiment.results.start import started_from
from flareclust.protocol.outcome import ARRAYS, ROUNDS, SUMMARY
from flareclust.tracking import promotion
from flareclust.tracking.store import NoAnswer, connect, download, existing_store, resolve_uri, store_errors

#: How the names of results in MLflow begin: of runs, and of registered models.
_RUN, _MODEL = "runs:/", "models:/"


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
    if not text.startswith((_RUN, _MODEL)):
        return read_result(Path(source))
    run_id = text.removeprefix(_RUN).strip("/")
    if text.startswith(_RUN) and (not run_id or "/" in run_id):
        raise UserError(f"expected runs:/ and the id of one run, got {source!r}")
    require("tracking", f"a result of {source}")
    store = existing_store(tracking_uri)
    if text.startswith(_MODEL):
        run_id = promotion.run_of(store, text.removeprefix(_MODEL))
    with tempfile.TemporaryDirectory(prefix="flareclust-") as folder:
        result = read_result(download(run_id, (ARRAYS, ROUNDS, SUMMARY), Path(folder), store))
    return replace(result, run_id=run_id, centroids_file=None)


class Reference(NamedTuple):
    """An earlier result and its name in texts; None where it cannot be read, and why."""

    name: str
    result: Result | None
    problem: str = ""


def reference_of(
    source: str | Result | None, tracking_uri: str | None, setting: str = "match_to (--match-to)"
) -> Reference | None:
    """Return the result that a setting names, or is; None where it names none; UserError where there is no such result."""
    if source is None:
        return None
    if isinstance(source, Result):
        return Reference("the earlier run", source)
    try:
        found = load_result(source, tracking_uri=tracking_uri)
    except NoAnswer:
        raise
    except UserError as error:
        raise UserError(f"{setting}: {error}") from error
    if source.startswith(_RUN):
        return Reference(f"run {str(found.run_id)[:8]}", found)
    return Reference(source, found) if source.startswith(_MODEL) else Reference(Path(source).name, found)


def with_start(experiment: Experiment, prepared: Prepared) -> Prepared:
    """Return a federation that starts from the centroids of the result that the experiment names; UserError where it cannot."""
    found = reference_of(experiment.start_from, experiment.tracking_uri, "start_from (--start)")
    assert found is not None
    assert found.result is not None
    return started_from(experiment, prepared, found.result, found.name)


def champion_of(experiment: Experiment, alias: str) -> Reference | None:
    """Return the result of the version of the experiment's model that has the alias; None where no version has it."""
    name, uri = experiment.register_as, resolve_uri(experiment.tracking_uri)
    if name is None:
        return None
    with store_errors(uri):
        holder = promotion.holder(connect(uri), name, alias)
    if holder is None:
        return None
    words = f"version {holder.number} of {name}"
    try:
        return Reference(words, load_result(f"{_MODEL}{name}/{holder.number}", tracking_uri=experiment.tracking_uri))
    except NoAnswer:
        raise
    except UserError as error:
        return Reference(words, None, str(error))


def with_numbers_of(reference: Reference | None, result: Result) -> Result:
    """Return a result under the numbers of the reference, where there is one; where that does not go, with a warning that says why."""
    if reference is None:
        return result
    try:
        if reference.result is None:
            raise UserError(f"the clusters cannot be matched to those of {reference.name}: {reference.problem}")
        return result.match_to(reference.result, reference.name)
    except UserError as error:
        return replace(result, warnings=[*result.warnings, f"{error}; they have numbers of their own"])
