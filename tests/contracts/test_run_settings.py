"""The settings of a run have one definition: every way to start one has its names and defaults."""

import inspect

import pytest

import flareclust
from flareclust.cli.main import jobs_export
from flareclust.cli.main import run as run_command
from flareclust.engines.options import JobOptions, RunSettings
from flareclust.experiment.config import Experiment
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.platform.recipe import recipe

DEFAULTS = {name: field.default for name, field in RunSettings.model_fields.items()}


@pytest.mark.parametrize("start", [flareclust.run, recipe, run_command, jobs_export], ids=lambda start: start.__name__)
def test_every_way_to_start_a_run_has_the_settings_with_their_defaults(start):
    parameters = inspect.signature(start).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


def test_what_an_experiment_shares_with_the_call_has_the_same_default():
    parameters = inspect.signature(flareclust.run).parameters
    shared = set(parameters) & set(Experiment.model_fields) - {
        "algorithm",
        "data",
        "partition",
        "n_sites",
        "engine",
        "params",
    }
    assert shared >= {"k", "seed", "criterion", "kit", "columns", "min_sites", "task_timeout", "secure_sums", "policy"}
    assert {name: parameters[name].default for name in shared} == {
        name: Experiment.model_fields[name].default for name in shared
    }


def test_what_a_sweep_shares_with_an_experiment_has_the_same_default():
    # A sweep compares many runs and describes the clusters of none, unless it is asked to.
    shared = (set(sweep_settings.Sweep.model_fields) & set(Experiment.model_fields)) - {"data", "engine", "profile"}
    assert shared == {"n_sites", "k", "table_schema", "id_column", "truth", "min_sites", "mlflow_experiment"}
    assert all(
        sweep_settings.Sweep.model_fields[name].default == Experiment.model_fields[name].default for name in shared
    )


@pytest.mark.parametrize("model", [RunSettings, JobOptions, Experiment])
def test_every_setting_has_a_line_that_says_what_it_is(model):
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
