"""Deployable jobs: equal to what the registry generates, loadable class by class, allowed at the sites."""

import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import flareclust
import flareclust.nvflare_jobs
from flareclust._foundation.errors import UserError
from flareclust._foundation.version import fits, misfit
from flareclust.engines.options import JobOptions
from flareclust.executors.feca import FeCAExecutor
from flareclust.nvflare_jobs import K, write_all
from flareclust.platform.job import build_job, export_job
from flareclust.platform.kit import allow_classes
from flareclust.protocol.parametrized import Parametrized
from flareclust.protocol.registry import BUILT_IN, get
from flareclust.sites.class_list import of_server, of_sites
from tests.paths import of_the_whole

FEDERATED = [algorithm for algorithm in BUILT_IN if algorithm.federated]
DIGEST = "0123456789ab"
KEPT = Path(flareclust.nvflare_jobs.__file__).resolve().parent


def files(folder: Path) -> dict[str, object]:
    return {str(p.relative_to(folder)): json.loads(p.read_text()) for p in sorted(folder.rglob("*.json"))}


def test_kept_jobs_equal_generated_ones(tmp_path):
    """If this fails, run `make jobs`."""
    written = list(write_all(tmp_path))
    assert [path.name for path in written] == [algorithm.name for algorithm in FEDERATED]
    for path in written:
        assert files(KEPT / path.name) == files(path)


@of_the_whole
def test_there_is_no_job_without_an_algorithm():
    assert {p.name for p in KEPT.iterdir() if (p / "meta.json").exists()} == {a.name for a in FEDERATED}


@pytest.mark.parametrize("algorithm", FEDERATED, ids=lambda a: a.name)
def test_every_class_of_a_job_loads_with_its_arguments(algorithm):
    server = json.loads((KEPT / algorithm.name / "app/config/config_fed_server.json").read_text())
    client = json.loads((KEPT / algorithm.name / "app/config/config_fed_client.json").read_text())
    parts = [*server["workflows"], *server["components"], *(e["executor"] for e in client["executors"])]
    assert len(parts) == 3
    for part in parts:
        module, _, name = part["path"].rpartition(".")
        assert part["path"] in {*of_sites(), *of_server()}, "kits do not list it"
        component = getattr(import_module(module), name)(**part["args"])
        for argument, value in part["args"].items():
            kept = f"_{argument}" if isinstance(component, Parametrized) else argument
            assert getattr(component, kept) == value


def test_settings_reach_the_side_that_knows_them(tmp_path):
    params = {"n_init": 3, "radius": "theoretical"}
    folder = export_job(build_job(get("feca"), params, JobOptions(k=7, seed=5, min_sites=2)), tmp_path / "job")
    client = json.loads((folder / "app/config/config_fed_client.json").read_text())["executors"][0]["executor"]["args"]
    server = json.loads((folder / "app/config/config_fed_server.json").read_text())
    assert client == {"k": 7, "seed": 5, "n_init": 3, "radius": "theoretical"}
    assert server["components"][0]["args"] == {"k": 7, "seed": 5}
    assert server["workflows"][0]["args"] == {
        "algorithm": "feca",
        "params": params,
        "min_sites": 2,
        "needs": FeCAExecutor(7).version(),
    }
    assert json.loads((folder / "meta.json").read_text())["min_clients"] == 2


def test_different_k_per_device_is_plain_json(tmp_path):
    table = {"site-1": 2, "site-2": 3}
    folder = export_job(build_job(get("kfed"), {"k_local": table}, JobOptions(k=7)), tmp_path / "job")
    client = json.loads((folder / "app/config/config_fed_client.json").read_text())["executors"][0]["executor"]["args"]
    assert client["k_local"] == table


def test_a_packaged_job_carries_configuration_only_and_byoc_the_code(tmp_path):
    packaged = export_job(build_job(get("feca"), {}, JobOptions(k=3)), tmp_path / "packaged")
    byoc = export_job(build_job(get("feca"), {}, JobOptions(k=3), packaged=False), tmp_path / "byoc")
    assert not list(packaged.rglob("*.py"))
    copied = {str(p.relative_to(byoc / "app" / "custom")) for p in byoc.rglob("*.py")}
    package = Path(flareclust.__file__).parent
    ours = {str(Path(folder, name)) for folder, _, names in os.walk(package, followlinks=True) for name in names}
    assert copied == {os.path.relpath(name, package.parent) for name in ours if name.endswith(".py")}
    code = "import flareclust.executors.feca, flareclust.platform.controller as c; print(c.__file__)"
    environment = os.environ | {"PYTHONPATH": str(byoc / "app" / "custom")}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(byoc)), "what travels must do without the installed package"


def test_export_replaces_a_job_and_nothing_else(tmp_path):
    job = build_job(get("feca"), {}, JobOptions(k=3))
    folder = export_job(job, tmp_path / "job")
    assert files(export_job(job, folder)) == files(KEPT / "feca") | files(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["job"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    with pytest.raises(UserError, match="other files than an exported job"):
        export_job(job, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_central_is_no_job():
    with pytest.raises(UserError, match="not federated"):
        build_job(get("central"), {}, JobOptions(k=3))


@pytest.mark.parametrize("own", [True, False])
def test_a_simulators_list_gains_our_classes_and_keeps_the_rest(tmp_path, own):
    name = "resources.json" if own else "resources.json.default"
    if own:
        (tmp_path / name).write_text(json.dumps({"format_version": 2, "class_allow_list": ["site.Own"], "x": 1}))
    assert allow_classes(tmp_path) == tmp_path / name
    once = (tmp_path / name).read_text()
    allow_classes(tmp_path)
    assert (tmp_path / name).read_text() == once
    expected = {"format_version": 2, "class_allow_list": [*of_sites(), *of_server()]}
    if own:
        expected = expected | {"class_allow_list": ["site.Own", *expected["class_allow_list"]], "x": 1}
    assert json.loads(once) == expected


def test_k_of_the_kept_jobs_is_what_they_say():
    for algorithm in FEDERATED:
        executor = algorithm.executor_class()
        assert "k" in signature(executor).parameters
        config = json.loads((KEPT / algorithm.name / "app/config/config_fed_client.json").read_text())
        assert config["executors"][0]["executor"]["args"]["k"] == K


def test_a_job_lists_every_step_of_its_algorithm(tmp_path):
    job = build_job(get("portfolio"), {}, JobOptions(k=3))
    config = json.loads((export_job(job, tmp_path / "job") / "app" / "config" / "config_fed_client.json").read_text())
    before = ["names", "scales", "known_scales", "bins", "finer_bins"]
    assert config["executors"][0]["tasks"] == [*before, "cluster", "score", "update", "spread", "assess"]


@pytest.mark.parametrize(
    ("needed", "installed", "runs"),
    [
        ("0.2.0", "0.1.0", False),
        ("0.1.0", "0.1.0", True),
        ("0.1.0", "0.1.7", True),
        ("0.1.0", "0.2.0", False),
        ("0.1.0", "0.10.0", False),
        ("1.2.3", "2.2.3", False),
        ("0.3.0.dev1", "0.3.0.dev1", True),
        ("0.3.0.dev1", "0.3.0.dev2", False),
        ("0.3.0.dev1", "0.3.0", False),
        ("0.3.0", "0.3.0.dev1", False),
        (f"0.3.0+{DIGEST}", f"0.4.0.dev1+{DIGEST}", True),
        (f"0.3.0+{DIGEST}", f"0.3.0+{DIGEST[::-1]}", False),
        (f"0.3.1+{DIGEST}", "0.3.0", True),
        ("0.2.0", f"0.3.0+{DIGEST}", False),
    ],
)
def test_a_job_runs_where_messages_are_equal_or_else_two_numbers(needed, installed, runs):
    assert fits(needed, installed) is runs


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        (f"0.4.0+{DIGEST}", "has flareclust 0.3.0 where the job needs 0.4.0"),
        (f"0.3.0+{DIGEST}", "has flareclust 0.3.0 with other messages than the flareclust 0.3.0 of the job's lead"),
        ("0.3.0+<b>", "has flareclust 0.3.0 where the job needs another version"),
    ],
)
def test_a_misfit_names_both_versions_and_nothing_that_a_server_makes_up(needed, words):
    assert misfit(needed, f"0.3.0+{DIGEST[::-1]}") == words
