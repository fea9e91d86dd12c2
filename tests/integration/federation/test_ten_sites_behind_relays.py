"""Ten sites behind two relays: results are those of one process, also when a relay dies (docs/relays.md, What was measured)."""

from collections.abc import Iterator

import numpy as np
import processes
import pytest
from harness import Federation
from jobs import Job
from twins import lost_in, twin

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.testing import iid_sites

pytestmark = pytest.mark.nightly

NORTH, SOUTH = (tuple(f"{side}{i}" for i in range(1, 6)) for side in ("north", "south"))
RELAYS = {"relay-north": NORTH, "relay-south": SOUTH}
SITES = (*NORTH, *SOUTH)
PARAMS = {"rounds": 60, "tol": 0.0}


@pytest.fixture(scope="module")
def relayed() -> Iterator[Federation]:
    with Federation(SITES, relays=RELAYS).running() as federation:
        for site, rows in zip(SITES, iid_sites(m=len(SITES), k=5)[0].values(), strict=True):
            np.save(federation.kit(site) / "rows.npy", rows)
            federation.configure(site, path=str(federation.kit(site) / "rows.npy"))
        yield federation


@pytest.fixture
def files(relayed):
    return {site: relayed.kit(site) / "rows.npy" for site in SITES}


def options(min_sites: int = len(SITES), task_timeout: int = 600) -> JobOptions:
    return JobOptions(k=5, seed=3, min_sites=min_sites, task_timeout=task_timeout)


def assert_same(found: Outcome, expected: Outcome) -> None:
    assert set(found.arrays) == set(expected.arrays)
    for name, value in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value, err_msg=name)


@pytest.mark.parametrize("name", ["kfed", "lloyd"])
def test_a_job_equals_one_process_bit_for_bit(relayed, files, name):
    found = Job(relayed, get(name), options()).outcome()
    assert found.sites == sorted(SITES)
    assert_same(found, run_inprocess(get(name), {}, files, options()))


def test_a_killed_relay_comes_back_and_the_job_goes_on_with_all_sites(relayed, files):
    """After NVFlare's communication_timeout of 300 s, where a message was in the relay."""
    job = Job(relayed, get("fkm"), options(), PARAMS)
    job.wait_round(2)
    processes.kill(processes.without_daemon(relayed.kit("relay-south")))
    found = job.outcome()
    assert found.refused == {}
    assert_same(found, run_inprocess(get("fkm"), PARAMS, files, options()))


def test_a_job_goes_on_without_the_sites_of_a_relay_that_stays_down(relayed, files):
    """And they take part in the next one, once it is up again."""
    job = Job(relayed, get("fkm"), options(5, task_timeout=60), PARAMS)
    job.wait_round(2)
    relayed.stop("relay-south")
    found = job.outcome()
    assert set(found.refused) == set(SOUTH)
    assert_same(found, twin(get("fkm"), PARAMS, files, options(5), {site: lost_in(found, site) for site in SOUTH}))

    relayed.start("relay-south")
    relayed.wait_connected()
    assert Job(relayed, get("lloyd"), options()).outcome().sites == sorted(SITES)
