"""The block of a federation: what it holds, how flows find it, and that Prefect knows it without being told."""

import json
from importlib.metadata import entry_points

import pytest

from flareclust._foundation.errors import UserError
from flareclust.experiment.config import Experiment
from flareclust.flows import experiment as experiment_flows
from flareclust.flows import nightly
from flareclust.flows.federation import FlareFederation, with_kit
from tests.patience import PATIENCE


@pytest.fixture(scope="module")
def prefect_server():
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=int(PATIENCE)):
        yield


@pytest.fixture
def clinics(prefect_server, tmp_path):
    kit = tmp_path / "lead@hub.org"
    (kit / "startup").mkdir(parents=True)
    admin = {"admin": {"host": "hub.org", "port": 8003, "username": "lead@hub.org", "project_name": "clinics"}}
    (kit / "startup" / "fed_admin.json").write_text(json.dumps(admin))
    block = FlareFederation(kit=str(kit), min_sites=2, expect_sites=["north", "south"], task_timeout=60)
    block.save("clinics", overwrite=True)
    return block


def test_prefect_finds_it_among_its_collections():
    (found,) = entry_points(group="prefect.collections", name="flareclust")
    assert found.load().FlareFederation is FlareFederation


def test_it_is_loaded_as_it_was_saved(clinics):
    loaded = FlareFederation.load("clinics")
    assert loaded == clinics
    assert loaded.server == "hub.org:8003"


def test_a_kit_that_is_none_is_refused_when_it_is_used(prefect_server, tmp_path):
    with pytest.raises(UserError, match="kit"):
        _ = FlareFederation(kit=str(tmp_path)).server


@pytest.mark.parametrize("wrong", [{"kit": ""}, {"kit": "k", "min_sites": 0}, {"kit": "k", "expect_sites": []}])
def test_wrong_fields_are_refused(wrong):
    with pytest.raises(ValueError, match=next(reversed(wrong))):
        FlareFederation(**wrong)


def test_an_experiment_has_the_settings_of_the_block_but_for_its_own(clinics):
    asked = {"algorithm": "feca", "k": 3, "engine": "production", "kit": "flare-federation/clinics", "min_sites": 3}
    found = with_kit(Experiment(**asked))
    assert (found.kit, found.min_sites, found.expect_sites) == (clinics.kit, 3, ("north", "south"))
    assert (found.task_timeout, found.k, found.engine) == (60, 3, "production")
    assert clinics.experiment("feca", k=3, min_sites=3) == found


def test_other_kits_stay_as_they_are():
    experiment = Experiment(algorithm="feca", k=3, engine="production", kit="kits/lead@hub.org")
    assert with_kit(experiment) is experiment


def test_a_block_that_is_not_there_is_named(prefect_server):
    experiment = Experiment(algorithm="feca", k=3, engine="production", kit="flare-federation/nobody")
    with pytest.raises(UserError, match=r"no block flare-federation/nobody; make it .*save\('nobody'\)"):
        with_kit(experiment)


def test_flows_submit_with_its_kit(clinics, monkeypatch):
    submitted = []

    def run_logged(experiment, out, *alias):
        submitted.append((experiment, out, alias))
        raise UserError("not submitted")

    monkeypatch.setattr(experiment_flows, "run_logged", run_logged)
    monkeypatch.setattr(nightly, "run_logged", run_logged)
    asked = {"algorithm": "feca", "k": 3, "engine": "production", "kit": "flare-federation/clinics"}
    with pytest.raises(UserError, match="not submitted"):
        experiment_flows.experiment_flow(Experiment(**asked), "there")
    with pytest.raises(UserError, match="not submitted"):
        nightly.nightly_flow(Experiment(**asked, register_as="clinics"))
    with pytest.raises(UserError, match="not submitted"):
        experiment_flows.experiment_flow(clinics.experiment("feca", k=3), "there")
    assert [(experiment.kit, experiment.task_timeout) for experiment, _, _ in submitted] == [(clinics.kit, 60)] * 3
    assert [(out, len(alias)) for _, out, alias in submitted] == [("there", 0), (None, 1), ("there", 0)]
