"""Where the store of tracking is, and which settings of MLflow count."""

import os
import sys

import pytest

from flareclust._foundation.errors import UserError
from flareclust.tracking.runs import Tracker
from flareclust.tracking.store import resolve_uri, settle_mlflow, ui_command


def test_argument_beats_environment_beats_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert resolve_uri("sqlite:///mine.db") == f"sqlite:///{tmp_path}/mine.db"
    assert resolve_uri() == "http://tracking:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resolve_uri() == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize("uri", ["./mlruns", "file:///tmp/mlruns", "sqlite://", "sqlite:///:memory:"])
def test_folders_and_memory_are_refused_with_advice(uri):
    with pytest.raises(UserError, match="sqlite:///<file>"):
        resolve_uri(uri)


def test_user_settings_of_mlflow_are_kept(monkeypatch):
    monkeypatch.setenv("MLFLOW_LOGGING_LEVEL", "DEBUG")
    settle_mlflow()
    assert os.environ["MLFLOW_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_other_files_are_not_taken_for_a_store(tmp_path):
    (tmp_path / "notes.db").write_text("these are my notes, not a database")
    with pytest.raises(UserError, match="is not a SQLite database"):
        Tracker(f"sqlite:///{tmp_path}/notes.db")
    assert (tmp_path / "notes.db").read_text().startswith("these are my notes")
    with pytest.raises(UserError, match="cannot be written"):
        Tracker(f"sqlite:///{tmp_path}/notes.db/below.db")


def test_ui_command_shows_the_store_of_the_tracker(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", "")
    command = ui_command(f"sqlite:///{tmp_path}/runs.db", port=5001)
    store = f"--backend-store-uri sqlite:///{tmp_path}/runs.db"
    assert command[0] == sys.executable
    options = "-m mlflow ui --port 5001 --workers 1 --uvicorn-opts --log-level warning"
    assert " ".join(command[1:]) == f"{options} {store} --artifacts-destination file://{tmp_path}/mlruns"
    assert "--artifacts-destination" not in ui_command("postgresql://me@host/runs")
    with pytest.raises(UserError, match="in a browser"):
        ui_command("http://tracking:5000")
    with pytest.raises(UserError, match="from 1 to 65535"):
        ui_command(port=0)


def test_the_password_of_a_database_is_on_no_command_line(monkeypatch):
    monkeypatch.setenv("MLFLOW_BACKEND_STORE_URI", "")
    store = "postgresql://me:secret@host/runs"
    assert "secret" not in " ".join(ui_command(store))
    assert os.environ["MLFLOW_BACKEND_STORE_URI"] == store
