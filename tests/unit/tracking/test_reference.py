"""Results of registered models, and runs that keep the numbers of such a result's clusters."""

from pathlib import Path

import numpy as np
import pytest

import flareclust
from flareclust._foundation.errors import UserError
from flareclust.experiment.config import Experiment
from flareclust.tracking import load as tracked_results

SETTINGS = {"data": "iris", "k": 3, "n_sites": 3, "engine": "inprocess"}


@pytest.fixture
def here(store, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def registered(here, client, request):
    """A tracked run whose model has the alias, and the model's name."""
    from flareclust.tracking.runs import Tracker

    name = request.node.name[:40].replace("[", "-")
    result = flareclust.run("lloyd", "iris", 3, n_sites=3, track=True)
    client.set_registered_model_alias(name, "champion", str(Tracker().register(result.run_id, name)))
    return result, name


def test_a_result_of_a_registered_model_is_loaded_by_alias_and_by_version(registered):
    result, name = registered
    for source in (f"models:/{name}@champion", f"models:/{name}/1"):
        found = flareclust.load_result(source)
        assert found.run_id == result.run_id
        np.testing.assert_array_equal(found.centroids, result.centroids)
        np.testing.assert_array_equal(found.cluster_rows, result.cluster_rows)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("models:/nobody@champion", "MLflow has no version of the model 'nobody' with the alias 'champion'"),
        ("models:/nobody/3", "MLflow has no version 3 of the model 'nobody'"),
        ("models:/nobody", "expected models:/<name>@<alias> or models:/<name>/<version>, got 'models:/nobody'"),
        ("models:/nobody/latest", "expected models:/<name>@<alias> or models:/<name>/<version>"),
        ("models:/@champion", "expected models:/<name>@<alias> or models:/<name>/<version>"),
    ],
)
def test_a_model_that_is_not_there_has_one_clear_message(here, source, said):
    with pytest.raises(UserError) as caught:
        flareclust.load_result(source)
    assert said in str(caught.value)


def test_a_tracked_run_keeps_the_numbers_and_logs_what_became_of_the_clusters(registered, client):
    result, name = registered
    found = flareclust.run("feca", "iris", 3, n_sites=3, seed=4, track=True, match_to=f"models:/{name}@champion")
    np.testing.assert_allclose(found.centroids, result.centroids, atol=0.5)
    run = client.get_run(found.run_id)
    assert run.data.params["match_to"] == f"models:/{name}@champion"
    assert run.data.metrics["final/drift_centroids"] == found.metrics["drift_centroids"]
    assert run.data.metrics["final/drift_shares"] == found.metrics["drift_shares"]
    assert "clusters are numbered as in models:/" in run.data.tags["mlflow.note.content"]
    again = flareclust.load_result(f"runs:/{found.run_id}")
    np.testing.assert_array_equal(again.centroids, found.centroids)
    assert again.continuity == found.continuity


def test_the_first_night_has_no_champion(here):
    assert (
        tracked_results.champion_of(Experiment(**SETTINGS, algorithm="feca", register_as="nobody_yet"), "champion")
        is None
    )


def test_a_champion_whose_run_is_gone_is_a_warning_and_no_failure(registered, client):
    result, name = registered
    asked = Experiment(**SETTINGS, algorithm="feca", register_as=name)
    assert tracked_results.champion_of(asked, "champion").name == f"version 1 of {name}"
    client.delete_run(result.run_id)
    for file in ("result.npz", "result.json"):
        artifacts = client.get_run(result.run_id).info.artifact_uri.removeprefix("file://")
        (Path(artifacts) / file).unlink()
    reference = tracked_results.champion_of(asked, "champion")
    new = tracked_results.with_numbers_of(reference, result)
    assert new.matched_to is None
    assert f"the clusters cannot be matched to those of version 1 of {name}: " in new.warnings[-1]
    with pytest.raises(UserError, match=r"match_to \(--match-to\)"):
        tracked_results.reference_of(f"models:/{name}/1", asked.tracking_uri)
