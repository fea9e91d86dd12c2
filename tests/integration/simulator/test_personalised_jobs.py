"""Personalised models in NVFlare's simulator are those of one process, bit for bit."""

import numpy as np
import pytest

import flareclust
from flareclust._foundation.typing import FloatArray, IntArray
from tests.unit.personal.planted import planted

pytestmark = pytest.mark.slow

Pairs = dict[str, tuple[FloatArray, IntArray]]


def wards() -> Pairs:
    """Four devices, two and two of which have rows of the same cluster."""
    split, _ = planted(devices=4, rows=40)
    sides = (split.train, split.test)
    return {
        name: (np.concatenate([side[name].X for side in sides]), np.concatenate([side[name].y for side in sides]))
        for name in split.names
    }


@pytest.mark.parametrize(
    ("data", "settings", "clusters"),
    [
        ("iris", {"k": 1, "devices": 2}, [2]),
        (wards(), {"k": 2}, [2, 2]),
        (wards(), {"k": 2, "method": "ifca", "rounds": 5}, [2, 2]),
        (wards(), {"method": "global", "select": "pow-d", "per_round": 1}, [4]),
    ],
    ids=["one", "two clusters", "ifca", "pow-d"],
)
def test_jobs_in_the_simulator_train_the_models_of_one_process(data, settings, clusters, tmp_path):
    settings = {"model": "linear", "rounds": 2, "lr": 0.05, **settings}
    jobs = flareclust.personalise(data, **settings, engine="simulator", out=tmp_path / "out")
    here = flareclust.personalise(data, **settings)
    for name, value in here.models.items():
        np.testing.assert_array_equal(jobs.models[name], value)
    tested = ~np.isnan(jobs.accuracy)
    assert tested.all() or settings.get("select")
    np.testing.assert_array_equal(jobs.accuracy[tested], here.accuracy[tested])
    np.testing.assert_array_equal(jobs.accuracy[-1], here.accuracy[-1])
    assert jobs.selected == here.selected
    assert jobs.models_of == here.models_of
    used = [next(iter(models)) for models in jobs.models_of.values()]
    assert np.bincount(used).tolist() == clusters
    assert jobs.warnings == []
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert {f"model-{j}.npz" for j in range(len(clusters))} <= {path.name for path in (tmp_path / "out").iterdir()}
