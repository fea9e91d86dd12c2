"""A small experiment of nightly flows, and what they leave in MLflow."""

TINY = {"algorithm": "feca", "data": "iris", "n_sites": 3, "engine": "inprocess"}


def run_of(client, flow_run_id):
    """Return the MLflow run of a flow run; None if there is none, or more than one."""
    experiment = client.get_experiment_by_name("flareclust")
    tag = f"tags.`prefect.flow_run_id` = '{flow_run_id}'"
    found = client.search_runs([experiment.experiment_id], filter_string=tag)
    return found[0] if len(found) == 1 else None


def champion(client, model):
    """Return the version that has the alias; None if there is none."""
    (found,) = client.search_registered_models(f"name = '{model}'") or [None]
    return int(found.aliases["champion"]) if found and "champion" in found.aliases else None
