"""Hosts with two versions of flareclust whose messages are the same: jobs go on between them, also while one host is upgraded."""

import numpy as np
import pytest
from harness import LEAD, SERVER
from jobs import NIGHT, Job, disturbed
from versions import renumbered

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import read
from flareclust.protocol.registry import get

pytestmark = pytest.mark.nightly


@pytest.fixture
def next_version(federation, tmp_path):
    """The environment of hosts with the next version; after the test all have this one again."""
    yield {"PYTHONPATH": str(renumbered(tmp_path / "next", "0.99.0"))}
    federation.restart(SERVER, *federation.sites)


def test_versions_with_the_same_messages_find_the_same_bits(federation, files, next_version, record):
    """Two sites and then the server are upgraded, on one day after the other."""
    here, seconds = {}, 0.0
    for hosts in (("north", "south"), (SERVER,)):
        federation.restart(*hosts, env=next_version)
        federation.wait_connected()
        for name, secure in (("lloyd", False), ("lloyd", True), ("portfolio", False)):
            asked = JobOptions(k=5, seed=3, min_sites=3, secure_sums=secure)
            job = Job(federation, get(name), asked)
            outcome = job.outcome()
            seconds = max(seconds, job.ended - job.started)
            assert not outcome.refused
            if (name, secure) not in here:
                here[name, secure] = run_inprocess(get(name), {}, files, asked).centroids
            np.testing.assert_array_equal(outcome.centroids, here[name, secure])
    record(
        "mixed versions",
        "two of three sites, and then the server, have another version with the same messages",
        "jobs run, plain and with secure sums, with the same centroids bit for bit",
        "nothing",
        seconds,
    )


def test_a_server_is_upgraded_in_the_middle_of_a_night(federation, files, next_version, tmp_path, record):
    """The flow submits the job that the server lost once more, and the night's result is that of any other."""
    words = ["-c", NIGHT, str(federation.kit(LEAD)), str(tmp_path / "night"), "25", "3"]
    seconds = disturbed(
        federation,
        words,
        tmp_path,
        f"sqlite:///{tmp_path}/mlflow.db",
        disturb=lambda: federation.restart(SERVER, env=next_version),
    )
    here = run_inprocess(get("fkm"), {"rounds": 25, "tol": 0.0}, files, JobOptions(k=5, seed=3, min_sites=3))
    np.testing.assert_array_equal(read(tmp_path / "night")[0].centroids, here.centroids)
    record(
        "upgrade in a night",
        "the server is stopped in the middle of a nightly flow's job and started with the next version, whose messages are the same",
        "the flow submits the job once more; the result is the same, bit for bit",
        "nothing: the night took longer",
        seconds,
    )
