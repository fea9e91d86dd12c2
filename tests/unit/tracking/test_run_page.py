"""What MLflow's pages of a run show: links, name, description, source, data, parameters, names of metrics."""

import json

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import JobFailed
from flareclust.experiment.config import OWN_ROWS, make_experiment
from flareclust.tracking import run_logging
from flareclust.tracking.note import NOTE_TAG, describe, escape, in_units
from flareclust.tracking.origin import _NOT_HERE, data_input, source_tags
from flareclust.tracking.runs import Tracker, pages_of
from flareclust.tracking.store import KIND_TAG, run_page, runs_page


@pytest.fixture
def runs(store, monkeypatch, tmp_path):
    """Give the runs of an experiment of this test's own, which the environment names; the newest first."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", tmp_path.name)
    monkeypatch.chdir(tmp_path)
    client = MlflowClient(store)

    def found():
        experiment = client.get_experiment_by_name(tmp_path.name)
        assert experiment.tags[KIND_TAG] == "custom_model_development"
        return client.search_runs([experiment.experiment_id])

    return found


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:////a/mlflow.db", "http://127.0.0.1:5000/#/experiments/7/runs"),
        ("postgresql://me:secret@db/mlflow", "http://127.0.0.1:5000/#/experiments/7/runs"),
        ("https://me:secret@hub.org:8443/mlflow/", "https://hub.org:8443/mlflow/#/experiments/7/runs"),
    ],
)
def test_links_open_training_runs_and_hold_no_password(uri, expected):
    assert runs_page(uri, "7") == f"{expected}?workflowType=machine_learning"
    assert run_page(uri, "7", "abc") == f"{expected}/abc?workflowType=machine_learning"


def test_a_run_has_description_source_data_and_only_parameters_that_are_set(runs, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/flareclust", "run", "lloyd", "--data", "my iris"])
    result = flareclust.run("lloyd", data="iris", n_sites=3, seed=2, track=True, scale="standard")
    (run,) = runs()
    assert run.info.run_name == "lloyd/iris/k3/iid/s2"
    assert result.run_page.endswith(f"/runs/{run.info.run_id}?workflowType=machine_learning")
    assert result.to_json()["run_page"] == result.run_page
    assert run.data.tags["mlflow.source.name"] == "flareclust run lloyd --data 'my iris'"
    assert "None" not in run.data.params.values()
    assert {"task_timeout", "criterion", "kit", "secure_sums"}.isdisjoint(run.data.params)
    note = run.data.tags[NOTE_TAG]
    assert note.startswith("**lloyd** on iris: 3 of 3 centroids from 3 sites, simplified silhouette 0.")
    sizes = sorted(np.bincount(result.labels), reverse=True)
    assert [int(line.split("|")[2]) for line in note.split("| share |")[1].splitlines()[2:5]] == sizes
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, len(data.dataset.digest)) == ("iris", 16)
    assert json.loads(data.dataset.profile) == {"sites": 3, "partition": "iid", "rows": 150, "columns": 4}
    names = list(run.data.metrics)
    assert [name.split("/")[0] for name in names] == sorted(
        (name.split("/")[0] for name in names), key=["final", "cost", "round"].index
    )
    assert {"final/inertia_scaled", "round/shift_scaled", "round/pooled_inertia"} <= set(names)
    assert "final/inertia" not in names


def test_a_failed_run_says_why_in_its_description_until_it_is_tried_again(runs, store, tmp_path):
    with pytest.raises(JobFailed):
        flareclust.run("feca", data="iris", k=100, n_sites=3, track=True)
    (run,) = runs()
    assert run.data.tags[NOTE_TAG].startswith("**Failed:** round 0: 0 of 3 sites took part")
    tracker = Tracker(store, tmp_path.name)
    tracker.start(run.data.tags["flareclust.run_key"], "again", {})
    assert NOTE_TAG not in runs()[0].data.tags


def test_the_pages_of_an_experiment_are_its_runs_and_the_newest_of_them(store, tmp_path):
    tracker = Tracker(store, tmp_path.name)
    number = tracker._experiment_id
    assert list(pages_of(store, tmp_path.name, 5001)) == [f"runs of {tmp_path.name}"]
    tracker.start("a", "first", {})
    newest = tracker.start("b", "second", {})
    assert pages_of(store, tmp_path.name, 5001)["newest run"].startswith(
        f"http://127.0.0.1:5001/#/experiments/{number}/runs/{newest}?"
    )
    assert pages_of(store, "no such experiment", 5001) == {"experiments": "http://127.0.0.1:5001/#/experiments"}


def test_an_experiment_without_a_kind_gets_that_of_training_runs(store, client, tmp_path):
    number = client.create_experiment(tmp_path.name)
    Tracker(store, tmp_path.name)
    assert client.get_experiment(number).tags[KIND_TAG] == "custom_model_development"


def test_the_digest_is_of_rows_and_their_places(tmp_path):
    from flareclust.experiment.prepare import prepare

    def digest(**settings):
        experiment = make_experiment(algorithm="feca", k=3, engine="inprocess", **settings)
        return data_input(experiment, prepare(experiment)).dataset.digest

    assert digest(data="iris") == digest(data="iris")
    assert len({digest(data="iris"), digest(data="iris", seed=1), digest(data="wine")}) == 3
    for site in ("a", "b"):
        np.savetxt(tmp_path / f"{site}.csv", np.eye(5), delimiter=",")
    before = digest(data=str(tmp_path), partition="none")
    np.savetxt(tmp_path / "b.csv", np.eye(5) * 2, delimiter=",")
    assert digest(data=str(tmp_path), partition="none") not in (before, _NOT_HERE)


def test_the_origin_counts_and_hashes_the_rows_of_devices():
    from flareclust.experiment.prepare import _NamedSites, prepare

    def origin(seed):
        experiment = make_experiment(algorithm="lloyd", data="iris", n_sites=3, seed=seed, engine="devices")
        return data_input(experiment, prepare(experiment)).dataset

    assert json.loads(origin(0).profile) == {"sites": 3, "partition": "iid", "rows": 150, "columns": 4}
    assert origin(0).digest == origin(0).digest != origin(1).digest
    own = make_experiment(algorithm="lloyd", data=OWN_ROWS, partition="none", k=2, engine="devices")
    sites = {"a": np.eye(5), "b": np.ones((2, 5))}
    found = data_input(own, prepare(own, _NamedSites(sites))).dataset
    profile = json.loads(found.profile)
    assert profile | {"sites": 2, "rows": 7, "columns": 5} == profile
    moved = {"a": np.vstack([np.eye(5), np.ones((1, 5))]), "b": np.ones((1, 5))}
    assert len({found.digest, data_input(own, prepare(own, _NamedSites(moved))).dataset.digest, _NOT_HERE}) == 3


def test_names_tell_scaled_lengths_from_those_in_the_units_of_the_data():
    values = {"inertia": 1.0, "davies_bouldin": 2.0, "shift": 3.0, "pooled_inertia": 4.0}
    assert in_units(values, {}) == values
    scaled = {"mean": np.zeros(1), "deviation": np.ones(1)}
    assert list(in_units(values, scaled)) == ["inertia_scaled", "davies_bouldin", "shift_scaled", "pooled_inertia"]


def test_options_that_were_set_are_parameters():
    experiment = make_experiment(algorithm="kfed", data="iris", k=3, engine="inprocess", min_sites=2, task_timeout=5)
    params = run_logging._run_params(experiment)
    assert (params["min_sites"], params["task_timeout"]) == (2, 5)
    assert "n_sites" not in run_logging._run_params(make_experiment(algorithm="kfed", data="x", k=3, partition="none"))


def test_texts_of_others_are_no_markup_in_the_description():
    result = flareclust.run("kfed", data="iris", n_sites=3)
    result.warnings.append("site <b>x</b> sends [a](javascript:1) `c`\n\n# head")
    note = describe(result, make_experiment(algorithm="kfed", data="a/<i>.csv", k=3))
    assert "<" not in note.replace("\\<", "")
    assert "\\[a\\](javascript:1) \\`c\\` \\# head" in note
    assert note.index("Warning") < note.index("| measure |")
    assert escape("a | b\nc") == "a \\| b c"


def test_a_program_of_others_is_named_without_its_arguments(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/home/me/study.py", "--password", "x"])
    assert source_tags()["mlflow.source.name"] == "study.py"
