"""A policy in NVFlare's simulator: the filters of `local/privacy.json` are in force there, too, though it has no scopes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform.simulator import run_simulator
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from tests.patience import PATIENCE


@pytest.mark.slow
def test_a_policy_in_the_simulator_does_what_it_does_in_one_process(tmp_path, sites, rng):
    """The executor rounds and leaves out; that the assessment may not leave is found by the filters alone."""
    sites = sites | {"site-5": rng.normal(size=(8, 3)), "site-6": np.concatenate([sites["site-2"], 5e3 + np.eye(3)])}
    policy = Policy(round_counts=7, arrays=("centroids", "counts", "radii", "sse", "rows", "cluster", "m2"))
    params, options = {"polish": 1, "min_count": 1}, JobOptions(k=5)
    there = run_simulator(get("portfolio"), params, sites, options, tmp_path, policy=policy)
    here = run_inprocess(get("portfolio"), params, sites, options, policy=policy)
    np.testing.assert_array_equal(there.centroids, here.centroids)
    assert np.abs(there.centroids).max() < 1e3
    assert there.refused == here.refused
    assert "fewer rows" in there.refused["site-5"]
    assert "does not let out scatter, silhouette (its policy: arrays)" in there.refused["site-1"]


@pytest.mark.slow
def test_sites_of_the_simulator_share_one_noise_under_secure_sums(tmp_path, sites):
    terms = {"bounds": (-20.0, 20.0), "epsilon": 4.0, "delta": 1e-5, "budget": 4.0}
    policy = Policy.of({"secure_sums": True, "differential_privacy": terms})
    params, options = {"epsilon": 4.0}, JobOptions(k=4, secure_sums=True)
    there = run_simulator(get("dp-lloyd"), params, sites, options, tmp_path, policy=policy)
    here = run_inprocess(get("dp-lloyd"), params, sites, options, policy=policy)
    assert not there.refused
    noises = [
        [record["diagnostics"]["noise"] for record in found.rounds if record["step"] == "update"]
        for found in (there, here)
    ]
    assert noises[0] == noises[1], "the server counts on less noise than that of all sites"
    gaps = np.linalg.norm(there.centroids[:, None] - here.centroids, axis=2)
    assert gaps.min(axis=1).max() < 3  # the centers are 20 apart


@pytest.mark.slow
def test_ids_are_protected_in_the_simulator(tmp_path, rng):
    """The command reads the ids of the sites' tables, and the simulated sites find them in their own files."""
    centers = np.array([[5.0, 5.0], [-5.0, 5.0], [0.0, -5.0]])
    (tmp_path / "data").mkdir()
    for i in range(3):
        rows = np.repeat(centers[rng.integers(0, 3, 200)], 3, axis=0) + rng.normal(0, 0.3, size=(600, 2))
        lines = [f"p{i}-{j // 3},{x},{y}" for j, (x, y) in enumerate(rows)]
        (tmp_path / "data" / f"site-{i + 1}.csv").write_text("\n".join(["patient,x,y", *lines]) + "\n")
    terms = {"bounds": {"x": [-8, 8], "y": [-8, 8]}, "epsilon": 8, "delta": 1e-5, "budget": 8, "unit": "id"}
    (tmp_path / "policy.json").write_text(json.dumps({"differential_privacy": terms}))
    command = [
        "run",
        "dp-lloyd",
        "--data",
        str(tmp_path / "data"),
        "--partition",
        "none",
        "--id",
        "patient",
        "--k",
        "3",
    ]
    command += [
        "--policy",
        str(tmp_path / "policy.json"),
        "--set",
        "epsilon=8",
        "--set",
        "unit=id",
        "--json",
        "--no-track",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "flareclust", *command, "--set", "rows_per_id=2", "--out", str(tmp_path / "out")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["params"]["unit"], printed["params"]["rows_per_id"]) == ("id", 2)
    with np.load(printed["centroids_file"]) as found:
        centroids = found["centroids"]
    np.testing.assert_allclose(centroids[np.argsort(centroids[:, 0])], centers[[1, 2, 0]], atol=0.5)
