"""Nightly flows of this process on a real Prefect server: what is tried again, and who gets the alias."""

from collections.abc import Iterator

import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.tracking.store import NoAnswer
from tests.integration.flows.nightly_cases import TINY, champion, run_of
from tests.scheduler import Scheduler, started

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """A server without workers: the flows run in this process."""
    import flareclust.flows.experiment  # noqa: F401 - sets Prefect's switches before it is imported

    with started() as scheduler:
        yield scheduler


@pytest.fixture
def client(scheduler):
    from mlflow import MlflowClient

    return MlflowClient(scheduler.store)


@pytest.fixture
def here(scheduler, monkeypatch):
    """Flows of this process run on the server and track to the store."""
    monkeypatch.chdir(scheduler.folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", scheduler.store)
    with scheduler.here():
        yield


def nightly(retries=1):
    from flareclust.flows.nightly import nightly_flow

    return nightly_flow.with_options(retries=retries, retry_delay_seconds=1)


def histories(client, run):
    return {name: len(client.get_metric_history(run.info.run_id, name)) for name in run.data.metrics}


def test_a_store_that_fails_after_the_job_costs_no_second_job(here, client, monkeypatch, caplog):
    """Everything is logged but the model; the run says why, and the log how to log it later."""
    from flareclust.tracking.runs import Tracker

    asked = []

    def fails(self, run_id, *arguments, **settings):
        asked.append(run_id)
        raise OSError("the disk is full")

    monkeypatch.setattr(Tracker, "log_model", fails)
    state = nightly()({**TINY, "register_as": "unlogged"}, return_state=True)
    assert state.is_completed()
    (run_id,) = asked
    run = client.get_run(run_id)
    assert run.info.status == "FAILED"
    assert "the disk is full" in run.data.tags["flareclust.error"]
    assert "final/inertia" in run.data.metrics
    assert client.search_model_versions("name = 'unlogged'") == []
    assert "log it later with: flareclust log" in caplog.text


@pytest.mark.parametrize(
    ("error", "attempts", "jobs"),
    [
        (UserError("there is no such kit"), 1, 1),
        (JobFailed("all sites refuse"), 1, 1),
        (JobFailed("site-2 was lost", transient=True), 2, 4),
        (NoAnswer("no MLflow server answers"), 2, 2),
        (OSError("the disk is full"), 2, 2),
    ],
    ids=["user", "refused", "lost", "no answer", "disk"],
)
def test_a_flow_run_is_tried_again_only_if_its_failure_may_pass(
    here, scheduler, client, monkeypatch, error, attempts, jobs
):
    """A lost job is submitted once more by each attempt, and no more often."""

    submitted = []

    def submit(experiment, prepared, on_round, token, kept=None):
        submitted.append(token)
        raise error

    monkeypatch.setattr("flareclust.flows.run.submit", submit)
    state = nightly()({**TINY, "register_as": "failing"}, return_state=True)
    assert state.is_failed()
    assert str(error) in state.message
    assert len(submitted) == jobs
    with scheduler.client() as prefect:
        flow_run = prefect.read_flow_run(state.state_details.flow_run_id)
    assert (flow_run.state.type.value, flow_run.run_count) == ("FAILED", attempts)
    run = run_of(client, flow_run.id)
    assert (run.info.status, run.data.tags["flareclust.error"]) == ("FAILED", str(error))
    assert champion(client, "failing") is None


def test_an_experiment_whose_model_would_have_no_name_is_not_tried_at_all(here, client):
    state = nightly()(TINY, return_state=True)
    assert state.is_failed()
    assert "register_as: expected the name in MLflow" in state.message
    assert run_of(client, state.state_details.flow_run_id) is None


def test_a_run_that_fails_leaves_the_alias_where_it_was(here, client, monkeypatch):

    flow = nightly(retries=0)
    good = flow({**TINY, "register_as": "kept"})
    with pytest.raises(JobFailed, match="fewer rows than k=60"):
        flow({**TINY, "register_as": "kept", "k": 60})
    monkeypatch.setattr("flareclust.tracking.run_logging.log_or_warn", None)
    with pytest.raises(TypeError):
        flow({**TINY, "register_as": "kept"})
    assert champion(client, "kept") == 1
    assert client.get_model_version("kept", "1").run_id == good.run_id


@pytest.mark.smoke
def test_a_model_that_is_worse_or_not_to_be_compared_is_registered_and_does_not_get_the_alias(here, client):
    """By the metric alone, the second and the third would have it: of fewer clusters, of fewer sites."""
    flow, named = nightly(), TINY | {"register_as": "compared", "k": 3}
    nights = [{}, {"k": 2}, {"n_sites": 2}, {"seed": 1}, {}]
    worth, holders = [], []
    for night in nights:
        worth.append(flow({**named, **night}).metrics["simplified_silhouette"])
        holders.append(champion(client, "compared"))
    assert worth[0] < min(worth[1:4])
    assert holders == [1, 1, 1, 4, 4]
    reasons = [client.get_model_version("compared", n).tags["flareclust.champion"] for n in "235"]
    said = ["is of k=2, and version 1 is of k=3", "but comes from 2 sites and that from 3", "worse than"]
    assert [text in reason for text, reason in zip(said, reasons, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"experiment": TINY}, "register_as: expected the name in MLflow"),
        ({"experiment": TINY | {"register_as": "x"}, "alias": "latest"}, "'latest' cannot be an alias"),
        ({"experiment": TINY | {"register_as": "x"}, "metric": "final/inertia"}, "cannot be compared by"),
    ],
)
def test_what_would_fail_after_the_job_is_refused_before_it(parameters, reason):
    from prefect.exceptions import ParameterTypeError

    from flareclust.flows.nightly import nightly_flow

    with pytest.raises(ParameterTypeError, match=reason):
        nightly_flow.validate_parameters(parameters)


def test_a_later_night_has_the_numbers_of_the_champion(here, client):
    flow, named = nightly(), TINY | {"register_as": "numbered", "k": 3}
    first = flow(named)
    assert first.matched_to is None
    second = flow({**named, "algorithm": "lloyd", "seed": 7})
    assert second.matched_to == "version 1 of numbered"
    assert second.continuity.was == [0, 1, 2]
    assert abs(second.centroids - first.centroids).max() < 0.5
    assert client.get_run(second.run_id).data.metrics["final/drift_shares"] == second.metrics["drift_shares"]
    third = flow({**named, "columns": ["sepal length (cm)", "petal width (cm)"]})
    assert "the columns differ: only it has petal length (cm), sepal width (cm)" in third.warnings[-1]
