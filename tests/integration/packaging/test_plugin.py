"""The example of an algorithm in a package of its own: built, installed, and run in both engines under a policy."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.slow

PLUGIN = ROOT / "examples" / "plugin"
LIMIT = 240


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """An environment in which the package is installed."""
    source, target = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("installed")
    shutil.copytree(PLUGIN, source)  # building leaves folders behind
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(target), str(source)], check=True, timeout=LIMIT)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT)])}


def flareclust(env, folder, *words):
    command = [sys.executable, "-m", "flareclust", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.smoke
def test_it_is_listed_with_its_parameters(env, tmp_path):
    line = json.loads(flareclust(env, tmp_path, "list", "linkage", "--json"))
    assert [parameter["name"] for parameter in line["parameters"]] == [
        "min_count",
        "n_init",
        "weighted",
        "table_schema",
    ]
    assert "spread float64 (k)" in line["sends"]


@pytest.mark.smoke
def test_both_engines_give_the_same_centroids_under_a_policy(env, tmp_path):
    (tmp_path / "policy.yaml").write_text("min_count: 12\nround_counts: 4\n")
    shared = ("--data", "iris", "--n-sites", "3", "--policy", "policy.yaml", "--no-track")
    found = {}
    for engine in ("inprocess", "simulator"):
        flareclust(env, tmp_path, "run", "linkage", *shared, "--engine", engine, "--out", engine)
        with np.load(tmp_path / engine / "result.npz") as file:
            found[engine] = {name: file[name] for name in file.files}
        about = json.loads((tmp_path / engine / "result.json").read_text())
        assert about["refused"] == {}
    assert set(found["inprocess"]) == set(found["simulator"])
    for name, value in found["inprocess"].items():
        np.testing.assert_array_equal(value, found["simulator"][name])


HELD = """
import numpy as np
from flareclust._foundation.errors import Refusal
from flareclust.privacy.enforcement import PolicyEnforcer, Request
from flareclust.privacy.policy import Policy
from flareclust.privacy.session import SiteSession

gate = PolicyEnforcer(Policy())
stated = SiteSession(Policy(), "job").statement("linkage", private=False)
good = {"centroids": np.zeros((2, 3)), "counts": np.array([20, 30]), "spread": np.ones(2)}
gate.check_reply(Request("cluster", 0, {}), good, stated)
more = {"two spreads": {"spread": np.ones((2, 2))}, "of kfed": None, "few rows": {"counts": np.array([3, 30])}}
for what, change in more.items():
    reply = {name: good[name] for name in ("centroids", "counts")} if change is None else {**good, **change}
    try:
        gate.check_reply(Request("cluster", 0, {}), reply, stated)
    except Refusal as reason:
        print(what, reason)
"""


@pytest.mark.smoke
def test_a_policy_holds_it_to_its_own_schema(env):
    done = subprocess.run(
        [sys.executable, "-c", HELD], env=env, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    lines = done.stdout.splitlines()
    assert "two spreads kept back a reply to the step cluster, which has another form than linkage sends" in lines[0]
    assert "of kfed kept back a reply to the step cluster, which has other arrays than linkage sends" in lines[1]
    assert "few rows lets out no counts below 10" in lines[2]


def test_its_own_tests_pass(env, tmp_path):
    shutil.copytree(PLUGIN / "tests", tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "2 passed" in done.stdout
