"""The MLflow store: where it is, that it exists, that it answers, and the addresses of its pages."""

import os
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies

from flareclust._foundation.errors import FlareclustError, UserError
from flareclust._foundation.own_files import create, make_folder

_DEFAULT_URI = "sqlite:///mlflow.db"

_SQLITE = "sqlite:///"


#: Ports of the stores that are servers, where the address names none.
_PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}

#: Seconds that another process may keep a SQLite store locked before we go on without it.
_LOCKED = 10
#: Characters of a driver's error that are passed on.
_LINE = 200

#: Where `flareclust ui` shows a store that is no server.
_PORT = 5000

#: Tag of an experiment, and its value for runs that train models: MLflow 3 opens an experiment on pages for language models unless the
#: link, or this tag, says otherwise.
KIND_TAG, KIND = "mlflow.experimentKind", "custom_model_development"

_TRAINING = "workflowType=machine_learning"


class NoAnswer(UserError):
    """The MLflow store does not answer now, or cannot be written; it may be otherwise later."""


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Raise NoAnswer with one line where the store fails, whatever its driver raises."""
    try:
        yield
    except FlareclustError:
        raise
    except Exception as error:  # of MLflow, its HTTP client, its database or its file system
        _check_reachable(uri)  # has the better line, where nobody listens
        raise NoAnswer(f"the MLflow store failed: {_one_line(error)}") from error


@contextmanager
def apart_from(code: str) -> Iterator[None]:
    """Let an error of MLflow with this code pass: another process was quicker, or there is no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def resolve_uri(uri: str | None = None) -> str:
    """Return the address of the store: the argument, else MLFLOW_TRACKING_URI, else `_DEFAULT_URI`.

    The path of a SQLite file is made absolute, so that the address means the same from every working directory. UserError
    for a folder or an in-memory database.
    """
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT_URI
    scheme, colon, _ = chosen.partition(":")
    if scheme == "file" or not (colon or chosen == "databricks"):
        raise UserError(
            f"expected the address of an MLflow store, got {chosen!r}; use sqlite:///<file>, http://<host>:<port> or "
            "postgresql://<user>@<host>/<database> (MLflow no longer keeps runs in plain folders)"
        )
    if scheme != "sqlite":
        return chosen
    path = chosen.removeprefix(_SQLITE)
    if path in (chosen, "", ":memory:"):
        raise UserError(f"expected sqlite:///<file>, got {chosen!r}: runs kept in memory would be lost")
    return f"{_SQLITE}{Path(path).absolute()}"


def ui_command(uri: str | None = None, port: int = 5000) -> list[str]:
    """Return the command line that shows the store's runs at http://127.0.0.1:<port>; UserError for a server, which has pages.

    The address of a database, which may hold a password, goes into the environment: every account can list command lines.
    """
    settle_mlflow()  # the command inherits the environment
    store = resolve_uri(uri)
    if urlsplit(store).scheme in ("http", "https"):
        raise UserError(f"{store} is an MLflow server already; open that address in a browser")
    if not 1 <= port <= 65535:
        raise UserError(f"expected a port from 1 to 65535, got {port}")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")  # of MLflow's own libraries
    options = ["--port", str(port), "--workers", "1"]
    options += ["--uvicorn-opts", "--log-level warning"]  # no line for each file that the browser asks for
    if file := sqlite_file(store):
        # Or experiments made in the browser would keep their files wherever the command was started.
        options += ["--backend-store-uri", store, "--artifacts-destination", (file.parent / "mlruns").as_uri()]
    else:
        os.environ["MLFLOW_BACKEND_STORE_URI"] = store
    return [sys.executable, "-m", "mlflow", "ui", *options]


def settle_mlflow() -> None:
    """Switch telemetry and chatter off unless the user has decided otherwise; call this before importing mlflow."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_LOGGING_LEVEL": "WARNING",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # standard output may be one JSON object
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven more processes under the UI, for language models
        # Under a minute for a server that hangs, seconds for one that is gone: the result is in its folder by then, and
        # `flareclust log` logs it later.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    }.items():
        os.environ.setdefault(name, value)


def connect(uri: str) -> Any:
    """Open the store, making or upgrading a SQLite one."""
    settle_mlflow()
    file = sqlite_file(uri)
    if file is not None or urlsplit(uri).scheme in ("http", "https"):
        check_store(uri)
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        if file is None and "://" in uri and not uri.startswith("http"):
            from sqlalchemy import make_url

            make_url(uri).get_dialect().import_dbapi()
            _check_reachable(uri)
        return MlflowClient(uri)
    except MlflowException as error:
        if "out-of-date database schema" not in str(error):
            raise UserError(f"MLflow cannot open the store: {error}") from error
        if file is None:  # shared, so not ours to change
            raise UserError(str(error)) from error  # it names the command
    except ModuleNotFoundError as error:
        raise UserError(
            f"the MLflow store needs the module {error.name}; for PostgreSQL: pip install 'flareclust[postgres]'"
        ) from error
    _upgrade(uri)
    return MlflowClient(uri)


def check_store(uri: str) -> None:
    """Raise NoAnswer, or UserError, where a store that should be there cannot be used; MLflow is not imported.

    Args:
        uri: as `resolve_uri` returns it.
    """
    file = sqlite_file(uri)
    if file is None:
        _check_reachable(uri)
        return
    _make_sqlite(file)
    # Fail within seconds where MLflow would try to open a locked database for minutes.
    with closing(sqlite3.connect(file, timeout=_LOCKED)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.rollback()
        except sqlite3.OperationalError as error:
            raise NoAnswer(f"the MLflow store {file} cannot be written ({error})") from error


def existing_store(uri: str | None = None) -> str:
    """Return the address of a store; UserError where it is a SQLite file that is not there."""
    store = resolve_uri(uri)
    file = sqlite_file(store)
    if file is not None and not file.exists():
        raise UserError(f"there is no MLflow store {file}; go to the folder of the tracked run, or give tracking_uri")
    return store


def download(run_id: str, names: Sequence[str], folder: Path, uri: str | None = None) -> Path:
    """Download files of a run into a folder; return it. UserError without such a store, run or file."""
    store = existing_store(uri)
    client = connect(store)
    from mlflow.exceptions import MlflowException

    try:
        known = {file.path for file in client.list_artifacts(run_id)}
        if missing := ", ".join(sorted(set(names) - known)):
            raise UserError(f"the run {run_id} is none of one federation that ended well: it has no {missing}")
        for name in names:
            client.download_artifacts(run_id, name, str(folder))
    except MlflowException as error:
        raise UserError(f"the run {run_id} cannot be read from {store}: {error}") from error
    return folder


def sqlite_file(uri: str) -> Path | None:
    """Return the database file of a SQLite address, None for other addresses."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]) if uri.startswith(_SQLITE) else None


def _make_sqlite(file: Path) -> None:
    """Create the database unless it is there.

    Some sixty migrations make a new database. Two processes that run them on one file spoil it, and so does an
    interrupt. So each makes its own, aside, and the first to finish gives it the name.
    """
    try:
        make_folder(file.parent)
        if file.exists():
            with file.open("rb+") as stream:
                start = stream.read(16)
            if start not in (b"", b"SQLite format 3\0"):
                raise UserError(f"{file} is not a SQLite database; name another file for the MLflow store")
            return
        with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=file.parent, ignore_cleanup_errors=True) as scratch:
            fresh = Path(scratch, file.name)
            create(fresh).close()  # SQLite keeps the mode of an empty file, for the files beside it as well
            _upgrade(f"{_SQLITE}{fresh}")
            try:
                os.link(fresh, file)
            except FileExistsError:
                pass  # another process was quicker
            except OSError:  # a file system without hard links
                fresh.replace(file)
    except OSError as error:
        raise UserError(f"the MLflow store {file} cannot be written ({error.strerror}); name another file") from error


def _upgrade(uri: str) -> None:
    from alembic.util import CommandError
    from mlflow import db

    try:
        db.upgrade.callback(uri)  # `mlflow db upgrade`, without a second process
    except CommandError as error:
        raise UserError(
            f"{uri} was written by a newer MLflow ({error}); update mlflow or name another store"
        ) from error


def _check_reachable(uri: str) -> None:
    """Fail within seconds where MLflow would try an address again and again for minutes."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    if parts.hostname is None or scheme not in _PORTS or (scheme.startswith("http") and getproxies()):
        return
    port = parts.port or _PORTS[scheme]
    try:
        socket.create_connection((parts.hostname, port), timeout=5).close()
    except OSError as error:
        what = "MLflow server" if scheme.startswith("http") else "database"
        raise NoAnswer(
            f"no {what} answers at {parts.hostname}:{port} ({error}); start it, or correct MLFLOW_TRACKING_URI"
        ) from error


def _one_line(error: BaseException) -> str:
    """Return what an error says in one line: of a database what its driver said, without the statement."""
    cause: BaseException | None = error
    while cause is not None:
        if (original := getattr(cause, "orig", None)) is not None:  # SQLAlchemy's name for it
            error = original
        cause = cause.__cause__ or cause.__context__
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return text if len(text) <= _LINE else text[:_LINE] + " ..."


def runs_page(uri: str, experiment_id: str, port: int = _PORT) -> str:
    """Return the address of the page that lists the training runs of an experiment, at the port where `flareclust ui` shows it.

    The pages of a store that is a server are there.
    """
    return f"{_pages(uri, port)}/#/experiments/{experiment_id}/runs?{_TRAINING}"


def run_page(uri: str, experiment_id: str, run_id: str, port: int = _PORT) -> str:
    """Return the address of the page of one run; the arguments are those of `runs_page`."""
    return f"{_pages(uri, port)}/#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def file_address(page: str, run_id: str, name: str) -> str:
    """Return the address of a file of a run, under which a browser shows it, from that of the run's page."""
    return f"{page.partition('/#/')[0]}/get-artifact?{urlencode({'path': name, 'run_uuid': run_id})}"


def _pages(uri: str, port: int) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return f"http://127.0.0.1:{port}"
    host = parts.netloc.rpartition("@")[2]  # without a password
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
