"""Prefect's and MLflow's servers on a real PostgreSQL, as `compose.yaml` starts them."""

import subprocess
import sys

import psutil
import pytest

from tests.mlflow_server import free_port, wait_until_healthy
from tests.patience import PATIENCE
from tests.postgresql import postgresql
from tests.scheduler import started

#: The database asks for none, and takes any.
PASSWORD = "on-no-command-line"

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def test_a_tracked_run_is_in_both_databases():
    pytest.importorskip("psycopg2", reason="MLflow needs the extra flareclust[postgres]")
    port = free_port()
    with postgresql() as database:
        for name in ("prefect", "mlflow"):
            database.create(name)
        records = f"postgresql+asyncpg://{database.address}/prefect"
        with started(PREFECT_SERVER_DATABASE_CONNECTION_URL=records) as scheduler:
            address = database.address.replace("@", f":{PASSWORD}@")
            scheduler.env["MLFLOW_BACKEND_STORE_URI"] = f"postgresql+psycopg2://{address}/mlflow"
            pages = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
            pages += ["--serve-artifacts", "--artifacts-destination", f"{scheduler.folder}/kept"]
            with scheduler.process(pages, "mlflow.log") as process:
                address = f"http://127.0.0.1:{port}"
                wait_until_healthy(process, address)
                started_by = psutil.Process(process.pid)
                lines = [word for one in (started_by, *started_by.children(True)) for word in one.cmdline()]
                assert "server" in lines
                assert PASSWORD not in " ".join(lines)
                command = [sys.executable, "-m", "flareclust", "run", "feca", "--data", "iris", "--n-sites", "3"]
                env = {**scheduler.env, "MLFLOW_TRACKING_URI": address}
                done = subprocess.run(
                    command,
                    env=env,
                    cwd=scheduler.folder,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                assert done.returncode == 0, done.stderr
                assert f"MLflow run: {address}" in done.stdout
        assert database.ask("prefect", "SELECT state_type FROM flow_run") == ["COMPLETED"]
        assert database.ask("mlflow", "SELECT name, status FROM runs") == ["feca/iris/k3/iid/s0|FINISHED"]
        metrics = database.ask("mlflow", "SELECT key FROM latest_metrics")
        assert {"final/inertia", "cost/bytes_up"} <= set(metrics)
