"""The MLflow runs of a sweep."""


def parent_and_children(client, experiment):
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    (parent,) = (run for run in found if run.data.tags["kind"] == "sweep")
    children = [run for run in found if run.data.tags["kind"] == "trial"]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} <= {parent.info.run_id}
    return parent, {run.info.run_name: run for run in children}
