"""A federation that lives on while a site joins it and while one is put out."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ADMIN, LEAD, SERVER, Federation, started, wait_until
from jobs import Job
from kit_cells import as_site, ask_for_task
from own_federation import (
    NEW,
    SITES,
    check_same,
    check_secure,
    check_undisturbed,
    give_rows,
    options,
    pin_identities,
    rows_of,
    unpin_identities,
)

from flareclust._foundation.errors import JobFailed
from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import ExpectedSites
from flareclust.platform.session import server_status
from flareclust.privacy.policy import Policy
from flareclust.protocol.registry import get
from flareclust.sites.check import check

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

PARAMS = {"rounds": 25, "tol": 0.0}
DISABLED = "is disabled at the server (nvflare system disable-client)"
REJECTED = f"registration rejected: Client '{NEW}' is disabled"


@pytest.fixture(scope="module")
def founded() -> Iterator[Federation]:
    """A server and three sites."""
    with Federation(SITES).running() as federation:
        give_rows(federation, *SITES)
        yield federation


@pytest.fixture
def growing(founded: Federation) -> Federation:
    """The federation with a fourth site, connected, that came when the others were running."""
    if NEW not in founded.hosts:
        founded.add_site(NEW)
        give_rows(founded, NEW)
    with founded.session() as admin:
        admin.enable_client(NEW)
    if not founded.processes(NEW):
        founded.start(NEW)
    founded.wait_connected([*SITES, NEW])
    return founded


@pytest.fixture
def pinned(growing: Federation) -> Iterator[Policy]:
    """The policy of the three first sites, which names only these."""
    yield pin_identities(growing)
    unpin_identities(growing)


def test_a_site_joins_while_all_others_keep_their_kits_and_go_on(founded, record_on):
    processes = {process.pid for process in founded.processes(SERVER, *SITES)}
    at = time.monotonic()
    made = founded.add_site(NEW)
    for host in (SERVER, *SITES, LEAD, ADMIN):
        new = {path.relative_to(made): path.read_bytes() for path in (made / host).rglob("*") if path.is_file()}
        differing = {path for path in new if (founded.kits / path).read_bytes() != new[path]}
        assert differing <= {Path(host, "local", "resources.json.default")}, "of all of them only that was changed here"
    give_rows(founded, NEW)
    founded.start(NEW)
    founded.wait_connected([*SITES, NEW])
    outcome = Job(founded, get("fkm"), options(4), PARAMS).outcome()
    files = {site: rows_of(founded, site) for site in (*SITES, NEW)}
    check_same(outcome, run_inprocess(get("fkm"), PARAMS, files, options(4)))
    assert processes <= {process.pid for process in founded.processes(SERVER, *SITES)}
    record_on(founded)(
        "new site",
        "a fourth site is added to the project file, provisioned into the same folder, and started",
        "the kits of the others are the same, byte for byte, and their processes go on; the next job has four sites; the seconds "
        "run from the provisioning until the result",
        "nothing",
        time.monotonic() - at,
    )


def test_a_site_that_is_put_out_leaves_the_running_job_and_stays_out_whatever_is_started_again(growing, record_on):
    job = Job(growing, get("fkm"), options(3), PARAMS)
    with growing.session() as admin:
        job.wait_round(1)
        at = time.monotonic()
        admin.disable_client(NEW)
    outcome = job.outcome()
    check_undisturbed(outcome, growing, (*SITES, NEW), PARAMS, 3)
    assert outcome.refused == {NEW: DISABLED}
    record_on(growing)(
        "site put out",
        "`nvflare system disable-client` for one of four sites; quorum 3",
        "the site is not asked any more, and the others go on",
        job.notice(NEW).text,
        job.notice(NEW).at - at,
    )
    assert check(growing.kit(SERVER)).facts["disabled sites"] == NEW

    at = time.monotonic()
    growing.restart(SERVER, NEW)
    growing.wait_connected(SITES)
    wait_until(lambda: REJECTED in (growing.kit(NEW) / "log.txt").read_text(), "the site is told why it is not let in")
    outcome = Job(growing, get("fkm"), options(3), PARAMS, expected=ExpectedSites()).outcome()
    check_undisturbed(outcome, growing, SITES, PARAMS, 3)
    assert outcome.refused == {NEW: DISABLED}
    assert growing.connected() == sorted(SITES)
    record_on(growing)(
        "site put out, all started again",
        "server and site are started again after that",
        "the server does not let the site in, and the next job runs without it; the site's log says why",
        f"{NEW} {outcome.refused[NEW]}",
        time.monotonic() - at,
    )


def test_a_site_that_is_put_out_while_it_is_silent_is_not_waited_for(growing, record_on):
    job = Job(growing, get("fkm"), options(3), PARAMS)
    job.wait_round(1)
    growing.kill_host(NEW)
    at = time.monotonic()
    with growing.session() as admin:
        admin.disable_client(NEW)
    outcome = job.outcome()
    check_undisturbed(outcome, growing, (*SITES, NEW), PARAMS, 3)
    assert outcome.refused == {NEW: DISABLED}
    assert job.notice(NEW).at - at < 30, "before the server could have missed it"
    record_on(growing)(
        "silent site put out",
        "daemon, parent and job killed at once at one of four sites, and `nvflare system disable-client` for it; quorum 3",
        "the round does not wait for the site any more, and the others go on",
        job.notice(NEW).text,
        job.notice(NEW).at - at,
    )


def test_with_the_kit_of_a_site_that_was_put_out_nobody_gets_a_task_nor_a_place_in_a_sum(growing, pinned, record_on):
    with as_site(growing, NEW) as cell:  # it keeps the token that it has got before
        with growing.session() as admin:
            admin.disable_client(NEW)
        job = Job(growing, get("lloyd"), options(3, secure_sums=True))
        job.wait_round(1)
        with growing.session() as admin:
            (running,) = server_status(admin)["jobs"]
        assert ask_for_task(cell, running["job_id"]) is None
        check_secure(job.outcome(), growing, pinned)
    growing.stop(NEW)

    copy = growing.folder / "copy" / NEW
    shutil.copytree(growing.kit(NEW), copy, ignore=shutil.ignore_patterns("*pid.fl", "log.txt"))
    with started(growing, "north", copy):
        wait_until(
            lambda: (copy / "log.txt").exists() and REJECTED in (copy / "log.txt").read_text(), "it is not let in"
        )
        assert growing.connected() == sorted(SITES)

    at = time.monotonic()
    with growing.session() as admin:
        admin.enable_client(NEW)
    growing.start(NEW)
    growing.wait_connected([*SITES, NEW])
    job = Job(growing, get("lloyd"), options(3, secure_sums=True))
    with pytest.raises(JobFailed) as caught:
        job.outcome()
    said = f"3 sites (north, south, west): each does not add up its numbers with those of {NEW!r} (its policy: secure_sites)"
    assert said in str(caught.value)
    record_on(growing)(
        "site put out, let in by the server",
        "the server lets the site in again, and the policies of the three others name only each other (`secure_sites`); a job with secure sums",
        "the others let out no sum, and the job ends",
        str(caught.value),
        job.ended - at,
    )
