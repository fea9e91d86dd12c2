"""What an experiment is: checked before anything starts, the same key for a retry only."""

import json

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import Experiment, make_experiment


def test_the_experiments_schema_is_json():
    """Prefect shows it in its pages and checks deployments' parameters with it."""
    schema = Experiment.model_json_schema()
    assert schema["required"] == ["algorithm"]
    assert schema["properties"]["engine"]["enum"] == ["inprocess", "devices", "simulator", "poc", "production"]


def test_run_keys_are_equal_for_a_retry_only():
    experiment = Experiment(algorithm="feca", seed=1)
    assert experiment.key("flow-run-1") == Experiment(seed=1, algorithm="feca").key("flow-run-1")
    assert experiment.key("flow-run-1") != experiment.key("flow-run-2")
    assert experiment.key("x") != Experiment(algorithm="feca", seed=2).key("x")


def test_an_experiment_knows_its_errors():
    with pytest.raises(UserError, match="no parameter 'n_inti' \\(did you mean 'n_init'\\?\\)"):
        make_experiment(algorithm="feca", params={"n_inti": 3})
    with pytest.raises(UserError, match="use the engine inprocess"):
        make_experiment(algorithm="central", engine="simulator")
    with pytest.raises(UserError, match="n_sites"):
        make_experiment(algorithm="feca", n_sites=0)


def test_provisioned_sites_decide_about_their_rows():
    """They say so in local/flareclust.yaml; what the experiment would add could only contradict it."""
    kit = {"engine": "production", "kit": "kits/clinics/prod_00/lead@hub.org"}
    experiment = make_experiment(algorithm="feca", k=3, **kit)
    assert (experiment.data, experiment.partition) == ("sites", "none")
    assert Experiment(**experiment.model_dump()) == experiment, "as Prefect reads it back"
    for name, value in (("data", "iris"), ("partition", "iid"), ("columns", ("age",))):
        with pytest.raises(UserError, match=f"leave out {name}"):
            make_experiment(algorithm="feca", k=3, **kit, **{name: value})
    with pytest.raises(UserError, match="needs the kit of the admin"):
        make_experiment(algorithm="feca", k=3, engine="production")
    with pytest.raises(UserError, match="use the engine inprocess"):
        make_experiment(algorithm="central", k=3, **kit)


def test_without_a_poc_the_engine_poc_says_how_to_start_one(tmp_path):
    with pytest.raises(UserError, match="flareclust poc up"):
        make_experiment(algorithm="feca", k=3, engine="poc", kit=str(tmp_path / "poc"))


@pytest.mark.parametrize("engine", ["simulator", "inprocess"])
def test_a_kit_is_not_silently_left_unused(engine):
    with pytest.raises(UserError, match="a kit is for the engine production"):
        make_experiment(algorithm="feca", k=3, engine=engine, kit="kits/clinics/prod_00/lead@hub.org")


KIT = {"algorithm": "feca", "k": 3, "engine": "production", "kit": "kits/clinics/prod_00/lead@hub.org"}


def test_expected_sites_and_the_wait_for_them_are_settings_of_a_run():
    asked = make_experiment(**KIT, expect_sites=["a", "b"], wait_for=2, wait_seconds=60)
    assert (asked.expect_sites, asked.wait_for, asked.wait_seconds) == (("a", "b"), 2, 60)
    assert Experiment(**json.loads(asked.model_dump_json())) == asked, "as Prefect reads it back"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**KIT, "wait_for": 2}, r"wait_for \(--wait-for\) needs wait_seconds \(--for\)"),
        ({**KIT, "wait_for": 0, "wait_seconds": 5}, "wait_for must be an integer of at least 1"),
        ({**KIT, "expect_sites": ("a", "")}, "expect_sites"),
        (
            {"algorithm": "feca", "engine": "simulator", "expect_sites": ("a",)},
            "leave them out with the engine simulator",
        ),
        ({"algorithm": "feca", "engine": "inprocess", "wait_seconds": 5}, "leave them out with the engine inprocess"),
    ],
)
def test_a_wait_that_cannot_be_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        make_experiment(**settings)
