"""Jobs of personalised models for provisioned sites: where they go, what they bring, and what comes of their results."""

import json
from pathlib import Path

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.data.tables import Table
from flareclust.engines.inprocess import run_inprocess
from flareclust.personal.executor import FedAvgExecutor
from flareclust.personal.jobs import FEDAVG, IFCA, export_jobs, read_jobs
from flareclust.personal.settings import ExportSettings
from flareclust.protocol.outcome import write
from flareclust.protocol.registry import Algorithm
from flareclust.protocol.task import StepName
from flareclust.sites.class_list import of_server, of_sites
from tests.command_line import call
from tests.unit.personal.job_cases import ONE, losing, sites


def own_sites(k_local: int = 1) -> dict[str, np.ndarray]:
    """Four sites, of which two and two have rows of the same place, or each of both."""
    rng = np.random.default_rng(0)
    places = [[0, 9], [0, 9], [9, 0], [9, 0]] if k_local == 2 else [[0], [9], [0], [9]]
    return {
        f"ward-{i}": np.concatenate([rng.normal(place, 0.5, (30, 2)) for place in own]) for i, own in enumerate(places)
    }


def test_jobs_for_provisioned_sites_go_to_the_sites_of_their_cluster(tmp_path, capsys):
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    options = ["--export", str(tmp_path / "jobs"), "--clusters", str(tmp_path / "found"), "--model", "linear"]
    assert call("personalise", *options, "--label", "ill", "--rounds", 7, "--classes", 3) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "jobs" / f"cluster-{j}") for j in range(2)]
    deployed = []
    for j in range(2):
        job = tmp_path / "jobs" / f"cluster-{j}"
        meta = json.loads((job / "meta.json").read_text())
        at = [site for sites in meta["deploy_map"].values() for site in sites if site != "server"]
        deployed.append(sorted(at))
        assert meta["min_clients"] == len(at) == 2  # more than half
        assert not list(job.rglob("custom"))
        server = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
        (aggregator,) = [part for part in server["components"] if part["path"] in of_server()]
        assert aggregator["args"] == {"k": 1, "rounds": 7, "classes": 3, "cluster": j}
        client = json.loads(next(job.glob("app_ward*/config/config_fed_client.json")).read_text())
        (line,) = client["executors"]
        assert line["tasks"] == [
            StepName.SIZES,
            StepName.ROWS,
            StepName.LOSSES,
            StepName.TRAIN,
            StepName.TEST,
            "assess",
        ]
        assert line["executor"]["path"] in of_sites()
        assert FedAvgExecutor(**line["executor"]["args"]).params.class_column == "ill"
    assert deployed == [["ward-0", "ward-2"], ["ward-1", "ward-3"]] or deployed == [
        ["ward-1", "ward-3"],
        ["ward-0", "ward-2"],
    ]


def test_an_exported_job_needs_the_sites_asked_for_but_no_more_than_its_cluster_has(tmp_path):
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    settings = {"clusters": str(tmp_path / "found"), "model": "linear"}
    for asked, needed in [(1, 1), (2, 2), (3, 2)]:
        for job in export_jobs(
            ExportSettings(**settings, min_sites=asked), tmp_path / "jobs"
        ):  # again over the last ones
            assert json.loads((job / "meta.json").read_text())["min_clients"] == needed
            server = json.loads((job / "app_server" / "config" / "config_fed_server.json").read_text())
            assert server["workflows"][0]["args"]["min_sites"] == needed
    with pytest.raises(UserError, match="min_sites must be"):
        ExportSettings(**settings, min_sites=0)


def test_jobs_cannot_be_exported_without_clusters_of_whole_sites(tmp_path):
    flareclust.run("kfed", own_sites(2), 2, k_local=2, out=tmp_path / "mixed")
    with pytest.raises(UserError, match=r"ward-0 has rows of 2 clusters.*k_local=1"):
        export_jobs(ExportSettings(clusters=str(tmp_path / "mixed")), tmp_path / "jobs")
    flareclust.run("mavg", own_sites(), 2, out=tmp_path / "mavg")
    with pytest.raises(UserError, match=r"a result of mavg; .* need one of kfed"):
        export_jobs(ExportSettings(clusters=str(tmp_path / "mavg")), tmp_path / "jobs")
    assert call("personalise", "--export", tmp_path / "jobs") == 2


def part(job: Path, side: str) -> dict[str, object]:
    """Return what a job of all sites has at the server or at them."""
    return json.loads((job / "app" / "config" / f"config_fed_{side}.json").read_text())


def server_of(job: Path) -> dict[str, object]:
    """Return the settings of an exported job's aggregator."""
    (file,) = job.rglob("config_fed_server.json")
    (aggregator,) = [one for one in json.loads(file.read_text())["components"] if one["path"] in of_server()]
    return aggregator["args"]


def test_exported_jobs_bring_how_their_sites_are_selected(tmp_path, capsys):
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    jobs, found = tmp_path / "jobs", tmp_path / "found"
    options = ["--export", jobs, "--model", "linear", "--rounds", 3, "--per-round", 1]
    assert call("personalise", *options, "--clusters", found, "--select", "pow-d", "--candidates", 2) == 0
    ours = {"select": "pow-d", "per_round": 1, "candidates": 2}
    assert server_of(jobs / "cluster-1") == {"k": 1, "rounds": 3, "cluster": 1, **ours}
    options[-1] = 2
    assert call("personalise", *options, "--clusters", found, "--select", "random") == 2
    assert "per_round is 2 without effect: no model has more than 2 devices" in capsys.readouterr().err
    by_clusters = ["--method", "global", "--select", "pow-d-kfed", "--clusters", found]
    assert call("personalise", *options, *by_clusters, "--sites", "ward-0,ward-1,ward-2") == 0
    args = server_of(jobs / "global")
    assert (args["select"], args["per_round"], sorted(args["clusters"])) == ("pow-d-kfed", 2, list(own_sites()))
    assert args["clusters"]["ward-0"] == args["clusters"]["ward-2"] != args["clusters"]["ward-1"]


@pytest.mark.parametrize(("method", "k"), [("ifca", 2), ("global", 1)])
def test_one_job_goes_to_all_sites_or_to_those_named(method, k, tmp_path, capsys):
    clusters = ["--k", k] if method == "ifca" else []
    options = ["--method", method, *clusters, "--model", "linear", "--label", "ill", "--rounds", 7, "--classes", 3]
    assert call("personalise", "--export", tmp_path / "jobs", *options) == 0
    job = tmp_path / "jobs" / method
    assert capsys.readouterr().out.split() == [str(job)]
    meta = json.loads((job / "meta.json").read_text())
    assert (meta["deploy_map"], meta["min_clients"]) == ({"app": ["@ALL"]}, 2)
    server = part(job, "server")
    (aggregator,) = [one for one in server["components"] if one["path"] in of_server()]
    assert aggregator["args"] == {"k": k, "rounds": 7, "classes": 3}
    assert "min_sites" not in server["workflows"][0]["args"]  # more than half of those that are there
    (line,) = part(job, "client")["executors"]
    assert line["executor"]["path"] in of_sites()
    algorithm = IFCA if method == "ifca" else FEDAVG
    executor = algorithm.executor_class()(**line["executor"]["args"])
    assert (line["executor"]["path"], executor.params.k, executor.params.class_column) == (algorithm.executor, k, "ill")

    assert call("personalise", "--export", tmp_path / "jobs", *options, "--sites", "north, west", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"jobs": [str(job)]}
    meta = json.loads((job / "meta.json").read_text())
    assert [site for at in meta["deploy_map"].values() for site in at] == ["server", "north", "west"]
    assert meta["min_clients"] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ifca"}, "ifca needs k"),
        ({"method": "local"}, "local trains at each site by itself and needs no job"),
        ({"method": "global", "k": 2}, "k is 2 without effect: global has no clusters"),
        (
            {"method": "ifca", "k": 2, "clusters": "found"},
            "clusters is found without effect: ifca is one job.*leave it out",
        ),
        ({}, "^kfed needs clusters, the folder .*or use the method ifca or global"),
        ({"clusters": "found", "k": 2}, "k is 2 without effect: the clusters are those found"),
        ({"clusters": "found", "sites": ("a",)}, "sites is without effect: each job goes to the sites of its cluster"),
        ({"method": "global", "sites": ("a", "a")}, "sites must be different names"),
        ({"method": "global", "sites": ("a", "b c")}, "'b c' cannot be a site's name"),
        ({"method": "global", "sites": ("a", "b"), "min_sites": 3}, "min_sites is 3, more than the 2 sites named"),
        ({"method": "ifca", "k": 3, "sites": ("a", "b")}, "k is 3, more than the 2 sites named"),
        ({"method": "global", "classes": 1}, "classes must be"),
        (
            {"method": "global", "select": "pow-d-kfed", "per_round": 1},
            "^pow-d-kfed needs clusters, .*or use select=pow-d$",
        ),
        (
            {"method": "global", "select": "random", "per_round": 2, "sites": ("a", "b")},
            "per_round is 2 without effect: 2 devices train a model",
        ),
        (
            {"method": "global", "clusters": "found", "select": "pow-d", "per_round": 1},
            "clusters is found without effect",
        ),
        *(
            ({"method": "global", name: value}, f"{name} does not go with export: .*; leave it out")
            for name, value in {
                "data": "iris",
                "partition": "power:1",
                "devices": 3,
                "k_local": 2,
                "averaging": "gradients",
                "engine": "simulator",
            }.items()
        ),
    ],
)
def test_what_does_not_fit_an_export_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        ExportSettings(**{"model": "linear", **settings})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--export", "jobs", "--method", "ifca", "--k", 2, "--devices", 3], "devices does not go with export"),
        (["--export", "jobs", "--method", "global", "--out", "there"], "out: without effect in export"),
        (["--export", "jobs", "--method", "global", "--devices", 10], "devices does not go with export"),
        (
            ["--export", "jobs", "--method", "global", "--model", "linear", "--hidden", 200],
            "hidden is 200 without effect: it is a setting of the model mlp",
        ),
        (["--finished", "there", "--rounds", 50], "rounds: without effect in finished"),
        (["--k", 2, "--sites", "a", "--classes", 3], "sites, classes: without effect in training here"),
        (["--finished", "there", "--rounds", 3], "rounds: without effect in finished"),
        (["--finished", "there"], "expected a folder with result.npz"),
    ],
)
def test_options_of_one_way_are_refused_in_the_others(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("personalise", *options) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def finished(
    folder: Path, algorithm: Algorithm, own: dict[str, Table], k: int = 1, run=run_inprocess, **more: object
) -> Path:
    """Train as an exported job does, and leave what NVFlare downloads of it."""
    params = {"model": "linear", "rounds": 3, "lr": 0.05, "class_column": "class", **more}
    outcome = run(algorithm, params, own, ONE.model_copy(update={"k": k}))
    (folder / "workspace").mkdir(parents=True)
    write(outcome, folder / "workspace", {"algorithm": algorithm.name, "k": k, "seed": ONE.seed, "params": params})
    return folder


def test_the_result_of_an_ifca_job_has_models_and_each_sites_accuracy_and_choice(tmp_path, capsys):
    own = sites(40, 50, 60)
    own["site-3"].X[:, 0] = 1 - own["site-3"].X[:, 0]  # the classes are swapped there
    folder = finished(tmp_path / "job", IFCA, own, 2)
    assert call("personalise", "--finished", folder, "--out", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["method"] == "ifca"
    choices = [list(found["models_of"][site]) for site in own]
    assert choices[0] == choices[1] != choices[2]
    arrays = np.load(folder / "workspace" / "result.npz")
    for j in range(2):
        with np.load(tmp_path / "out" / f"model-{j}.npz") as model:
            np.testing.assert_array_equal(model["coef"], arrays["weights.coef"][j])
    assert list(found["accuracy_of"]) == list(own)
    assert min(found["accuracy_of"].values()) > 0.6
    assert found["bytes"]["up"] > 0
    assert len((tmp_path / "out" / "rounds.jsonl").read_text().splitlines()) == 3


def test_the_results_of_all_clusters_are_read_as_one_with_a_model_each(tmp_path):
    own = sites(40, 50, 60, 70)
    pairs = [dict(list(own.items())[:2]), dict(list(own.items())[2:])]
    folders = [finished(tmp_path / f"job-{j}", FEDAVG, pair, cluster=j) for j, pair in enumerate(pairs)]
    found = read_jobs(folders)
    assert (found.settings["method"], list(found.names)) == ("kfed", list(own))
    assert found.models_of == {site: {j: None} for j, pair in enumerate(pairs) for site in pair}
    assert found.accuracy.shape == (3, 4)
    alone = read_jobs(folders[1:])
    assert (alone.settings["method"], alone.settings["clusters"], alone.warnings) == ("kfed", [1], [])
    assert found.settings["clusters"] == [0, 1]
    np.testing.assert_array_equal(alone.models["coef"][0], found.models["coef"][1])
    np.testing.assert_array_equal(alone.accuracy, found.accuracy[:, 2:])


def test_the_result_of_a_job_that_selects_its_sites_says_who_trained(tmp_path, capsys):
    folder = finished(tmp_path / "job", FEDAVG, sites(40, 50, 60, 70), select="pow-d", per_round=1, candidates=3)
    assert call("personalise", "--finished", folder, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().out.startswith("global: accuracy")
    rows = [json.loads(line) for line in (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [len(row["sites"]) for row in rows] == [1, 1, 1]
    assert rows[-1]["accuracy"] > 0.5
    assert read_jobs([finished(tmp_path / "all", FEDAVG, sites(40, 50))]).selected == []


def test_a_lost_sites_accuracy_and_choice_are_not_known(tmp_path):
    own = sites(40, 50, 60, 5)
    found = read_jobs([finished(tmp_path / "job", IFCA, own, 2, losing("site-2", since=0))])
    assert found.models_of["site-2"] == {}
    assert np.isnan(found.accuracy[:, 1]).all()
    assert np.isnan(found.accuracy[:, 3]).all()  # one row held out
    assert "site-2 was lost" in found.warnings
    assert found.warnings[-1] == "2 of 4 devices were not tested after the last round; means are over the others"
    assert found.to_json()["accuracy_of"]["site-2"] is None


def test_a_site_with_too_few_rows_to_train_with_chooses_no_model(tmp_path):
    found = read_jobs([finished(tmp_path / "job", IFCA, sites(40, 50, 2), 2)])
    assert found.models_of["site-3"] == {}


def test_results_that_do_not_go_together_are_refused(tmp_path):
    own = sites(40, 50)
    three = {f"ward-{i}": table for i, table in enumerate(sites(40, 50, classes=3).values())}
    jobs = {
        "two": finished(tmp_path / "two", FEDAVG, own),
        "three": finished(tmp_path / "three", FEDAVG, three),
        "ifca": finished(tmp_path / "ifca", IFCA, own, 2),
        "few": finished(tmp_path / "few", FEDAVG, sites(5, 5)),
        "first": finished(tmp_path / "first", FEDAVG, own, cluster=0),
        "again": finished(tmp_path / "again", FEDAVG, {f"b-{name}": table for name, table in own.items()}, cluster=0),
    }
    flareclust.run("kfed", own_sites(), 2, k_local=1, out=tmp_path / "found")
    for names, message in [
        ([], "no folders"),
        (["two", "two"], "site-1 is in .*; give the result of each cluster's job once"),
        (["two", "three"], "differ in the method, the kind of model.*--classes"),
        (["ifca", "two"], "all models of IFCA; read its result by itself"),
        (["first", "again"], "cluster 0 is there twice"),
        (["first", "two"], "differ in the method"),
        (["few"], "no site tested its models.*weights"),
    ]:
        with pytest.raises(UserError, match=message):
            read_jobs([jobs[name] for name in names])
    with pytest.raises(
        UserError, match=r"a result of kfed; expected one of a job that `flareclust personalise --export`"
    ):
        read_jobs([tmp_path / "found"])
    arrays = dict(np.load(jobs["two"] / "workspace" / "result.npz"))
    np.savez(jobs["two"] / "workspace" / "result.npz", **{**arrays, "tests_round": arrays["tests_round"][:2]})
    with pytest.raises(UserError, match="is no result of fedavg, or was edited"):
        read_jobs([jobs["two"]])
