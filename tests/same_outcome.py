"""The comparison of an engine with the in-process one, and what both run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import Algorithm, algorithms
from flareclust.testing import iid_sites
from flareclust.testing.promised import overlapping_sites

OPTIONS = JobOptions(k=5, seed=3)
FEDERATED = [algorithm for algorithm in algorithms().values() if algorithm.federated]
#: Their noise follows from no seed, so no two runs are equal.
PRIVATE = [algorithm for algorithm in FEDERATED if algorithm.executor_class().private]
REPEATABLE = [algorithm for algorithm in FEDERATED if algorithm not in PRIVATE]

#: Settings with which an algorithm goes through steps that it has only then.
MORE_STEPS: dict[str, dict[str, Any]] = {"portfolio": {"polish": 2}, "pooled": {"k_min": 2}}


def case_of(algorithm: Algorithm) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return rows by site, and settings, for a run with `OPTIONS`."""
    if "embeds" in algorithm.promises:
        return _images(), {"rounds": 1, "epochs": 2}
    sites = overlapping_sites()[0] if algorithm.partial else iid_sites(m=3, k=5)[0]
    return sites, {"scale": "standard"} if algorithm.partial else MORE_STEPS.get(algorithm.name, {})


def _images() -> dict[str, Any]:
    """Return three sites with images (60, 64) of five patterns."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(5, 64))
    return {f"site-{i}": patterns[rng.integers(0, 5, 60)] + 0.3 * rng.normal(size=(60, 64)) for i in (1, 2, 3)}


def check_same(algorithm: Algorithm, there: Outcome) -> None:
    """Fail unless an engine's outcome is that of the in-process engine, bit for bit."""
    sites, params = case_of(algorithm)
    here = run_inprocess(algorithm, params, sites, OPTIONS)
    assert set(there.arrays) == set(here.arrays)
    for name, value in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[name], value, err_msg=name)
        assert there.arrays[name].dtype == value.dtype
    for site in sites:
        np.testing.assert_array_equal(there.labels[site], here.labels[site])
    assert there.metrics == here.metrics
    assert (there.bytes_up, there.bytes_down) == (here.bytes_up, here.bytes_down)
    assert [record["step"] for record in there.rounds] == [record["step"] for record in here.rounds]
