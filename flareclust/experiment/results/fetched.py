"""The result of a job that was not submitted by `run`: an exported one, from what its server has written."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import NO_KIT, make_experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.results.evaluate import evaluate
from flareclust.experiment.results.result import Result
from flareclust.preparation import result as partial
from flareclust.protocol.outcome import ARRAYS, Outcome
from flareclust.protocol.task import StepName

#: What a result lacks that is read without the schema of its job.
_NO_SCHEMA = "the sites read their rows by a schema, which has the names and units of the columns; name its file: --schema (schema= in Python)"

#: What the server's summary of a job says.
_SAID = ("algorithm", "k", "seed", "params")


def is_of_job(about: Mapping[str, Any]) -> bool:
    """Return whether a summary is that of a server, which says what ran, and not that of a saved result."""
    return "experiment" not in about and all(name in about for name in _SAID)


def result_of_job(outcome: Outcome, about: Mapping[str, Any], folder: Path | None = None, **asked: Any) -> Result:
    """Return the result of a job, as `run` returns that of its own.

    Args:
        outcome: of the job.
        about: what the server's summary says of it.
        folder: where its files are; None for nowhere.
        asked: settings of `run` that the job does not know, as far as they are known: kit, table_schema, title, row_name.

    Raises:
        UserError: the schema is not that by which the sites have read their rows, or no such job is known here.
    """
    secure = any(record["step"] == StepName.KEYS for record in outcome.rounds)
    params, own = dict(about["params"]), {name: about[name] for name in ("algorithm", "k", "seed")}
    agreed = params.pop("table_schema", None)
    experiment = make_experiment(
        **{"kit": NO_KIT, **{name: value for name, value in asked.items() if value is not None}},
        **own,
        engine="production",
        params=params,
        secure_sums=secure,
        profile=None,
    )
    prepared = prepare(experiment)
    found = prepared.params.get("table_schema")
    if experiment.table_schema is not None and found != agreed:
        raise UserError(
            f"{experiment.table_schema} is not the schema of the job, whose sites "
            f"{'had to read their rows by another one' if agreed else 'were asked for none'}; name that of its export, or leave out --schema"
        )
    d = outcome.centroids.shape[1]
    if prepared.columns is not None and len(prepared.columns) != d and not partial.is_partial(outcome.arrays):
        raise UserError(
            f"{experiment.table_schema} has {len(prepared.columns)} features, and the job's centroids {d} columns"
        )
    params |= {} if agreed is None else {"table_schema": agreed}
    seconds = outcome.seconds_local + outcome.seconds_merge
    result = evaluate(experiment, prepared, outcome, seconds)
    file = None if folder is None else str(folder.absolute() / ARRAYS)
    warnings = result.warnings + [_NO_SCHEMA] * (agreed is not None and experiment.table_schema is None)
    return replace(result, warnings=warnings, centroids_file=file, params={**result.params, **params}, date="")
