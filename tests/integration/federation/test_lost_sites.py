"""Sites that are lost while a job runs: the quorum goes on, with the result that one process finds without them."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import processes
import pytest
from conftest import LATE, SITES, rows_of
from harness import SERVER, Federation, started, wait_until
from jobs import Job
from network import Loopback
from twins import lost_in, twin

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get

pytestmark = pytest.mark.slow

ROUNDS = 40

#: Seconds without a network that nobody is to notice.
SHORT = 8
PARAMS = {"rounds": ROUNDS, "tol": 0.0}


def start(federation: Federation, min_sites: int) -> Job:
    """Start a job of many rounds."""
    return Job(federation, get("fkm"), options(min_sites), PARAMS)


def options(min_sites: int) -> JobOptions:
    return JobOptions(k=5, seed=3, min_sites=min_sites, task_timeout=600, deadline=600)


def check_went_on_without(lost: Sequence[str], outcome: Outcome, files: Mapping[str, Path]) -> None:
    """Check the result against the federation in one process whose sites fall silent in the same rounds."""
    rounds = {site: lost_in(outcome, site) for site in lost}
    assert all(2 < at < ROUNDS for at in rounds.values()), f"not lost in the middle of the job: {rounds}"
    same = twin(get("fkm"), PARAMS, files, options(2), rounds)
    for name, value in same.arrays.items():
        np.testing.assert_array_equal(outcome.arrays[name], value, err_msg=name)
    assert set(outcome.refused) == set(lost)


def test_a_killed_process_costs_its_site_and_only_a_job_that_needs_all(federation, files, record):
    """Three jobs run side by side: with a quorum of two, with one of all three, and one that is just starting."""
    jobs = {quorum: start(federation, quorum) for quorum in (2, 3)}
    for job in jobs.values():
        job.wait_round(2)
    options = JobOptions(k=5, seed=3, min_sites=2, task_timeout=600)
    starting = Job(federation, get("feca"), options)
    wait_until(lambda: len(processes.job_of_kit(federation.kit("west"))) == 3, "the third job starts at the site")
    at = time.monotonic()
    federation.kill_process("west")

    check_went_on_without(["west"], jobs[2].outcome(), files)
    notice = jobs[2].notice("west")
    done = "SIGKILL of the job's process at one of three sites, as when memory runs out; quorum"
    record(
        "killed process",
        f"{done} 2",
        "the round waits until NVFlare misses the process, then the others go on; the result is that without the site",
        notice.text,
        notice.at - at,
    )
    with pytest.raises(JobFailed, match="west") as caught:
        jobs[3].outcome()
    record("killed process, all needed", f"{done} 3", "the job fails", str(caught.value), jobs[3].ended - at)

    others = {site: file for site, file in files.items() if site != "west"}
    np.testing.assert_array_equal(
        starting.outcome().centroids, run_inprocess(get("feca"), {}, others, options).centroids
    )
    notice = starting.notice("west")
    assert "was lost" in notice.text
    record(
        "killed process, at the start",
        "the same before the process has reported for the first time; quorum 2",
        "NVFlare detects the loss only of processes that have reported, so the site's launcher keeps this one in its list; the "
        "round waits as long, then the others go on",
        notice.text,
        notice.at - at,
    )


@pytest.mark.nightly
def test_a_killed_host_and_a_cut_network_cost_their_sites_and_not_the_job(federation, files, record):
    """Of four sites one loses its power and another its network, at the same time."""
    federation.start(LATE)
    federation.wait_connected([*SITES, LATE])
    job = start(federation, 2)
    job.wait_round(2)
    cut = not isinstance(federation.network, Loopback)
    at = time.monotonic()
    federation.kill_host("west")
    if cut:
        federation.cut(LATE)
    outcome = job.outcome()
    check_went_on_without(["west", LATE] if cut else ["west"], outcome, {**files, LATE: rows_of(federation, LATE)})
    notice = job.notice("west")
    record(
        "killed host",
        f"{'link down, ' if cut else ''}daemon, parent and job killed at once at one of four sites; quorum 2",
        "the round waits until the server counts the site as gone (`heart_beat_timeout`, 60 s), then the others go on",
        notice.text,
        notice.at - at,
    )
    if cut:
        notice = job.notice(LATE)
        record(
            "cut network",
            "link down at one of four sites; quorum 2",
            "as for a killed host; when the link is up again, the site connects by itself",
            notice.text,
            notice.at - at,
        )
        federation.mend(LATE)
        federation.wait_connected(["north", "south", LATE])


def test_a_site_that_is_started_again_at_once_is_not_waited_for(federation, files, record):
    """It is back before the server has missed it, with another token, and knows nothing of the job."""
    job = start(federation, 2)
    job.wait_round(2)
    at = time.monotonic()
    federation.kill_host("west")
    federation.start("west")
    check_went_on_without(["west"], job.outcome(), files)
    notice = job.notice("west")
    assert notice.at - at < options(2).task_timeout / 2
    record(
        "restarted site",
        "daemon, parent and job killed at once at one of three sites, and started again at once; quorum 2",
        "the server tells the job when the site connects, and the others go on; the site takes part in the next job",
        notice.text,
        notice.at - at,
    )
    federation.wait_connected()
    here = run_inprocess(get("feca"), {}, files, options(3))
    np.testing.assert_array_equal(Job(federation, get("feca"), options(3)).outcome().centroids, here.centroids)


def test_a_kit_that_runs_twice_is_named_in_the_servers_log(federation, record):
    """A copy of a kit takes the place of its site, whose own process goes on and looks healthy."""
    copy = federation.folder / "copy" / "west"
    shutil.copytree(federation.kit("west"), copy, ignore=shutil.ignore_patterns("*pid.fl"))
    at = time.monotonic()
    with started(federation, "west", copy):
        wait_until(lambda: line_of(federation, "from two places"), "the server names the kit")
    said = line_of(federation, "from two places")
    record(
        "kit that runs twice",
        "a copy of a site's kit is started while the site is connected",
        "the server's log names the site as soon as the one that lost its place sends a heartbeat",
        said,
        time.monotonic() - at,
    )
    assert said == "west connects from two places; stop the process of its kit at one of them, then run the job again"


def line_of(federation: Federation, words: str) -> str:
    """Return the first line of the server's log with these words, without what stands before the message."""
    text = (federation.kit(SERVER) / "log.txt").read_text(errors="replace")
    return next((line.rpartition(" - ")[2] for line in text.splitlines() if words in line), "")


@pytest.mark.nightly
def test_a_short_interruption_costs_nothing(federation, files, record):
    if isinstance(federation.network, Loopback):
        pytest.skip("a link can be cut in network namespaces only, which this machine does not permit")
    job = start(federation, 3)
    job.wait_round(2)
    at = time.monotonic()
    federation.cut("west")
    time.sleep(SHORT)
    federation.mend("west")
    outcome = job.outcome()
    here = run_inprocess(get("fkm"), PARAMS, files, options(3))
    np.testing.assert_array_equal(outcome.centroids, here.centroids)
    assert outcome.refused == {}
    assert outcome.metrics == here.metrics
    record(
        "short interruption",
        f"link down for {SHORT} seconds at one of three sites; quorum 3",
        "the round waits, and the job goes on with all sites",
        "nothing: the job took longer",
        next(when for when, _ in job.rounds if when > at + SHORT) - at,
    )
