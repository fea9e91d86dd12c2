"""What a real server says of its sites and jobs."""

import time
from dataclasses import replace
from importlib.metadata import version

import pytest
from conftest import SITES
from harness import LEAD, SERVER
from jobs import Job
from machines import flareclust

from flareclust._foundation.certificates import first_end
from flareclust._foundation.version import __version__
from flareclust.engines.options import JobOptions
from flareclust.platform.status import federation_rules, federation_status
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import policy_of, remove_policy, write_policy

pytestmark = pytest.mark.slow

AWAY = SITES[-1]


def test_a_site_that_is_stopped_is_missing_since_its_last_job(federation):
    submitted = time.time()
    job = Job(federation, get("kfed"), JobOptions(k=5, seed=3)).outcome().job
    found = federation_status(federation.kit(LEAD))
    assert [site.name for site in found.sites] == sorted(SITES)
    assert found.missing == []
    assert found.nvflare == version("nvflare")
    assert all(site.connected and site.nvflare == found.nvflare for site in found.sites)
    assert all(site.flareclust == __version__ for site in found.sites)
    first_ends = {site.name: first_end(federation.kit(site.name))[0].timestamp() for site in found.sites}
    assert {site.name: site.certificate_end for site in found.sites} == first_ends
    assert found.certificate_ends[LEAD] == first_end(federation.kit(LEAD))[0].timestamp()
    assert found.certificate_ends["server"] >= first_end(federation.kit(SERVER))[0].timestamp()
    assert all(site.last_seen > submitted - 60 for site in found.sites)
    assert (found.jobs[0].id, found.jobs[0].name, found.jobs[0].user) == (job, "kfed", LEAD)
    assert submitted - 1 < found.jobs[0].submitted < time.time()
    assert found.jobs[0].status.startswith(("RUNNING", "FINISHED"))

    federation.leave(AWAY)
    (missing,) = [site for site in federation_status(federation.kit(LEAD)).sites if not site.connected]
    assert missing.name == AWAY
    assert missing.expected
    assert missing.last_seen == found.jobs[0].submitted


def test_the_command_ends_with_1_from_when_the_server_misses_a_site(federation, tmp_path, record):
    job = Job(federation, get("kfed"), JobOptions(k=5, seed=3)).outcome()
    assert job.refused == {}
    asked = "status", "--kit", federation.kit(LEAD)
    assert "missing" not in flareclust(tmp_path, *asked).stdout

    federation.kill_host(AWAY)
    began = time.monotonic()
    federation.wait_connected([site for site in SITES if site != AWAY])
    words = flareclust(tmp_path, *asked, code=1).stdout
    seconds = time.monotonic() - began
    (missing,) = [line for line in words.splitlines() if line.startswith("missing: ")]
    assert missing.startswith(f"missing: {AWAY} is not connected, and had part in one of your last 10 jobs")
    metrics = flareclust(tmp_path, *asked, "--prometheus", code=1).stdout.splitlines()
    connected = {line for line in metrics if line.startswith("flareclust_site_connected{")}
    assert connected == {f'flareclust_site_connected{{site="{site}"}} {int(site != AWAY)}' for site in SITES}
    record(
        "missing site in the status",
        "link down, daemon, parent and job killed at once at one of three sites, and [`flareclust status --kit KIT`](monitoring.md#its-state-now) given when the server has missed it (`heart_beat_timeout`, 60 s)",
        "the command ended with 0 before, and ends with 1 now, also with `--prometheus`, whose metrics have the site as expected and not connected",
        missing,
        seconds,
    )


def test_a_lead_sees_the_rules_of_the_site_that_shares_them(federation):
    kit = federation.kit(SITES[0])
    before = policy_of(kit / "local")
    write_policy(kit / "local", replace(before or Policy(), min_count=17, share_rules=True))
    try:
        rules = federation_rules(federation.kit(LEAD))
    finally:
        write_policy(kit / "local", before) if before is not None else remove_policy(kit / "local")
    assert rules[SITES[0]]["min_count"] == 17
    assert {rules[site] for site in rules if site != SITES[0]} == {None}
