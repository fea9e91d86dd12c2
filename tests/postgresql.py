"""A PostgreSQL server of a test's own, which is gone in the end."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mlflow_server import free_port
from tests.patience import PATIENCE


class Database:
    """A running server, on this machine and without passwords."""

    def __init__(self, programs: Path, port: int, account: dict[str, Any]) -> None:
        self._programs, self.address, self._account = programs, f"flareclust@127.0.0.1:{port}", account
        self._where = ["--host", "127.0.0.1", "--port", str(port), "--username", "flareclust"]

    def create(self, name: str) -> None:
        """Make a database."""
        self._run("createdb", *self._where, name)

    def demand(self, user: str, password: str) -> None:
        """Make an account that may read all tables, and has to give its password."""
        rules = Path(self._account["cwd"], "data", "pg_hba.conf")
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        self.ask("postgres", f"CREATE ROLE {user} LOGIN PASSWORD '{password}' IN ROLE pg_read_all_data")
        self.ask("postgres", "SELECT pg_reload_conf()")

    def ask(self, name: str, query: str) -> list[str]:
        """Return the lines that a query of a database gives."""
        words = ["--dbname", name, "--tuples-only", "--no-align", "--command", query]
        return self._run("psql", *self._where, *words).split()

    def _run(self, program: str, *words: str) -> str:
        command = [str(self._programs / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **self._account)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def postgresql() -> Iterator[Database]:
    """Start a server with the programs of this machine, of the newest version; skip the test where there are none."""
    found = [Path(path).parent for path in (shutil.which("initdb"),) if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        pytest.skip("there is no PostgreSQL on this machine; apt-get install postgresql")
    programs = found[-1]
    # The server refuses to run as root.
    account: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if account:
        shutil.chown(folder, **account)
    port = free_port()
    server = Database(programs, port, {**account, "cwd": folder})
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
    data = ["--pgdata", str(folder / "data")]
    try:
        server._run("initdb", *data, "--username", "flareclust", "--auth", "trust", "--no-sync")
        server._run("pg_ctl", *data, "--log", str(folder / "log"), "--options", options, "--wait", "start")
        try:
            yield server
        finally:
            server._run("pg_ctl", *data, "--mode", "fast", "--wait", "stop")
    finally:
        shutil.rmtree(folder)
