"""`flareclust prune` with a lead's kit and with those of sites, while a job runs: what is old goes, and nothing that somebody may need."""

import json
import time
from pathlib import Path

import clock
import pytest
from conftest import SITES, forget_account, rows_of
from harness import LEAD, SERVER
from jobs import Job, jobs_in_store
from machines import flareclust, wait_idle

from flareclust._foundation.errors import JobFailed
from flareclust.engines.options import JobOptions
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import remove_policy

pytestmark = pytest.mark.slow

NORTH, SOUTH, _ = SITES
TWO_DAYS = 2 * 24 * 3600
OPTIONS = JobOptions(k=4, seed=3, min_sites=1, task_timeout=600, deadline=600)
PRIVATE = ("--epsilon", 1, "--delta", 1e-5, "--bounds=-20,20", "--budget", 5)


def size_of(*folders: Path) -> int:
    return sum(path.lstat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def spending(federation, tmp_path):
    """The federation, where north keeps labels outside of its kit and is to have a privacy account of its own; both are gone in the end."""
    own = {"labels": str(tmp_path / "labels"), "account": str(tmp_path / "account")}
    federation.configure(NORTH, path=str(rows_of(federation, NORTH)), **own)
    yield federation
    wait_idle(federation)
    forget_account(federation.kit(NORTH) / "local")
    remove_policy(federation.kit(NORTH) / "local")


def test_old_jobs_go_and_no_result_label_or_spending_that_somebody_may_need(spending, tmp_path, record):
    """Old by a clock that is two days ahead, of the machines on which the command is given."""
    later = clock.shifted(tmp_path, TWO_DAYS)
    if later is None:
        pytest.skip("no C compiler (cc) for the library that shifts a process's clock")
    kits, results = {host: spending.kit(host) for host in (LEAD, NORTH, SOUTH)}, tmp_path / "flareclust-runs"
    asked = "run", "kfed", "--k", 4, "--engine", "production", "--kit", kits[LEAD], "--no-track", "--out", results / "a"
    flareclust(tmp_path, *asked)
    fetched = json.loads((results / "a" / "result.json").read_text())["job"]
    unfetched = Job(spending, get("kfed"), OPTIONS).outcome().job
    wait_idle(spending)
    flareclust(tmp_path, "site", "policy", kits[NORTH], *PRIVATE)
    private = Job(spending, get("dp-oneshot"), OPTIONS, {"epsilon": 1.0}).outcome().job
    wait_idle(spending)
    before = jobs_in_store(spending)
    endless = Job(spending, get("fkm"), OPTIONS, {"rounds": 10_000, "tol": 0.0})
    endless.wait_round(1)
    [running] = [path.name for path in jobs_in_store(spending) - before]

    def prune(host: str, *words: object) -> dict[str, str]:
        """Return what the command says of each job, by its number."""
        said = flareclust(tmp_path, "prune", kits[host], "--older-than", 1, *words, **later).stdout
        lines = {
            job: line for line in said.splitlines() for job in (fetched, unfetched, private, running) if job in line
        }
        return {job: line.replace(job, "JOB") for job, line in lines.items()}

    ledger, stored = (tmp_path / "account" / "ledger.db").read_bytes(), spending.kit(SERVER) / "jobs-storage"
    began, bytes_before = time.monotonic(), size_of(stored / fetched)
    at_server = prune(LEAD, "--results", results)
    seconds = time.monotonic() - began
    gone = size_of(kits[NORTH] / fetched, kits[NORTH] / unfetched)
    at_north, at_south = prune(NORTH), prune(SOUTH)
    assert not endless.ended
    with spending.session() as admin:
        admin.abort_job(running)
    with pytest.raises(JobFailed, match="aborted"):
        endless.outcome()

    assert at_server.keys() == {fetched, unfetched, private}, "a job that runs is old to nobody"
    assert at_server[fetched].startswith("removed JOB")
    for job in (unfetched, private):
        assert at_server[job].endswith("what it may have found is in none of your results")
    kept = {path.name for path in jobs_in_store(spending)}
    assert fetched not in kept
    assert {unfetched, private, running} <= kept

    assert at_north[fetched].startswith("removed JOB")
    assert at_north[unfetched].startswith("removed JOB")
    assert at_north[private].endswith("the privacy ledger has its spendings")
    assert [(kits[NORTH] / job).exists() for job in (fetched, unfetched, private)] == [False, False, True]
    assert (tmp_path / "account" / "ledger.db").read_bytes() == ledger
    for job in (fetched, unfetched):
        assert "labels.csv is in it" in at_south[job]
    assert at_south[running].endswith("a process of the job runs")
    assert all((kits[SOUTH] / job / "labels.csv").exists() for job in (fetched, unfetched))
    assert all((kit / "log.txt").exists() for kit in (kits[NORTH], kits[SOUTH], spending.kit(SERVER)))
    record(
        "old jobs",
        "`flareclust prune` with the kits of the lead and of two sites, by a clock that is two days ahead, while a job runs",
        f"at the server the job whose result was fetched goes ({bytes_before / 1e6:.2f} MB), and one whose result nobody has fetched stays. At a site that keeps labels elsewhere the folders of both go ({gone / 1e6:.2f} MB). Folders with labels, of a job in the privacy ledger and of the job that runs stay, as do ledger and logs",
        at_server[unfetched],
        seconds,
    )
