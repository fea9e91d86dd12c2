"""A policy in NVFlare's simulator: the filters of `local/privacy.json` are in force there, too, though it has no scopes."""

import numpy as np
import pytest

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.engines.simulator import run_simulator
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get


@pytest.mark.slow
def test_a_policy_in_the_simulator_does_what_it_does_in_one_process(tmp_path, sites, rng):
    """The executor rounds and leaves out; that the assessment may not leave is found by the filters alone."""
    sites = sites | {"site-5": rng.normal(size=(8, 3)), "site-6": np.concatenate([sites["site-2"], 5e3 + np.eye(3)])}
    policy = Policy(round_counts=7, arrays=("centroids", "counts", "radii", "sse", "rows", "cluster"))
    params, options = {"polish": 1, "min_count": 1}, JobOptions(k=5)
    there = run_simulator(get("portfolio"), params, sites, options, tmp_path, policy=policy)
    here = run_inprocess(get("portfolio"), params, sites, options, policy=policy)
    np.testing.assert_array_equal(there.centroids, here.centroids)
    assert np.abs(there.centroids).max() < 1e3
    assert there.refused == here.refused
    assert "fewer rows" in there.refused["site-5"]
    assert "does not let out scatter, silhouette (its policy: arrays)" in there.refused["site-1"]
