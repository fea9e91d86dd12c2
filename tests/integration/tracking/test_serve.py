"""`mlflow models serve`, as the documentation starts it, answers raw rows over HTTP as `predict` does in Python."""

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tests.mlflow_server import free_port, process_group, wait_until_healthy
from tests.served import run, tables

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def post(address, asked):
    body = json.dumps(asked).encode()
    request = urllib.request.Request(f"{address}/invocations", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["predictions"]


def test_raw_rows_with_gaps_categories_ordered_words_and_dates(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    made = tables(tmp_path)
    result = run(tmp_path, out=tmp_path / "out", track=True)
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"runs:/{result.run_id}/model"]
    command += ["--env-manager", "local", "--port", str(port)]
    # MLflow starts uvicorn by its name, as it is found where the environment is active.
    env = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    address = f"http://127.0.0.1:{port}"
    with (
        (tmp_path / "log").open("wb") as log,
        process_group(command, env=env, stdout=log, stderr=log) as server,
    ):
        wait_until_healthy(server, address)
        for site, raw in made.items():
            records = raw.to_dict("records")
            assert any(None in record.values() for record in records)
            expected = result.placements(raw)
            np.testing.assert_array_equal(expected["cluster"], result.site_labels[site])
            assert post(address, {"dataframe_records": records}) == expected["cluster"].tolist()
            found = post(address, {"dataframe_records": records, "params": {"details": True}})
            for name in ("cluster", "second", "far"):
                assert [row[name] for row in found] == expected[name].tolist()
            np.testing.assert_allclose([row["distance"] for row in found], expected["distance"], rtol=1e-9)
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(address, {"dataframe_records": [{**records[0], "stage": "secret"}]})
        assert refused.value.code == 400
        assert "column stage holds values other than I, II, III, IV" in refused.value.read().decode()
