"""MLflow's model registry: versions of a model, and which of them has an alias."""

import json
from collections.abc import Callable
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.tracking.promotion import Version
from flareclust.tracking.store import connect, store_errors


def register(client: Any, run_id: str, model: Any, model_name: str) -> int:
    """Enter a run's logged model in the registry and return its version; a second call returns the same version.

    Args:
        client: MlflowClient.
        run_id: the run.
        model: its LoggedModel.
        model_name: name in the registry, created when absent.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

    try:
        client.create_registered_model(model_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    known = client.search_model_versions(f"name = '{model_name}' and run_id = '{run_id}'")
    if known:
        return int(known[0].version)
    # Not models:/<id> as the source: the SQL registry looks that up in MLflow's global store, whichever it is.
    entry = client.create_model_version(model_name, model.artifact_location, run_id=run_id, model_id=model.model_id)
    # Links the logged model's page to the registry; MLflow's fluent interface does the same.
    links = json.loads(model.tags.get(MLFLOW_MODEL_VERSIONS, "[]"))
    links.append({"name": model_name, "version": entry.version})
    client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: json.dumps(links)})
    return int(entry.version)


def _known(call: Callable[..., Any], *names: str) -> Any:
    """Return what MLflow answers; None where there is no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return call(*names)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def version(client: Any, model_name: str, number: int) -> Version:
    """Return a version with what its run says of it; with nothing where the run is gone.

    Raises:
        UserError: there is no such version.
    """
    entry = _version_entry(client, model_name, number)
    run = _known(client.get_run, entry.run_id) if entry.run_id else None
    if run is None:
        return Version(number)
    k = run.data.params.get("k", "")
    return Version(number, dict(run.data.metrics), run.data.params.get("algorithm"), int(k) if k.isdecimal() else None)


def _version_entry(client: Any, model_name: str, number: int) -> Any:
    """Return MLflow's entry of a version; UserError where there is none."""
    if (entry := _known(client.get_model_version, model_name, str(number))) is None:
        raise UserError(f"MLflow has no version {number} of the model {model_name!r}")
    return entry


def holder(client: Any, model_name: str, alias: str) -> Version | None:
    """Return the version that has the alias; None if there is none, or no such model."""
    # Not get_model_version_by_alias, which answers an alias that nobody has as it answers a malformed one.
    model = _known(client.get_registered_model, model_name)
    if model is None or alias not in model.aliases:
        return None
    return version(client, model_name, int(model.aliases[alias]))


def run_of(uri: str, name: str) -> str:
    """Return the id of the run of a model's version.

    Args:
        uri: address of the store.
        name: "<model>@<alias>" or "<model>/<version>".

    Raises:
        UserError: there is no such version, or it has no run.
    """
    model, at, which = name.rpartition("@") if "@" in name else name.rpartition("/")
    if not model or not at or (at == "/" and not which.isdecimal()):
        raise UserError(f"expected models:/<name>@<alias> or models:/<name>/<version>, got {'models:/' + name!r}")
    with store_errors(uri):
        client = connect(uri)
        if at == "@":
            found = holder(client, model, which)
            if found is None:
                raise UserError(f"MLflow has no version of the model {model!r} with the alias {which!r}")
            which = str(found.number)
        entry = _version_entry(client, model, int(which))
    if not entry.run_id:
        raise UserError(f"version {which} of the model {model!r} was not registered by a run")
    return str(entry.run_id)
