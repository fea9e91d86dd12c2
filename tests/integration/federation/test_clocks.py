"""Clocks that are wrong by a day, or that jump."""

import time

import clock
import numpy as np
import processes
import pytest
from conftest import LATE, LATER, SITES, rows_of
from harness import SERVER, wait_until
from jobs import Job
from nvflare.fuel.flare_api.api_spec import TargetType

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform.controller import LIVE, WAITING
from flareclust.platform.session import server_status
from flareclust.protocol.registry import get

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

DAY, HOURS = 24 * 3600, 2 * 3600

#: Others connect within about five seconds of their parent's start.
LONG_ENOUGH = 15


def test_a_clock_ahead_changes_nothing_and_one_behind_its_certificate_keeps_its_site_out(federation, files, record):
    """A certificate that was made a minute ago is, by a clock of yesterday, not valid yet."""
    ahead, behind = (clock.shifted(federation.folder, seconds) for seconds in (DAY, -DAY))
    if ahead is None or behind is None:
        pytest.skip("no C compiler (cc) for the library that shifts a process's clock")
    federation.start(LATE, env=ahead)
    federation.start(LATER, env=behind)
    federation.wait_connected([*SITES, LATE])
    wait_until(lambda: processes.without_daemon(federation.kit(LATER)), "the other site's parent has started")

    options = JobOptions(k=5, seed=3, min_sites=4)
    job = Job(federation, get("feca"), options)
    outcome = job.outcome()
    here = run_inprocess(get("feca"), {}, {**files, LATE: rows_of(federation, LATE)}, options)
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    assert outcome.refused == {}
    record(
        "clock a day ahead",
        "the clock of one of four sites is a day ahead",
        "nothing: the result is the same, bit for bit",
        "nothing",
        job.ended - job.started,
    )

    (parent,) = processes.without_daemon(federation.kit(LATER))
    wait_until(lambda: time.time() - parent.create_time() > LONG_ENOUGH, "the site had time to connect")
    assert federation.connected() == sorted([*SITES, LATE])
    job = Job(federation, get("feca"), JobOptions(k=5, min_sites=5))
    with pytest.raises(
        JobFailed, match="at least 5 sites are needed, and only east, north, south, west are connected"
    ) as caught:
        job.outcome()
    record(
        "clock a day behind",
        "the clock of a fifth site is a day behind, and the certificates are younger than that; quorum 5",
        "the site's own certificate is not valid yet to it, so it does not connect; the job is not submitted",
        str(caught.value).replace(federation.network.server_address, "SERVER"),
        job.ended - job.started,
    )


def waited_for(federation):
    """Return the sites that the only job waits for."""
    with federation.session() as admin:
        (running,) = server_status(admin)["jobs"]
        return admin.show_stats(running["job_id"], TargetType.SERVER)["server"][LIVE][WAITING]


def test_a_jump_of_the_servers_clock_costs_no_site(federation, files, record):
    """By the clock the exchange under way is beyond its time; and NVFlare takes all sites for gone, until their next sign of life."""
    jumping = federation.folder / "server.clock"
    clock.jump(jumping, 0)
    env = clock.shifted(federation.folder, jumping)
    if env is None:
        pytest.skip("no C compiler (cc) for the library that shifts a process's clock")
    federation.restart(SERVER, env=env)
    federation.wait_connected()
    options, params = JobOptions(k=5, seed=3, min_sites=3, task_timeout=600, deadline=600), {"rounds": 40, "tol": 0.0}
    job = Job(federation, get("fkm"), options, params)
    job.wait_round(2)
    at = time.monotonic()
    try:
        federation.pause("west")  # so that an exchange is under way
        wait_until(lambda: waited_for(federation) == ["west"], "the exchange waits for the site")
        clock.jump(jumping, HOURS)
        log = federation.kit(SERVER) / "log.txt"
        wait_until(lambda: "Remove the dead Client" in log.read_text(errors="replace"), "the server sees its new time")
        federation.resume("west")
        outcome = job.outcome()
    finally:
        federation.resume("west")
        federation.restart(SERVER)
    here = run_inprocess(get("fkm"), params, files, options)
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    assert outcome.refused == {}
    record(
        "jump of the server's clock",
        "the clock of the server jumps two hours ahead while an exchange of a job waits for one of three sites; quorum 3",
        "nothing: the job goes on with all sites, and its result is the same, bit for bit; the seconds run until its end",
        "nothing",
        job.ended - at,
    )
