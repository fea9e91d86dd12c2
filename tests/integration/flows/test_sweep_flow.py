"""Sweeps through a real (temporary) Prefect server and a real MLflow store."""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.experiment.sweeps import trials as study_trials
from tests.integration.flows.sweep_runs import parent_and_children
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """One Prefect server for all tests of this file; starting it takes seconds."""
    from prefect.testing.utilities import prefect_test_harness

    import flareclust.flows.sweep  # noqa: F401 - sets Prefect's switches before it is imported

    with prefect_test_harness(server_startup_timeout=int(PATIENCE)):
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """One MLflow store for the file: making one takes seconds, and every test has its own experiment."""
    from flareclust.tracking.runs import Tracker

    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    Tracker(uri)
    return uri


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder, for `flareclust-sweeps`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def client(store):
    from mlflow import MlflowClient

    return MlflowClient(store)


class Counting:
    """A measure that counts its calls; it fails as long as `broken` says so."""

    def __init__(self, value: float) -> None:
        self.value, self.broken, self.calls = value, None, 0

    def __call__(self) -> study_trials.TrialResult:
        self.calls += 1
        if self.broken is not None:
            raise self.broken
        rounds = [{"round": float(r), "moved": self.value / (r + 3)} for r in range(3)]
        return study_trials.TrialResult({"l2": self.value, "ari": None, "tiny": 1e-300}, {"bytes_up": 8.0}, rounds)


def study(n: int = 4) -> tuple[list[study_trials.Trial], list[Counting]]:
    measures = [Counting(1 / (i + 3)) for i in range(n)]
    cells = [{"algorithm": "a" if i % 2 else "b=1", "partition": "beta:1,redraw"} for i in range(n)]
    params = {"k": 3, "columns": None, "params": {"n_init": 2}}
    return [study_trials.Trial(cells[i], i // 2, params, measures[i]) for i in range(n)], measures


def flow_states(name: str) -> list[tuple[str, str | None]]:
    """Return state and message of Prefect's runs of a flow of this name, the first of them first."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

    with get_client(sync_client=True) as prefect:
        runs = prefect.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])))
    ordered = sorted(runs, key=lambda run: run.created)
    return [(run.state.type.value, run.state.message) for run in ordered]


@pytest.mark.smoke
def test_a_study_is_a_parent_and_a_child_per_trial_with_one_batch_each(server, store, client, monkeypatch):
    from mlflow import MlflowClient

    from flareclust.flows.study import StudyRunner

    batches: Counter[str] = Counter()
    log_batch = MlflowClient.log_batch
    monkeypatch.setattr(
        MlflowClient, "log_batch", lambda *args, **more: batches.update([args[1]]) or log_batch(*args, **more)
    )
    for name in ("log_metric", "log_param"):
        monkeypatch.setattr(MlflowClient, name, None)
    trials, _ = study()
    seen = []
    runner = StudyRunner("one", "first", store, seen.append)
    done = runner(trials)

    assert [one.trial.name for one in done] == [trial.name for trial in trials]
    assert sorted(one.trial.name for one in seen) == sorted(trial.name for trial in trials)
    parent, children = parent_and_children(client, "first")
    assert parent.info.run_id == runner.run_id
    assert sorted(children) == sorted(trial.name for trial in trials)
    assert {batches[run.info.run_id] for run in children.values()} == {1}
    assert {run.info.status for run in (parent, *children.values())} == {"FINISHED"}
    for run in (parent, *children.values()):
        assert all(isinstance(value, str) for value in run.data.tags.values())
    child = children["a/beta:1,redraw/s1"]
    assert child.data.params == {"k": "3", "param.n_init": "2", "seed": "1"}
    assert child.data.metrics["final/l2"] == 1 / 6
    assert child.data.metrics["cost/bytes_up"] == 8.0
    assert child.data.tags["flareclust.run_key"] == trials[3].key("one")
    history = client.get_metric_history(child.info.run_id, "round/moved")
    assert [(metric.step, metric.value) for metric in history] == [(r, 1 / 6 / (r + 3)) for r in range(3)]

    metrics = parent.data.metrics
    assert metrics["final/l2"] == pytest.approx((1 / 3 + 1 / 4 + 1 / 5 + 1 / 6) / 4, rel=1e-15)
    assert (metrics["trials/done"], metrics["trials/failed"]) == (4, 0)
    assert parent.data.params == {"trials": "4", "algorithm": "b=1, a", "partition": "beta:1,redraw", "seeds": "0, 1"}
    assert {item.path for item in client.list_artifacts(parent.info.run_id)} == {
        "table.md",
        "table.csv",
        "figure.png",
        "compare.html",
        "disclosure.json",
    }
    assert flow_states("one") == [("COMPLETED", "4 trials run")]
    assert shown_of("one") == {"flareclust-trials-progress": 100.0, "flareclust-trials-cells": 2}


def shown_of(name: str) -> dict[str, float]:
    """Return the artifacts of Prefect's runs of a flow of this name: progress, and how many rows tables have."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, FlowRunFilter, FlowRunFilterName

    with get_client(sync_client=True) as prefect:
        runs = prefect.read_flow_runs(flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[name])))
        of_runs = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id for run in runs]))
        found = prefect.read_artifacts(artifact_filter=of_runs)
    return {one.key: one.data if one.type == "progress" else len(json.loads(one.data)) for one in found}


def test_what_is_finished_is_read_back_to_the_last_bit_and_not_run_again(server, store, client):
    from flareclust.flows.study import StudyRunner

    trials, measures = study()
    first = StudyRunner("two", "resumed", store)(trials)
    before, children = parent_and_children(client, "resumed")
    shutil.rmtree("flareclust-sweeps")  # only MLflow has them
    seen = []
    runner = StudyRunner("two", "resumed", store, seen.append)
    again = runner(trials)
    assert [measure.calls for measure in measures] == [1] * 4
    assert [one.measured for one in again] == [one.measured for one in first]
    assert all(one.resumed for one in again)
    assert len(seen) == 4
    assert len(flow_states("two")) == 1, "no flow is needed where nothing is missing"
    after, same = parent_and_children(client, "resumed")
    assert runner.run_id == before.info.run_id
    assert (after.data.metrics, after.info.status) == (before.data.metrics, "FINISHED")
    assert {name: run.info.end_time for name, run in same.items()} == {
        name: run.info.end_time for name, run in children.items()
    }
    other, _ = study(2)
    StudyRunner("two", "resumed-other", store)(other)
    with pytest.raises(UserError, match="two trials of 'two' are the same"):
        StudyRunner("two", "resumed", store)([other[0], other[0]])


def test_failed_trials_are_marked_counted_and_run_again_in_their_runs(server, store, client):
    from flareclust.flows.study import StudyRunner

    trials, measures = study()
    measures[1].broken, measures[2].broken = JobFailed("no quorum"), ZeroDivisionError("a fault")
    runner = StudyRunner("three", "failing", store)
    done = runner(trials)
    assert [one.error for one in done] == [None, "no quorum", "unexpected ZeroDivisionError: a fault", None]
    parent, children = parent_and_children(client, "failing")
    assert (parent.info.status, parent.data.tags["flareclust.error"]) == ("FAILED", "2 of 4 trials failed")
    assert parent.data.metrics["trials/failed"] == 2
    failed = children[trials[1].name]
    assert (failed.info.status, failed.data.tags["flareclust.error"]) == ("FAILED", "no quorum")
    assert failed.data.params["k"] == "3"
    assert flow_states("three") == [("FAILED", "2 of 4 trials failed")]

    measures[1].broken = measures[2].broken = None
    assert [one.resumed for one in runner(trials)] == [True, False, False, True]
    assert [measure.calls for measure in measures] == [1, 2, 2, 1]
    parent, again = parent_and_children(client, "failing")
    assert {name: run.info.run_id for name, run in again.items()} == {
        name: run.info.run_id for name, run in children.items()
    }
    for run in (parent, *again.values()):
        assert run.info.status == "FINISHED"
        assert "flareclust.error" not in run.data.tags
    assert (parent.data.metrics["trials/failed"], parent.data.metrics["trials/done"]) == (0, 4)
    assert flow_states("three")[1] == ("COMPLETED", "2 trials run")


def test_a_child_that_was_cut_off_after_its_batch_has_no_second_history(server, store, client, monkeypatch):
    from mlflow import MlflowClient

    from flareclust.flows.study import StudyRunner

    trials, measures = study(2)
    end = MlflowClient.set_terminated
    cut = trials[1].name

    def lost(self, run_id, *args, **more):
        if self.get_run(run_id).info.run_name == cut:
            raise OSError("the disk is full")
        end(self, run_id, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_terminated", lost)
        runner = StudyRunner("four", "cut", store)
        done = runner(trials)
    assert [one.error for one in done] == [None, None]
    (warning,) = runner.warnings
    assert warning.startswith(
        f"1 trial and the means of four (all are in {runner.kept.file.parent.absolute()}) are not in MLflow: the MLflow store "
        "failed: the disk is full; log them later with: flareclust log "
    )
    shutil.rmtree("flareclust-sweeps")
    _, before = parent_and_children(client, "cut")
    assert before[cut].info.status == "RUNNING"

    again = StudyRunner("four", "cut", store)(trials)
    shutil.rmtree("flareclust-sweeps")
    assert [measure.calls for measure in measures] == [1, 2]
    _, children = parent_and_children(client, "cut")
    assert children[cut].info.run_id == before[cut].info.run_id
    assert children[cut].info.status == "FINISHED"
    history = client.get_metric_history(children[cut].info.run_id, "round/moved")
    assert [metric.step for metric in history] == [0, 1, 2]
    assert again[1].measured == StudyRunner("four", "cut", store)(trials)[1].measured


def test_trials_run_side_by_side_but_no_more_than_the_workers(server, store):
    from flareclust.flows.study import StudyRunner

    together = threading.Barrier(2, timeout=PATIENCE)
    running, maximum, lock = 0, 0, threading.Lock()

    def measure() -> study_trials.TrialResult:
        nonlocal running, maximum
        with lock:
            running += 1
            maximum = max(maximum, running)
        together.wait()  # breaks, and fails the trial, unless two are here
        with lock:
            running -= 1
        return study_trials.TrialResult({"l2": 1.0})

    trials = [study_trials.Trial({"algorithm": "a"}, seed, {}, measure) for seed in range(6)]
    done = StudyRunner("five", "workers", store, workers=2)(trials)
    assert [one.error for one in done] == [None] * 6
    assert maximum == 2


@pytest.mark.smoke
def test_the_flow_takes_a_sweep_as_plain_values(server, tmp_path, monkeypatch, store, client):
    """As a deployment, a schedule or the command line of Prefect gives them."""
    from prefect.exceptions import ParameterTypeError

    from flareclust.flows.sweep import sweep_flow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)
    plain = {"name": "six", "data": "iris", "n_sites": 3, "seeds": 2, "k": [3, 60], "algorithms": ["feca", "central"]}
    plain["mlflow_experiment"] = "plain"
    state = sweep_flow(plain, return_state=True)
    assert (state.type.value, state.message) == ("FAILED", "2 of 8 trials failed")
    parent, children = parent_and_children(client, "plain")
    assert parent.info.status == "FAILED"
    assert Counter(run.info.status for run in children.values()) == {"FINISHED": 6, "FAILED": 2}
    with pytest.raises(ParameterTypeError, match="did you mean 'feca'"):
        sweep_flow({**plain, "algorithms": ["fecca"]})
