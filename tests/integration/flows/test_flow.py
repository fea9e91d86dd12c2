"""The Prefect flow with a real (temporary) Prefect server and a real MLflow store."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import JobFailed, UserError
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """One Prefect server for all tests of this file; starting it takes seconds."""
    from prefect.testing.utilities import prefect_test_harness

    import flareclust.flows.experiment  # noqa: F401 - sets Prefect's switches before it is imported

    with prefect_test_harness(server_startup_timeout=int(PATIENCE)):
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder to run in, with its own MLflow store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def runs():
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{Path.cwd()}/mlflow.db")
    experiment = client.get_experiment_by_name("flareclust")
    return client, client.search_runs([experiment.experiment_id])


@pytest.mark.smoke
def test_a_simulator_job_through_the_flow_is_tracked(server, folder):
    import flareclust

    rounds = []
    result = flareclust.run(
        "feca", data="iris", n_sites=3, engine="simulator", track=True, out="out", on_round=rounds.append
    )
    client, (run,) = runs()
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "feca/iris/k3/iid/s0"
    assert run.info.run_id == result.run_id
    assert run.data.metrics["final/inertia"] == pytest.approx(result.metrics["inertia"])
    assert run.data.metrics["final/centroids_found"] == result.centroids_found
    assert run.data.metrics["cost/bytes_up"] == result.bytes["up"]
    assert run.data.metrics["round/received"] >= result.centroids_found
    assert {"prefect.flow_run_id", "algorithm", "partition", "seed", "flareclust.run_key"} <= set(run.data.tags)
    assert all(isinstance(value, str) for value in run.data.tags.values())
    artifacts = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"centroids.npz", "centroids.csv", "picture.png", "result.json", "result.npz", "rounds.jsonl"} <= artifacts
    assert [record["step"] for record in rounds][:3] == ["cluster", "assess", "profile"]

    here = flareclust.run("feca", data="iris", n_sites=3)
    np.testing.assert_array_equal(result.centroids, here.centroids)
    np.testing.assert_array_equal(result.labels, here.labels)
    assert json.loads((folder / "out" / "result.json").read_text())["metrics"] == dict(here.metrics)


def test_arrays_in_memory_go_through_the_flow_too(server, folder, sites, monkeypatch):
    import flareclust
    from flareclust.experiment import submit as steps

    seen = {}

    def submit(experiment, prepared, on_round, token=None, kept=None):
        seen.update(prepared.sites)
        return steps.submit(experiment.model_copy(update={"engine": "inprocess"}), prepared, on_round, token)

    monkeypatch.setattr("flareclust.flows.run.submit", submit)
    flareclust.run("kfed", data=sites, k=4, engine="simulator", track=True, out="out")
    assert set(seen) == set(sites)
    assert runs()[1][0].info.run_name == "kfed/own data/k4/none/s0"


@pytest.mark.smoke
def test_a_failed_job_is_shown_as_failed_with_its_reason(server, folder):
    import flareclust

    with pytest.raises(JobFailed, match="fewer rows than k=100"):
        flareclust.run("feca", data="iris", k=100, n_sites=3, engine="simulator", track=True, out="out")
    _, (run,) = runs()
    assert run.info.status == "FAILED"
    assert "each has fewer rows than k=100" in run.data.tags["flareclust.error"]
    assert not (folder / "out").exists()


@pytest.mark.parametrize(("transient", "tries"), [(True, 2), (False, 1)])
def test_a_retry_resumes_the_same_mlflow_run(server, folder, monkeypatch, transient, tries):
    """Only a job that ended for no reason of its own is tried again."""
    import flareclust
    from flareclust.experiment import submit as steps

    calls = []

    def submit(experiment, prepared, on_round, token=None, kept=None):
        calls.append(1)
        if len(calls) == 1:
            raise JobFailed("the simulator lost site-2", transient=transient)
        return steps.submit(experiment.model_copy(update={"engine": "inprocess"}), prepared, on_round, token)

    monkeypatch.setattr("flareclust.flows.run.submit", submit)

    def start() -> None:
        flareclust.run("feca", data="iris", n_sites=3, engine="simulator", track=True, out="out")

    if transient:
        start()
    else:
        with pytest.raises(JobFailed, match="lost site-2"):
            start()
    assert len(calls) == tries
    client, (run,) = runs()
    assert run.info.status == ("FINISHED" if transient else "FAILED")
    if transient:
        assert len(client.get_metric_history(run.info.run_id, "round/received")) == 1


@pytest.mark.smoke
def test_the_flow_takes_its_experiment_as_plain_values(server, folder, monkeypatch):
    """As a deployment, a schedule or the command line of Prefect gives them."""
    from flareclust.experiment import submit as steps
    from flareclust.flows import experiment as flows

    def inprocess(experiment, prepared, on_round, token=None, kept=None):
        return steps.submit(experiment.model_copy(update={"engine": "inprocess"}), prepared, on_round, token)

    monkeypatch.setattr("flareclust.flows.run.submit", inprocess)
    result = flows.experiment_flow({"algorithm": "kfed", "data": "iris", "n_sites": 3})
    assert result.algorithm == "kfed"
    assert len(os.listdir("flareclust-runs")) == 1


def test_the_page_of_a_flow_run_shows_rounds_warnings_tags_progress_and_the_result(server, folder, monkeypatch):
    import logging

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, LogFilter, LogFilterFlowRunId
    from prefect.logging.handlers import APILogHandler
    from prefect.settings import PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    from flareclust.experiment import submit as steps
    from flareclust.flows import experiment as flows

    def inprocess(experiment, prepared, on_round, token=None, kept=None):
        logging.getLogger("flareclust.platform.simulator").warning("a site was slow")
        return steps.submit(experiment.model_copy(update={"engine": "inprocess"}), prepared, on_round, token)

    monkeypatch.setattr("flareclust.flows.run.submit", inprocess)
    with temporary_settings({PREFECT_LOGGING_TO_API_ENABLED: True}):
        params = {"rounds": 4, "tol": 0}
        state = flows.experiment_flow(
            {"algorithm": "fkm", "data": "iris", "n_sites": 3, "params": params}, return_state=True
        )
        result = state.result()
        APILogHandler().flush()
    run_id = state.state_details.flow_run_id
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(run_id)
        logs = [log.message for log in client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id])))]
        of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
        artifacts = {one.key: one.data for one in client.read_artifacts(artifact_filter=of_run)}
    assert set(flow_run.tags) == {"fkm", "iris", "simulator"}
    assert sum("3 sites" in message for message in logs) >= 4
    assert "a site was slow" in logs
    assert artifacts["flareclust-experiment-rounds"] == 100.0
    text = artifacts["flareclust-experiment-result"]
    assert f"[The run in MLflow]({result.run_page})" in text
    assert "![picture]" not in text  # the store is a file, which shows no pictures
    assert "| cluster | rows | share | what is special about it |" in text
    assert f"| simplified silhouette | {result.metrics['simplified_silhouette']:.4f} |" in text


def test_bad_parameters_are_refused_before_anything_starts(server, folder):
    from prefect.exceptions import ParameterTypeError

    from flareclust.flows.experiment import experiment_flow

    with pytest.raises(ParameterTypeError, match="did you mean 'feca'"):
        experiment_flow({"algorithm": "fecca"})
    assert not (folder / "mlflow.db").exists()


def test_a_server_out_of_reach_is_the_users_to_mend_and_nothing_else_is():
    from flareclust.flows.server import server_reached

    with pytest.raises(UserError, match="Failed to reach API at x; start that Prefect server"), server_reached():
        raise RuntimeError("Failed to reach API at x")
    with pytest.raises(RuntimeError, match="another reason"), server_reached():
        raise RuntimeError("another reason")
