"""A site that comes when the job is over: placed by a job of its own, or from its file, with the same labels."""

import json

import numpy as np
import pytest
from conftest import LATE, SITES
from harness import LEAD
from machines import flareclust

from flareclust.data.labels import LABELS_FILE, read_labels
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get

pytestmark = pytest.mark.slow


def test_a_late_site_gets_the_same_labels_through_the_federation_and_offline(federation, files, tmp_path):
    kit, result = str(federation.kit(LEAD)), str(tmp_path / "result")
    job = ["run", "kfed", "--k", "5", "--seed", "3", "--engine", "production", "--kit", kit, "--min-sites", "3"]
    flareclust(tmp_path, *job, "--no-track", "--out", result)
    done = json.loads((tmp_path / "result" / "result.json").read_text())
    flareclust(tmp_path, "fetch", done["job"], "--kit", kit, "--title", "Again", "--out", "fetched")
    fetched = json.loads((tmp_path / "fetched" / "result.json").read_text())
    assert [fetched[name] for name in ("job", "metrics", "k")] == [done[name] for name in ("job", "metrics", "k")]
    assert "<h1>Again</h1>" in (tmp_path / "fetched" / "report.html").read_text()
    federation.start(LATE)
    federation.wait_connected([*SITES, LATE])

    before = {path.name for path in federation.kit(LATE).iterdir()}
    reported = flareclust(tmp_path, "assign", result, "--kit", kit, "--site", LATE).stdout
    assert LATE in reported
    (run,) = [path for path in federation.kit(LATE).iterdir() if path.name not in before and path.is_dir()]
    through = read_labels(run)

    rows = federation.kit(LATE) / "data" / "rows.npy"
    flareclust(tmp_path, "assign", result, "--data", str(rows), "--site", LATE, "--out", str(tmp_path / "offline"))
    offline = read_labels(tmp_path / "offline")
    np.testing.assert_array_equal(through, offline)
    assert len(through) == len(np.load(rows))
    assert len(set(through.tolist())) > 1

    here = run_inprocess(get("kfed"), {}, files, JobOptions(k=5, seed=3))
    with np.load(tmp_path / "result" / "result.npz") as arrays:
        np.testing.assert_array_equal(arrays["centroids"], here.centroids)
    assert not list(federation.kit("server").rglob(LABELS_FILE))
