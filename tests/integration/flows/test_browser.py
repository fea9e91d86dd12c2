"""MLflow's pages in a real browser: the links that we print show the runs."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.mlflow_server import free_port, process_group, wait_until_healthy
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

#: Names of Chromium, as distributions install it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture
def browser():
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine; apt-get install chromium")

    def text_of(url: str, folder) -> str:
        """Return the page after its programs have run."""
        command = [found, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom"]
        command += ["--virtual-time-budget=20000", "--timeout=60000", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout

    return text_of


def test_the_printed_links_open_the_runs_and_what_they_came_to(browser, tmp_path, monkeypatch):
    import flareclust

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    result = flareclust.run("feca", data="iris", n_sites=3, track=True)
    port = free_port()
    command = [sys.executable, "-m", "flareclust.cli", "ui", "--port", str(port)]
    with process_group(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}) as process:
        wait_until_healthy(process, f"http://127.0.0.1:{port}", 150)
        page = result.run_page.replace(":5000/", f":{port}/")
        run = browser(page, tmp_path / "one")
        runs = browser(page.replace(f"/runs/{result.run_id}", "/runs"), tmp_path / "two")
    assert "feca/iris/k3/iid/s0" in run
    assert "3 of 3 centroids from 3 sites" in run
    assert run.index("final/inertia") < run.index("round/received")
    assert "feca/iris/k3/iid/s0" in runs
    assert "Training runs" not in runs  # the sidebar of the pages for language models
