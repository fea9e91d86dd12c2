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

#: All settings that an algorithm runs with, of those that have steps or messages with some settings only.
MORE_STEPS: dict[str, list[dict[str, Any]]] = {
    "portfolio": [{"polish": 2}],
    "pooled": [{"k_min": 2}],
    "gmm": [
        {},
        {"start": "mixtures"},
        {"start": "mixtures", "covariance": "diag", "rounds": 0},
        {"k_min": 4},
        {"covariance": "tied"},
        {"covariance": "diag"},
        {"covariance": "spherical"},
    ],
    "tree": [{}, {"shape": "density"}],
}


def cases_of(algorithm: Algorithm) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Return rows by site, and settings, for each of the runs with `OPTIONS`."""
    if "embeds" in algorithm.promises:
        return [(_images(), {"rounds": 1, "epochs": 2})]
    if algorithm.partial:
        return [(overlapping_sites()[0], {"scale": "standard"})]
    return [(iid_sites(m=3, k=5)[0], params) for params in MORE_STEPS.get(algorithm.name, [{}])]


def case_of(algorithm: Algorithm) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return rows and settings of the first of these runs."""
    return cases_of(algorithm)[0]


#: An algorithm, and which of its runs, by a name.
RUNS = {
    "-".join([algorithm.name, *(str(value) for value in params.values())]): (algorithm, i)
    for algorithm in REPEATABLE
    for i, params in enumerate(MORE_STEPS.get(algorithm.name, [{}]))
}


def _images() -> dict[str, Any]:
    """Return three sites with images (60, 64) of five patterns."""
    rng = np.random.default_rng(0)
    patterns = rng.normal(size=(5, 64))
    return {f"site-{i}": patterns[rng.integers(0, 5, 60)] + 0.3 * rng.normal(size=(60, 64)) for i in (1, 2, 3)}


def check_same(algorithm: Algorithm, there: Outcome, number: int = 0) -> None:
    """Fail unless an engine's outcome of a run is that of the in-process engine, bit for bit."""
    sites, params = cases_of(algorithm)[number]
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
