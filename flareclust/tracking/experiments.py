"""The MLflow experiment that runs belong to: found, or made with the kind that opens it on training runs."""

from typing import Any
from urllib.parse import quote

from flareclust._foundation.errors import UserError
from flareclust.tracking.pages import KIND, KIND_TAG, run_page, runs_page
from flareclust.tracking.store import connect, resolve_uri, sqlite_file


def open_experiment(client: Any, uri: str, name: str) -> str:
    """Return the id of an experiment, which is created when absent; one without a kind gets that of training runs.

    Raises:
        UserError: the experiment was deleted.
    """
    from mlflow.exceptions import MlflowException

    if (experiment := client.get_experiment_by_name(name)) is None:
        # A server knows where its files belong; for a local database MLflow would take the working directory.
        file = sqlite_file(uri)
        location = (file.parent / "mlruns" / quote(name, safe=" ")).as_uri() if file else None
        try:
            return str(client.create_experiment(name, artifact_location=location, tags={KIND_TAG: KIND}))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was quicker
                raise
            experiment = client.get_experiment_by_name(name)
    if experiment.lifecycle_stage == "deleted":
        raise UserError(
            f"the MLflow experiment {name!r} was deleted; choose another name, or restore it with "
            f"`mlflow experiments restore --experiment-id {experiment.experiment_id}`"
        )
    if KIND_TAG not in experiment.tags:
        client.set_experiment_tag(experiment.experiment_id, KIND_TAG, KIND)
    return str(experiment.experiment_id)


def pages_of(uri: str | None, name: str, port: int) -> dict[str, str]:
    """Return the addresses of an experiment's training runs and of its newest run, by what they show.

    Args:
        uri: address of the store; None for MLFLOW_TRACKING_URI or ./mlflow.db.
        name: of the experiment; where there is none, the page of all experiments is returned.
        port: of the pages that `flareclust ui` starts.
    """
    store = resolve_uri(uri)
    client = connect(store)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return {"experiments": f"http://127.0.0.1:{port}/#/experiments"}
    number = str(open_experiment(client, store, name))
    newest = client.search_runs([number], order_by=["attributes.start_time DESC"], max_results=1)
    pages = {f"runs of {name}": runs_page(store, number, port)}
    return pages | ({"newest run": run_page(store, number, newest[0].info.run_id, port)} if newest else {})
