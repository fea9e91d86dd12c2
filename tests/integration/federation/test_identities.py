"""A site renews its own identity for secure sums, with an overlap, while jobs go on."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import SITES
from harness import Federation
from jobs import Job
from machines import flareclust, wait_idle

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.own_identity import IDENTITY, fingerprint, make_identity, read_identity
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import remove_policy, write_policy

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

RENEWING, OTHERS = SITES[-1], SITES[:-1]
OPTIONS = JobOptions(k=5, seed=3, min_sites=3, secure_sums=True, deadline=600)


def prints_of(federation: Federation) -> list[str]:
    """Return the fingerprints of the site that renews its identity."""
    return [fingerprint(key.public_key()) for key in read_identity(federation.kit(RENEWING) / "local")]


@pytest.fixture
def pinned(federation: Federation) -> Iterator[Policy]:
    """The policy of the three sites, by which each adds up with the pinned identities of the others only."""
    local = {site: federation.kit(site) / "local" for site in SITES}
    pins = {site: tuple(fingerprint(key.public_key()) for key in make_identity(own)) for site, own in local.items()}
    policy = Policy(secure_sums=True, secure_min_sites=3, secure_sites=SITES, secure_identities=pins)
    for own in local.values():
        write_policy(own, policy)
    yield policy
    wait_idle(federation)
    for own in local.values():
        remove_policy(own)
        (own / IDENTITY).unlink()


def test_an_identity_is_renewed_with_an_overlap_while_jobs_with_secure_sums_go_on(
    federation, files, pinned, tmp_path, record
):
    """No host is started anew: each command counts from the next job on."""
    expected = run_inprocess(get("lloyd"), {}, files, OPTIONS, policy=pinned)

    def check() -> None:
        found = Job(federation, get("lloyd"), OPTIONS).outcome()
        wait_idle(federation)
        assert (found.refused, found.metrics) == ({}, expected.metrics)
        for name, array in expected.arrays.items():
            np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)

    def identity(*words: str) -> None:
        flareclust(tmp_path, "site", "identity", federation.kit(RENEWING), *words)

    def pin(site: str, *fingerprints: str) -> None:
        pins = ",".join(f"{RENEWING}={one}" for one in fingerprints)
        flareclust(tmp_path, "site", "policy", federation.kit(site), "--secure-identities", pins)

    check()
    began = time.monotonic()
    identity("--renew")
    old, new = prints_of(federation)
    check()
    for site in OTHERS:
        pin(site, old, new)
        check()
    identity("--retire")
    assert prints_of(federation) == [new]
    check()
    for site in OTHERS:
        pin(site, new)
    check()
    seconds = time.monotonic() - began

    pin(OTHERS[0], old)  # as where the renewal was missed
    with pytest.raises(JobFailed) as caught:
        Job(federation, get("lloyd"), OPTIONS).outcome()
    wait_idle(federation)
    assert f"{OTHERS[0]} was sent a key for secure sums of {RENEWING!r} that no identity has signed" in str(
        caught.value
    )
    pin(OTHERS[0], new)
    check()
    record(
        "renewed identity",
        "one of three sites renews its [identity](secure-sums.md#an-identity-of-the-sites-own), with an overlap in which it signs with two keys and the others pin both; a job with secure sums before it and after each step",
        "no host is started anew; each job has all sites, and the same result, bit for bit. Where one of the others pins the old key alone when that is gone, the job ends; the seconds run over the renewal with its jobs",
        str(caught.value),
        seconds,
    )
