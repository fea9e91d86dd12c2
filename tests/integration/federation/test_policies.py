"""Policies of sites in a provisioned federation: each its own, from the next job on, whatever the job asks or names."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import SITES, forget_account, rows_of
from harness import Federation
from jobs import Job

from flareclust.cli.main import main
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.platform.job import build_job, export_job
from flareclust.privacy.job_folder import REQUEST_LOG_FILE
from flareclust.protocol.outcome import read
from flareclust.protocol.registry import get
from flareclust.sites.account import budget_of
from flareclust.sites.policy_file import remove_policy

pytestmark = pytest.mark.slow

FAR = 5e3


@pytest.fixture
def lonely(federation: Federation) -> Iterator[Federation]:
    """The federation, with four rows far from all others at each site; policies and rows are put back."""
    rng = np.random.default_rng(7)
    for site in SITES:
        file = federation.kit(site) / "data" / "with-lonely.npy"
        np.save(file, np.concatenate([np.load(rows_of(federation, site)), FAR + rng.normal(size=(4, 3))]))
        federation.configure(site, path=str(file))
    yield federation
    for site in SITES:
        remove_policy(federation.kit(site) / "local")


def policy(federation: Federation, site: str, *options: str) -> None:
    """Write a site's policy as its operator does, while the site runs."""
    with pytest.raises(SystemExit) as done:
        main(["site", "policy", str(federation.kit(site)), *options])
    assert done.value.code in (None, 0)


def job(federation: Federation, name_or_line: object, k: int, **params: object) -> Job:
    line = get(name_or_line) if isinstance(name_or_line, str) else name_or_line
    options = JobOptions(k=k, min_sites=1, task_timeout=600, deadline=600)
    return Job(federation, line, options, params)


@pytest.mark.smoke
def test_each_site_holds_jobs_to_its_own_policy_without_a_restart(lonely):
    """One leaves out its four lonely rows, one takes no part, one lets out fewer centroids than it was asked for."""
    files = {site: lonely.kit(site) / "data" / "with-lonely.npy" for site in SITES}
    without = run_inprocess(get("pooled"), {"min_count": 1}, files, JobOptions(k=6))
    assert np.abs(without.centroids).max() > FAR / 2, "the case does not show what a policy is for"

    policy(lonely, "north")
    policy(lonely, "south", "--min-rows", "1000000", "--round-counts", "5")
    policy(lonely, "west", "--max-centroids", "3")
    after = job(lonely, "pooled", 6, min_count=1).outcome()
    assert np.abs(after.centroids).max() < FAR / 2
    assert "has fewer rows than it must have" in after.refused["south"]
    assert "lets out at most 3 centroids" in after.refused["west"]
    assert set(after.refused) == {"south", "west"}
    asked = (lonely.kit("north") / after.job / REQUEST_LOG_FILE).read_text().split()
    assert asked[:2] == ["cluster", "0"]


def test_foreign_executors_and_other_scopes_do_not_get_around_a_policy(lonely, faulty, tmp_path):
    """A reply that no policy was kept for and an error code, in a job that names a scope that the sites do not have.

    The executor is registered nowhere. North lets its reply out because it has the form of the algorithm that it states.

    NVFlare lets the job in, as the sites had no such file when they were started, and finds no filters for it.
    """
    for site in SITES:
        policy(lonely, site)
    faults = {"north": "states kfed", "south": "error code", "west": "missing array"}
    exported = export_job(build_job(faulty, {"faults": faults}, JobOptions(k=1, min_sites=1)), tmp_path / "job")
    about = json.loads((exported / "meta.json").read_text())
    (exported / "meta.json").write_text(json.dumps(about | {"scope": "lenient"}))
    outcome, _ = read(lonely.run(exported))
    assert "own executors only" in outcome.refused["west"]
    assert "BAD_TASK_DATA" in outcome.refused["south"]
    assert set(outcome.refused) == {"west", "south"}


def test_a_second_kit_over_the_same_table_has_no_budget_of_its_own(federation):
    """What one site's job spends on a table is spent for another site that names the same file, through a link."""
    private = ("--epsilon", "1", "--delta", "1e-5", "--bounds=-20,20")
    try:
        policy(federation, "north", *private, "--budget", "1.2")
        policy(federation, "south", *private, "--budget", "5")
        first = job(federation, "dp-oneshot", 4, epsilon=1.0).outcome()
        assert set(first.refused) == {"west"}, first.refused
        link = federation.kit("west") / "data" / "link.npy"
        link.symlink_to(rows_of(federation, "north"))
        federation.configure("west", path=str(link), root=str(federation.folder))
        policy(federation, "west", *private, "--budget", "1.2")
        second = job(federation, "dp-oneshot", 4, epsilon=1.0).outcome()
        assert set(second.refused) == {"north", "west"}
        for words in second.refused.values():
            assert "has spent epsilon=1 of its budget of 1.2" in words
        [other] = budget_of(federation.kit("north") / "local").others
        assert other.startswith(f"west in {federation.kit('west')}")
    finally:
        (federation.kit("west") / "data" / "link.npy").unlink(missing_ok=True)
        for site in SITES:
            forget_account(federation.kit(site) / "local")
            remove_policy(federation.kit(site) / "local")
