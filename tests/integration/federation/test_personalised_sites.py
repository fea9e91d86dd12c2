"""Personalised models between provisioned sites, by the commands of the page: k-FED, exported jobs, a model per cluster."""

import json

import numpy as np
import pytest
from conftest import SITES
from harness import LEAD

from flareclust.data.tables import read_table
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.personal.jobs import FEDAVG, IFCA
from flareclust.protocol.outcome import read
from tests.command_line import call

pytestmark = pytest.mark.slow

ROUNDS, CLASSES, LABEL = 3, 2, "ill"
ONE = JobOptions(k=1, assess=False)


@pytest.fixture
def wards(federation):
    """Two sites with rows of one place, one with those of another, where the same class is on the other side."""
    rng, files = np.random.default_rng(0), {}
    for site, (place, sign) in zip(SITES, [(0, 1), (0, 1), (9, -1)], strict=True):
        X = rng.normal(place, 1, (40, 2))
        ill = sign * (X[:, 0] - place) > 0
        files[site] = federation.kit(site) / "data" / "ward.csv"
        np.savetxt(
            files[site], np.column_stack([X, ill]), delimiter=",", header=f"a,b,{LABEL}", comments="", fmt="%.17g"
        )
    return files


def test_exported_jobs_train_the_models_of_one_process_at_the_sites_of_each_cluster(federation, wards, tmp_path):
    for site, file in wards.items():
        federation.configure(site, path=str(file), columns=["a", "b"])
    found, jobs = tmp_path / "found", tmp_path / "jobs"
    at = ["--engine", "production", "--kit", federation.kit(LEAD), "--min-sites", len(SITES)]
    assert call("run", "kfed", "--k", 2, "--set", "k_local=1", *at, "--no-track", "--out", found) == 0
    training = ["--model", "linear", "--label", LABEL, "--classes", CLASSES, "--rounds", ROUNDS, "--lr", "0.05"]
    assert call("personalise", "--export", jobs, "--clusters", found, *training) == 0

    for site, file in wards.items():
        federation.configure(site, path=str(file), columns=["a", "b", LABEL])
    members = {}
    for folder in sorted(jobs.iterdir()):
        there = read(federation.run(folder))[0]
        members[folder.name] = there.sites
        tables = {site: read_table(wards[site]) for site in there.sites}
        here = run_inprocess(FEDAVG, settings_of(folder), tables, ONE)
        assert set(there.arrays) == set(here.arrays)
        for name, value in here.arrays.items():
            np.testing.assert_array_equal(there.arrays[name], value, err_msg=name)
    north, south, west = SITES
    assert sorted(members.values()) == [sorted([north, south]), [west]]


def test_an_exported_job_of_ifca_trains_the_models_that_the_sites_choose(federation, wards, tmp_path, capsys):
    for site, file in wards.items():
        federation.configure(site, path=str(file), columns=["a", "b", LABEL])
    training = ["--model", "linear", "--label", LABEL, "--rounds", ROUNDS, "--lr", "0.05"]
    named = ["--sites", ",".join(SITES)]
    assert call("personalise", "--export", tmp_path / "jobs", "--method", "ifca", "--k", 2, *named, *training) == 0
    (folder,) = (tmp_path / "jobs").iterdir()
    done = federation.run(folder)
    there = read(done)[0]
    tables = {site: read_table(file) for site, file in wards.items()}
    here = run_inprocess(IFCA, settings_of(folder), tables, ONE.model_copy(update={"k": 2}))
    for name, value in here.arrays.items():
        if not name.startswith("tests_"):  # in the order of the replies
            np.testing.assert_array_equal(there.arrays[name], value, err_msg=name)

    capsys.readouterr()
    assert call("personalise", "--finished", done.parent, "--out", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    north, south, west = (list(found["models_of"][site]) for site in SITES)
    assert north == south != west
    assert min(found["accuracy_of"].values()) > 0.5
    assert {"model-0.npz", "model-1.npz", "result.json"} <= {path.name for path in (tmp_path / "out").iterdir()}


def settings_of(job):
    """Return the parameters that a job brings to its sites and its server."""
    found = {}
    for file in job.glob("app_*/config/config_fed_*.json"):
        config = json.loads(file.read_text())
        parts = [line["executor"] for line in config.get("executors", [])] + config.get("components", [])
        for part in parts:
            if part["path"].startswith("flareclust.personal."):
                found |= part["args"]
    return {name: value for name, value in found.items() if name not in ("k", "seed")}
