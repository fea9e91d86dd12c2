"""Runs, rounds, results and models in an MLflow store."""

import contextlib
import csv
import io
import json
import math
import os
import pickletools
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flareclust._foundation.errors import UserError
from flareclust.tracking.runs import ERROR_TAG, RUN_KEY_TAG, Tracker
from tests.unit.tracking.tracking_cases import CENTROIDS

ROUNDS = [{"round": r, "inertia": 100.0 / (r + 1), "moved": 10.0 - r} for r in range(10)]

STARTED = 1_700_000_000_000

CLEAN_ENV = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DO_NOT_TRACK"))}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for the file: making one takes seconds, and every test has its own experiment."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('store')}/runs.db"
    Tracker(uri)
    return uri


@pytest.fixture
def tracker(store, request):
    return Tracker(store, experiment=request.node.name)


@pytest.fixture
def client(store):
    from mlflow import MlflowClient

    return MlflowClient(store)


@pytest.fixture
def database(store, tmp_path):
    """A file of its own, for tests that spoil it."""
    return Path(shutil.copy(store.removeprefix("sqlite:///"), tmp_path))


def history(client, run_id, key):
    return [(metric.step, metric.value, metric.timestamp) for metric in client.get_metric_history(run_id, key)]


def artifact(tracker, run_id, path):
    from mlflow.artifacts import download_artifacts

    return Path(download_artifacts(run_id=run_id, artifact_path=path, tracking_uri=tracker.uri))


def model_folder(tracker, run_id):
    """Not by runs:/<id>/model, which MLflow looks up in its global store whatever tracking_uri says."""
    from mlflow.artifacts import download_artifacts

    location = tracker._find_model(run_id).artifact_location
    return Path(download_artifacts(artifact_uri=location, tracking_uri=tracker.uri))


def log_federation(tracker, run_key="key"):
    run_id = tracker.start(run_key, "feca/iid/s0", {"k": 2, "seed": 0}, {"seed": 0, "kind": "trial"})
    tracker.log_rounds(run_id, ROUNDS, STARTED)
    tracker.log_result(
        run_id, final={"ari": 0.5, "nmi": None}, cost={"seconds": 1.5}, centroids=CENTROIDS, columns=None, files=[]
    )
    tracker.log_model(run_id, CENTROIDS)
    tracker.finish(run_id)
    return run_id


# --- the store ---


@pytest.mark.slow
def test_fresh_process_is_silent_lazy_and_leaves_everything_beside_the_database(tmp_path):
    home, elsewhere = tmp_path / "my project #1", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    script = f"""
import os, sys
import flareclust.tracking.runs
assert "mlflow" not in sys.modules, "importing the tracker must be cheap"
os.chdir({str(elsewhere)!r})
tracker = flareclust.tracking.runs.Tracker("sqlite:///../my project #1/mlflow.db", "a/b")
import numpy as np
run_id = tracker.start("key", "name", {{"k": 2}})
tracker.log_result(run_id, final={{}}, cost={{}}, centroids=np.eye(2), columns=None, files=[])
tracker.log_model(run_id, np.eye(2))
tracker.finish(run_id)
from mlflow.telemetry.utils import is_telemetry_disabled
assert is_telemetry_disabled()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=CLEAN_ENV, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(elsewhere.iterdir()) == []
    assert sorted(path.name for path in home.iterdir()) == ["mlflow.db", "mlruns"]
    again = Tracker(f"sqlite:///{home}/mlflow.db", "a/b")
    assert np.array_equal(
        np.load(artifact(again, again.start("key", "name", {}), "centroids.npz"))["centroids"], np.eye(2)
    )


@pytest.mark.slow
def test_store_of_an_older_mlflow_is_upgraded_with_its_runs(store, tracker, database):
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config

    old = Tracker(f"sqlite:///{database}", "old")
    run_id = old.start("key", "name", {"k": 2})
    aged = Path(shutil.copy(database, database.with_name("aged.db")))
    command.downgrade(_get_alembic_config(f"sqlite:///{aged}"), "-1")
    with contextlib.closing(sqlite3.connect(aged)) as connection:
        before = connection.execute("select version_num from alembic_version").fetchone()
    assert Tracker(f"sqlite:///{aged}", "old").start("key", "name", {"k": 2}) == run_id
    with contextlib.closing(sqlite3.connect(aged)) as connection:
        assert connection.execute("select version_num from alembic_version").fetchone() != before


def test_store_of_a_newer_mlflow_is_refused(database):
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update alembic_version set version_num = 'feedfacecafe'")
    with pytest.raises(UserError, match="newer MLflow"):
        Tracker(f"sqlite:///{database}")


def test_missing_database_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(UserError, match=r"psycopg2.*flareclust\[postgres\]"):
        Tracker("postgresql://me@127.0.0.1/runs")


def test_absent_server_is_reported_at_once():
    start = time.monotonic()
    with pytest.raises(UserError, match=r"no MLflow server answers at 127\.0\.0\.1"):
        Tracker(f"http://127.0.0.1:{free_port()}")
    assert time.monotonic() - start < 10


def test_deleted_experiment_is_reported_with_the_way_back(store, tracker, client):
    client.delete_experiment(tracker._experiment_id)
    with pytest.raises(UserError, match=f"experiments restore --experiment-id {tracker._experiment_id}"):
        Tracker(store, experiment="test_deleted_experiment_is_reported_with_the_way_back")


# --- runs ---


def test_run_carries_name_params_and_tags_as_text(tracker, client):
    run = client.get_run(tracker.start("key", "feca/iid/s0", {"k": 15, "noise": 0.1, "init": None}, {"seed": 7}))
    assert run.data.params == {"k": "15", "noise": "0.1", "init": "None"}
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


def test_finish_and_fail_close_the_run(tracker, client):
    run_id = tracker.start("key", "name", {})
    tracker.finish(run_id)
    assert client.get_run(run_id).info.status == "FINISHED"
    tracker.fail(run_id, "z" * 10_000)
    run = client.get_run(run_id)
    assert (run.info.status, run.data.tags[ERROR_TAG]) == ("FAILED", "z" * 8000)


# --- metrics ---


def test_rounds_are_logged_once_however_often_they_are_sent(tracker, client):
    run_id = tracker.start("key", "name", {})
    expected = [(r, 100.0 / (r + 1), STARTED + r) for r in range(10)]
    tracker.log_rounds(run_id, ROUNDS[:4], STARTED)  # what was streamed before a crash
    for started in (STARTED, STARTED, STARTED + 5000):
        tracker.log_rounds(run_id, ROUNDS, started)
        assert [step[:2] for step in history(client, run_id, "round/inertia")] == [step[:2] for step in expected]
    assert history(client, run_id, "round/inertia")[:4] == expected[:4]
    tracker.log_rounds(run_id, [{**row, "inertia": -1.0} for row in ROUNDS], STARTED)
    assert [step[:2] for step in history(client, run_id, "round/inertia")] == [step[:2] for step in expected]
    assert sorted(client.get_run(run_id).data.metrics) == ["round/inertia", "round/moved"]


def test_equal_rounds_of_two_writers_at_once_leave_one_history(tracker, client, monkeypatch):
    # Both read the empty history before either writes: only the fixed timestamps keep the second copy out.
    run_id = tracker.start("key", "name", {})
    empty = client.get_run(run_id)
    tracker.log_rounds(run_id, ROUNDS, STARTED)
    monkeypatch.setattr(tracker._client, "get_run", lambda _: empty)
    tracker.log_rounds(run_id, ROUNDS, STARTED)
    assert history(client, run_id, "round/moved") == [(r, 10.0 - r, STARTED + r) for r in range(10)]


def test_rounds_take_one_request_per_thousand_metrics(tracker, client, monkeypatch):
    run_id = tracker.start("key", "name", {})
    sizes = []
    store = tracker._client._tracking_client.store
    send = store.log_batch
    monkeypatch.setattr(
        store, "log_batch", lambda metrics, **others: (sizes.append(len(metrics)), send(metrics=metrics, **others))
    )
    tracker.log_rounds(run_id, [{"round": r, "a": r, "b": r, "c": r} for r in range(500)], STARTED)
    assert sizes == [1000, 500]
    assert len(history(client, run_id, "round/b")) == 500
    tracker.log_rounds(run_id, [], STARTED)
    assert len(sizes) == 2


def test_values_that_say_nothing_are_skipped(tracker, client):
    run_id = tracker.start("key", "name", {})
    tracker.log_rounds(run_id, [{"round": 0, "a": math.inf, "b": None, "c": math.nan, "d": 1}], STARTED)
    tracker.log_result(
        run_id, final={"nmi": None, "l2": math.nan}, cost={}, centroids=CENTROIDS, columns=None, files=[]
    )
    assert client.get_run(run_id).data.metrics == {"round/d": 1.0}
    with pytest.raises(UserError, match="expected `round` in every mapping"):
        tracker.log_rounds(run_id, [{"inertia": 1.0}], STARTED)


def test_result_is_logged_once_and_its_files_are_readable(tracker, client, tmp_path):
    run_id = tracker.start("key", "name", {})
    (tmp_path / "result.json").write_text('{"k": 2}')

    def log(ari):
        tracker.log_result(
            run_id,
            final={"ari": ari, "nmi": None},
            cost={"seconds": 0.1},
            centroids=CENTROIDS,
            columns=["a,b", "c"],
            files=[tmp_path / "result.json"],
        )

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


def test_result_that_cannot_be_kept_is_refused_before_anything_is_logged(tracker, client, tmp_path):
    run_id = tracker.start("key", "name", {})
    (tmp_path / "centroids.csv").touch()
    whole = {"final": {"ari": 1.0}, "cost": {}, "centroids": CENTROIDS, "columns": None, "files": []}
    for wrong, message in [
        ({"files": [tmp_path / "absent.png"]}, r"no such file to log: .*absent\.png"),
        ({"files": [tmp_path / "centroids.csv"]}, "several called centroids.csv"),
        ({"columns": ["a"]}, "expected 2 different column names"),
        ({"columns": ["a", "a"]}, "expected 2 different column names"),
        ({"centroids": np.zeros(3)}, r"shape \(k, d\), got \(3,\)"),
    ]:
        with pytest.raises(UserError, match=message):
            tracker.log_result(run_id, **(whole | wrong))
    assert client.get_run(run_id).data.metrics == {}


# --- the model ---


def is_pickle(file):
    try:
        return sum(1 for _ in pickletools.genops(file.read_bytes())) > 1
    except ValueError:
        return False


def test_logged_model_loads_without_pickle_and_checks_its_columns(tracker):
    import mlflow

    run_id = tracker.start("key", "name", {})
    assert tracker.log_model(run_id, CENTROIDS) == f"runs:/{run_id}/model"
    folder = model_folder(tracker, run_id)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"MLmodel", "model.py", "centroids.npy"} <= {path.name for path in files}
    assert not [path for path in files if path.suffix in (".pkl", ".pickle") or is_pickle(path)]
    requirements = (folder / "requirements.txt").read_text().split()
    assert requirements == ["numpy", "pandas", f"mlflow=={mlflow.__version__}"]
    model = mlflow.pyfunc.load_model(str(folder))
    assert model.predict(np.array([[9.0, 0.0], [1.0, 0.0]])).tolist() == [1, 0]
    assert model.predict(pd.DataFrame({"p": [9.0], "q": [0.0]})).tolist() == [1]
    for surplus in (np.zeros((1, 3)), np.zeros((1, 1))):
        with pytest.raises(mlflow.MlflowException, match=r"does not match expected shape \(-1, 2\)"):
            model.predict(surplus)


def test_named_columns_are_found_by_name(tracker):
    import mlflow

    run_id = tracker.start("key", "name", {})
    tracker.log_model(run_id, CENTROIDS, columns=["a", "b"])
    model = mlflow.pyfunc.load_model(str(model_folder(tracker, run_id)))
    assert model.predict(pd.DataFrame({"b": [0.0, 0.0], "id": [7, 8], "a": [9.0, 1.0]})).tolist() == [1, 0]
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['b'\]"):
        model.predict(pd.DataFrame({"a": [9.0]}))


def test_model_is_logged_once_and_belongs_to_its_run(tracker, client):
    run_id = tracker.start("key", "name", {"k": 2})
    tracker.log_model(run_id, CENTROIDS)
    tracker.log_model(run_id, CENTROIDS)
    (model,) = client.search_logged_models([tracker._experiment_id])
    assert (model.source_run_id, str(model.status), model.params) == (run_id, "READY", {"k": "2"})
    assert [output.model_id for output in client.get_run(run_id).outputs.model_outputs] == [model.model_id]
    with pytest.raises(UserError, match="finite centroids"):
        tracker.log_model(run_id, np.array([[np.nan, 1.0]]))


def test_registering_twice_gives_one_version_and_the_alias_moves(tracker, client):
    import mlflow

    runs = [log_federation(tracker, key) for key in ("a", "b")]
    assert [tracker.register(run, "clusters", "champion") for run in (*runs, runs[1])] == [1, 2, 2]
    assert client.get_model_version_by_alias("clusters", "champion").run_id == runs[1]
    source = client.get_model_version_download_uri("clusters", "1")
    assert mlflow.pyfunc.load_model(source).predict(CENTROIDS).tolist() == [0, 1]
    with pytest.raises(UserError, match="call log_model first"):
        tracker.register(tracker.start("c", "name", {}), "clusters")
    with pytest.raises(UserError, match="model name without quotes"):
        tracker.register(runs[0], "o'clusters")


# --- processes ---


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def process_group(command, **kwargs):
    with subprocess.Popen(command, start_new_session=True, **kwargs) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until_healthy(process, url, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the server ended with exit code {process.wait(timeout=0.2)}")
    pytest.fail(f"the server did not answer within {seconds} s")


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_new_store(tmp_path):
    script = (
        "import sys; from flareclust.tracking.runs import Tracker; Tracker(sys.argv[1]).start(sys.argv[2], 'name', {})"
    )
    uri = f"sqlite:///{tmp_path}/new.db"
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(process_group([sys.executable, "-c", script, uri, key], env=CLEAN_ENV)) for key in "abc"
        ]
        assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    tracker = Tracker(uri)
    assert len(tracker._client.search_runs([tracker._experiment_id])) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["new.db"]


@pytest.mark.slow
def test_mlflow_models_predict_gives_the_labels(tracker, store, tmp_path):
    run_id = log_federation(tracker)
    (tmp_path / "in.json").write_text(json.dumps({"inputs": [[9, 0], [1, 0], [5.1, 0]]}))
    command = [sys.executable, "-m", "mlflow", "models", "predict", "-m", f"runs:/{run_id}/model"]
    command += ["--env-manager", "local", "-i", "in.json", "-t", "json"]
    env = CLEAN_ENV | {"MLFLOW_TRACKING_URI": store, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with process_group(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(output) == {"predictions": [1, 0, 1]}


@pytest.mark.slow
def test_tracker_logs_the_same_through_a_server(tmp_path, capfd, monkeypatch):
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    # The Tracker makes the store, the server finds it: quicker than both making one.
    Tracker(f"sqlite:///{tmp_path}/server.db", "unused")
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--serve-artifacts"]
    command += ["--artifacts-destination", str(tmp_path / "kept")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with process_group(command, cwd=tmp_path, env={**os.environ}, **quiet) as process:
        wait_until_healthy(process, uri)
        capfd.readouterr()
        tracker = Tracker(uri, "served")
        run_id = log_federation(tracker)
        assert log_federation(tracker) == run_id
        assert tracker.register(run_id, "clusters", "champion") == tracker.register(run_id, "clusters") == 1
        with pytest.raises(UserError, match="other params"):
            tracker.start("key", "name", {"k": 3})
        assert capfd.readouterr() == ("", "")
        client = tracker._client
        run = client.get_run(run_id)
        assert run.info.status == "FINISHED"
        assert run.data.params == {"k": "2", "seed": "0"}
        assert {key: run.data.tags[key] for key in ("seed", RUN_KEY_TAG)} == {"seed": "0", RUN_KEY_TAG: "key"}
        assert history(client, run_id, "round/moved") == [(r, 10.0 - r, STARTED + r) for r in range(10)]
        assert len(history(client, run_id, "final/ari")) == 1
        assert len(client.search_logged_models([tracker._experiment_id])) == 1
        model = model_folder(tracker, run_id)
        centroids = np.load(artifact(tracker, run_id, "centroids.npz"))["centroids"]
    import mlflow

    assert np.array_equal(centroids, CENTROIDS)
    assert mlflow.pyfunc.load_model(str(model)).predict(CENTROIDS).tolist() == [0, 1]
    assert [path.name for path in (tmp_path / "kept").rglob("centroids.npz")] == ["centroids.npz"]
