"""Links to MLflow's pages: the list of an experiment's training runs, and the page of one run.

MLflow 3 opens an experiment on pages for language models unless the link, or a tag of the experiment, says otherwise.
"""

from urllib.parse import urlencode, urlsplit

#: Where `flareclust ui` shows a store that is no server.
_PORT = 5000

#: Tag of an experiment, and its value for runs that train models.
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"

_TRAINING = "workflowType=machine_learning"


def runs_page(uri: str, experiment_id: str, port: int = _PORT) -> str:
    """Return the address of the page that lists the training runs of an experiment.

    Args:
        uri: address of the store; of a server, its pages are there.
        experiment_id: as MLflow numbers it.
        port: of the pages that `flareclust ui` starts, for stores that are no servers.
    """
    return f"{_base(uri, port)}/#/experiments/{experiment_id}/runs?{_TRAINING}"


def run_page(uri: str, experiment_id: str, run_id: str, port: int = _PORT) -> str:
    """Return the address of the page of one run; the arguments are those of `runs_page`."""
    return f"{_base(uri, port)}/#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def file_address(page: str, run_id: str, name: str) -> str:
    """Return the address of a file of a run, under which a browser shows it, from that of the run's page."""
    return f"{page.partition('/#/')[0]}/get-artifact?{urlencode({'path': name, 'run_uuid': run_id})}"


def _base(uri: str, port: int) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return f"http://127.0.0.1:{port}"
    host = parts.netloc.rpartition("@")[2]  # without a password
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
