"""Personalised models in NVFlare's simulator are those of one process, bit for bit."""

import numpy as np
import pytest

import flareclust


@pytest.mark.slow
def test_jobs_in_the_simulator_train_the_models_of_one_process(tmp_path):
    settings = {"k": 1, "devices": 2, "model": "linear", "rounds": 2, "lr": 0.05}
    jobs = flareclust.personalise("iris", **settings, engine="simulator", out=tmp_path / "out")
    here = flareclust.personalise("iris", **settings)
    for name, value in here.models.items():
        np.testing.assert_array_equal(jobs.models[name], value)
    np.testing.assert_array_equal(jobs.accuracy, here.accuracy)
    assert jobs.models_of == here.models_of
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
