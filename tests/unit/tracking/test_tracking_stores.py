"""The tracking store: its database, servers that are absent, and processes that share one."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flareclust._foundation.errors import UserError
from flareclust.tracking.runs import RUN_KEY_TAG, Tracker
from tests.mlflow_server import free_port, mlflow_server, process_group
from tests.patience import PATIENCE
from tests.unit.tracking.tracking_cases import (
    CENTROIDS,
    CLEAN_ENV,
    STARTED,
    artifact,
    history,
    log_federation,
    model_folder,
)


@pytest.fixture
def database(store, tmp_path):
    """A file of its own, for tests that spoil it."""
    return Path(shutil.copy(store.removeprefix("sqlite:///"), tmp_path))


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
tracker.log_centroids(run_id, np.eye(2), None)
tracker.log_model(run_id, np.eye(2))
tracker.finish(run_id)
from mlflow.telemetry.utils import is_telemetry_disabled
assert is_telemetry_disabled()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=CLEAN_ENV, capture_output=True, text=True, timeout=PATIENCE, check=False
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


# --- processes ---


@pytest.mark.slow
def test_processes_that_start_at_once_share_one_new_store(tmp_path):
    script = (
        "import sys; from flareclust.tracking.runs import Tracker; Tracker(sys.argv[1]).start(sys.argv[2], 'name', {})"
    )
    uri = f"sqlite:///{tmp_path}/new.db"
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(process_group([sys.executable, "-c", script, uri, key], env=CLEAN_ENV)) for key in "ab"
        ]
        assert [process.wait(timeout=PATIENCE) for process in running] == [0, 0]
    tracker = Tracker(uri)
    assert len(tracker._client.search_runs([tracker._experiment_id])) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["new.db"]


@pytest.mark.slow
def test_tracker_logs_the_same_through_a_server(tmp_path, capfd, monkeypatch):
    with mlflow_server(tmp_path) as (uri, _):
        capfd.readouterr()
        tracker = Tracker(uri, "served")
        run_id = log_federation(tracker)
        assert log_federation(tracker) == run_id
        assert tracker.register(run_id, "clusters") == tracker.register(run_id, "clusters") == 1
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
