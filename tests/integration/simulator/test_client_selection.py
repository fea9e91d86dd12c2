"""The job and the training script of docs/client-selection.md in NVFlare's simulator, by NVFlare's own FedAvg."""

import re
import subprocess
import sys

import numpy as np
import pytest

from flareclust.platform.process_tree import end_all
from tests.living import naming
from tests.paths import ROOT
from tests.patience import PATIENCE

PAGE = ROOT / "docs" / "client-selection.md"


def printed() -> list[str]:
    """Return the Python of the page: the job, the training script, another controller, the clusters."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_the_job_of_the_page_trains_the_clients_with_the_largest_losses(tmp_path, monkeypatch):
    job, script, *_ = printed()
    (tmp_path / "job.py").write_text(job)
    (tmp_path / "train.py").write_text(script)
    monkeypatch.setenv("NVFLARE_TASK_REQUEST_INTERVAL", "0.2")
    try:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "job.py")],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    finally:
        end_all(lambda: naming(tmp_path), 30)
    said = re.findall(r"pow-d chose (\S+)", done.stdout + done.stderr)
    # The sites have the means 1, 4 and 9. From 0 the last is farthest; from 0.9 * 9 = 8.1 it is the first.
    assert said == ["site-3", "site-1"], done.stdout[-2000:] + done.stderr[-2000:]
    model = np.load(tmp_path / "simulated/server/simulate_job/models/server.npy")
    assert model == pytest.approx([8.1 + 0.9 * (1 - 8.1)])
    assert all(f"`pow-d chose {site}`" in PAGE.read_text(encoding="utf-8") for site in said)


def test_the_clusters_of_the_page_are_those_that_the_clients_have():
    names: dict[str, object] = {}
    exec(printed()[3], names)
    result, clusters = names["result"], names["clusters"]
    assert sorted(clusters) == sorted(result.site_labels)
    for site, labels in result.site_labels.items():
        assert clusters[site] == sorted(set(labels.tolist())), site


def test_other_controllers_of_nvflare_take_the_choice_as_well():
    names: dict[str, object] = {}
    exec(printed()[2], names)
    built = names["SelectiveScaffold"](num_clients=2, num_rounds=4, method="random", seed=5)
    assert (built.num_clients, built.num_rounds, built.method, built.seed) == (2, 4, "random", 5)
