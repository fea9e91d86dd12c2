"""A run in MLflow: its name, parameters and tags, its rounds and its result."""

import csv
import io
import json
import math
import time

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.tracking.runs import ERROR_TAG, RUN_KEY_TAG, numbers_of
from tests.unit.tracking.tracking_cases import CENTROIDS, ROUNDS, STARTED, artifact, history, log_federation


@pytest.fixture
def run_id(tracker):
    return tracker.start("key", "name", {})


# --- runs ---
def test_run_carries_name_params_and_tags_as_text(tracker, client):
    run = client.get_run(tracker.start("key", "feca/iid/s0", {"k": 15, "noise": 0.1, "init": None}, {"seed": 7}))
    assert run.data.params == {"k": "15", "noise": "0.1"}
    assert {key: run.data.tags[key] for key in (RUN_KEY_TAG, "seed")} == {RUN_KEY_TAG: "key", "seed": "7"}
    assert all(isinstance(value, str) for value in run.data.tags.values())
    assert (run.info.run_name, run.info.status) == ("feca/iid/s0", "RUNNING")


def test_same_key_resumes_the_run_and_another_key_does_not(tracker, client):
    first = tracker.start("key", "name", {"k": 2})
    tracker.fail(first, "site-3 left")
    assert client.get_run(first).info.status == "FAILED"
    assert tracker.start("key", "name", {"k": 2, "added": 1}) == first
    run = client.get_run(first)
    assert run.info.status == "RUNNING"
    assert ERROR_TAG not in run.data.tags
    assert run.data.params == {"k": "2", "added": "1"}
    assert tracker.start("another", "name", {"k": 2}) != first
    assert len(client.search_runs([tracker._experiment_id])) == 2


def test_key_of_a_run_cannot_be_overwritten_by_a_tag(tracker):
    first = tracker.start("key", "name", {}, {RUN_KEY_TAG: "other"})
    assert tracker.start("key", "name", {}) == first


def test_changed_params_are_named_and_leave_the_run_alone(tracker, client):
    run_id = tracker.start("key", "name", {"k": 2, "seed": 0})
    tracker.finish(run_id)
    with pytest.raises(UserError, match=r"k: '2' -> '3'") as caught:
        tracker.start("key", "name", {"k": 3, "seed": 0})
    assert "seed" not in str(caught.value)
    assert client.get_run(run_id).info.status == "FINISHED"
    assert client.get_run(run_id).data.params == {"k": "2", "seed": "0"}


def test_long_and_many_params_fit_mlflow(tracker, client):
    params = {f"p{i}": i for i in range(250)} | {"long": "x" * 9000}
    tags = {"long": "y" * 9000}
    run_id = tracker.start("key", "name", params, tags)
    assert tracker.start("key", "name", params, tags) == run_id
    run = client.get_run(run_id)
    assert len(run.data.params) == 251
    assert (len(run.data.params["long"]), len(run.data.tags["long"])) == (6000, 8000)


@pytest.mark.parametrize("key", ["", "it's", 'a"b', "a`b", "a\\b"])
def test_keys_that_mlflow_cannot_search_are_refused(tracker, key):
    with pytest.raises(UserError, match="without quotes"):
        tracker.start(key, "name", {})


def test_finish_and_fail_close_the_run(tracker, run_id, client):
    tracker.finish(run_id)
    assert client.get_run(run_id).info.status == "FINISHED"
    tracker.fail(run_id, "z" * 10_000)
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[ERROR_TAG]) == ("FAILED", "z" * 8000)


# --- metrics ---
def test_rounds_are_logged_once_however_often_they_are_sent(tracker, run_id, client):
    expected = [(r, 100.0 / (r + 1), STARTED + r) for r in range(10)]
    tracker.log(run_id, numbers_of(rounds=ROUNDS[:4]), STARTED)  # what was streamed before a crash
    for started in (STARTED, STARTED, STARTED + 5000):
        tracker.log(run_id, numbers_of(rounds=ROUNDS), started)
        assert [step[:2] for step in history(client, run_id, "round/inertia")] == [step[:2] for step in expected]
    assert history(client, run_id, "round/inertia")[:4] == expected[:4]
    tracker.log(run_id, numbers_of(rounds=[{**row, "inertia": -1.0} for row in ROUNDS]), STARTED)
    assert [step[:2] for step in history(client, run_id, "round/inertia")] == [step[:2] for step in expected]
    assert sorted(client.get_run(run_id).data.metrics) == ["round/inertia", "round/moved"]


def test_equal_rounds_of_two_writers_at_once_leave_one_history(tracker, run_id, client, monkeypatch):
    # Both read the empty history before either writes: only the fixed timestamps keep the second copy out.
    empty = client.get_run(run_id)
    tracker.log(run_id, numbers_of(rounds=ROUNDS), STARTED)
    monkeypatch.setattr(tracker._client, "get_run", lambda _: empty)
    tracker.log(run_id, numbers_of(rounds=ROUNDS), STARTED)
    assert history(client, run_id, "round/moved") == [(r, 10.0 - r, STARTED + r) for r in range(10)]


def test_rounds_take_one_request_per_thousand_metrics(tracker, run_id, client, monkeypatch):
    sizes = []
    store = tracker._client._tracking_client.store
    send = store.log_batch
    monkeypatch.setattr(
        store, "log_batch", lambda metrics, **others: (sizes.append(len(metrics)), send(metrics=metrics, **others))
    )
    tracker.log(run_id, numbers_of(rounds=[{"round": r, "a": r, "b": r, "c": r} for r in range(500)]), STARTED)
    assert sizes == [1000, 500]
    assert len(history(client, run_id, "round/b")) == 500
    tracker.log(run_id, numbers_of(rounds=[]), STARTED)
    assert len(sizes) == 2


def test_values_that_say_nothing_are_skipped(tracker, run_id, client):
    tracker.log(run_id, numbers_of(rounds=[{"round": 0, "a": math.inf, "b": None, "c": math.nan, "d": 1}]), STARTED)
    tracker.log(run_id, numbers_of({"nmi": None, "l2": math.nan}))
    assert client.get_run(run_id).data.metrics == {"round/d": 1.0}


def test_result_is_logged_once_and_its_files_are_readable(tracker, run_id, client, tmp_path):
    (tmp_path / "result.json").write_text('{"k": 2}')

    def log(ari):
        tracker.log(run_id, numbers_of({"ari": ari, "nmi": None}, {"seconds": 0.1}))
        tracker.log_centroids(run_id, CENTROIDS, ["a,b", "c"])
        tracker.log_files(run_id, [tmp_path / "result.json"])

    log(0.5)
    log(0.5)
    assert client.get_run(run_id).data.metrics == {"final/ari": 0.5, "cost/seconds": 0.1}
    assert len(history(client, run_id, "final/ari")) == len(history(client, run_id, "cost/seconds")) == 1
    time_of_first = history(client, run_id, "final/ari")[0][2]
    while time.time_ns() // 1_000_000 == time_of_first:
        pass
    log(0.25)  # a retry that really came to another result
    assert client.get_run(run_id).data.metrics["final/ari"] == 0.25
    assert np.array_equal(np.load(artifact(tracker, run_id, "centroids.npz"))["centroids"], CENTROIDS)
    header, *rows = csv.reader(io.StringIO(artifact(tracker, run_id, "centroids.csv").read_text()))
    assert header == ["a,b", "c"]
    assert np.array_equal(np.array(rows, dtype=float), CENTROIDS)
    assert json.loads(artifact(tracker, run_id, "result.json").read_text()) == {"k": 2}


def test_centroids_without_column_names_get_numbered_ones(tracker):
    run_id = log_federation(tracker)
    assert artifact(tracker, run_id, "centroids.csv").read_text().splitlines()[0] == "x0,x1"


def test_centroids_whose_names_do_not_fit_are_refused(tracker, run_id):
    for centroids, columns, message in [
        (CENTROIDS, ["a"], "expected 2 different column names"),
        (CENTROIDS, ["a", "a"], "expected 2 different column names"),
        (np.zeros(3), None, r"shape \(k, d\), got \(3,\)"),
    ]:
        with pytest.raises(UserError, match=message):
            tracker.log_centroids(run_id, centroids, columns)
