"""A site's machine is restored from a backup, whose privacy ledger is older than the truth: the site spends nothing twice."""

import json
import time

import pytest
from conftest import SITES, forget_account, rows_of
from harness import Federation
from jobs import Job
from machines import burnt, flareclust, wait_idle

from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import remove_policy

pytestmark = pytest.mark.slow

NORTH = "north"
PRIVATE = ("--epsilon", 1, "--delta", 1e-5, "--bounds=-20,20", "--budget", 5)


@pytest.fixture
def private(federation, tmp_path):
    """The federation, with a privacy budget at each site, in a folder of its own; both are gone in the end."""
    for site in SITES:
        account = str(tmp_path / "accounts" / site)
        federation.configure(site, path=str(rows_of(federation, site)), account=account)
        flareclust(tmp_path, "site", "policy", federation.kit(site), *PRIVATE)
    yield federation
    wait_idle(federation)
    for site in SITES:
        forget_account(federation.kit(site) / "local")
        remove_policy(federation.kit(site) / "local")


def private_job(federation: Federation) -> Job:
    """Run a job that spends an epsilon of 1 at each site."""
    options = JobOptions(k=4, min_sites=2, task_timeout=600, deadline=600)
    job = Job(federation, get("dp-oneshot"), options, {"epsilon": 1.0})
    job.outcome()
    wait_idle(federation)
    return job


def test_a_ledger_of_a_backup_grants_nothing_until_its_operator_states_what_is_missing(private, tmp_path, record):
    kit, account, archive = private.kit(NORTH), tmp_path / "accounts" / NORTH, tmp_path / "north.tar.gz"
    own = {"XDG_STATE_HOME": str(tmp_path / "state")}  # of a machine that has nothing but the kit and its account

    def spent(*words: object) -> float:
        return float(json.loads(flareclust(tmp_path, "site", "budget", kit, *words, "--json", **own).stdout)["spent"])

    assert private_job(private).outcome().refused == {}
    flareclust(tmp_path, "backup", archive, kit, **own)
    of_one_job = spent()
    assert private_job(private).outcome().refused == {}
    of_two_jobs = spent()
    assert of_two_jobs > of_one_job == pytest.approx(1)

    private.leave(NORTH)
    with burnt(tmp_path / "burnt", kit, account):
        flareclust(tmp_path, "restore", archive, **own)
        private.start(NORTH)
        private.wait_connected()
        began = time.monotonic()
        job = private_job(private)
        refused = job.outcome().refused
    assert refused.keys() == {NORTH}
    assert "has a privacy ledger from a backup" in refused[NORTH]
    assert spent() == of_one_job, "the site spent what it refused"

    assert spent("--spent-since", 1) == pytest.approx(of_two_jobs)
    assert private_job(private).outcome().refused == {}
    assert of_two_jobs < spent() < 3
    record(
        "ledger of a backup",
        "two private jobs, and a [backup](backup.md#privacy-ledgers) between them; then the machine of one of three sites is empty and restored; quorum 2",
        "the site takes no part in private jobs until `flareclust site budget --spent-since` states what the backup does not know; after that its ledger is as without the loss, and it takes part",
        job.notice(NORTH).text,
        job.notice(NORTH).at - began,
    )
