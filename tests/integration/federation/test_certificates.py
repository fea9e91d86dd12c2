"""Certificates are renewed one host after the other while jobs run, and when the root's end comes, all kits are replaced."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import processes
import pytest
from harness import LEAD, SERVER, Federation, wait_until
from jobs import Job
from own_federation import (
    SITES,
    check_secure,
    check_undisturbed,
    give_rows,
    options,
    pin_identities,
    stopped,
    unpin_identities,
)

from flareclust._foundation.errors import JobFailed, UserError
from flareclust.doctor import examine
from flareclust.engines.options import ExpectedSites
from flareclust.platform.provisioned import run_production
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get
from flareclust.sites.policy_file import policy_of
from tests.kit_certificates import renew
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

HOSTS, FORGOTTEN = (SERVER, *SITES), "west"
PARAMS = {"rounds": 10, "tol": 0.0}

#: A job is kept back until its quorum is connected.
WAITING = ExpectedSites(wait_for=2, wait_seconds=int(PATIENCE))

#: How many seconds certificates last: four minutes, or so many times what the machine needs now to start all hosts.
LIFE, STARTS = 240, 14


@pytest.fixture(scope="module")
def renewing() -> Iterator[Federation]:
    """A server and three sites."""
    federation = Federation(SITES)
    give_rows(federation, *SITES)
    with federation.running():
        yield federation


class Jobs:
    """Jobs of a lead, one after the other, each submitted again where the server is started anew, as tracked runs do."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.results: list[Outcome] = []
        self.lost: list[str] = []
        self.failed: Exception | None = None
        self._between: list[Callable[[], None]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                while self._between:
                    self._between.pop(0)()
                self.results.append(self._submit(f"job-{len(self.results)}"))
        except Exception as error:  # noqa: BLE001 - it is raised again where the jobs are to end
            self.failed = error

    def _submit(self, token: str) -> Outcome:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                asked = get("fkm"), options(2), PARAMS
                return Job(self.federation, *asked, token=token, expected=WAITING).outcome()
            except JobFailed as error:
                lost = "has lost the job" in str(error)
                if time.monotonic() > end or not (lost or "not answer" in str(error)):
                    raise
                self.lost += [token] if lost else []

    def between_two(self, act: Callable[[], None]) -> None:
        """Have something done before the next job, and wait until it is done."""
        done = threading.Event()
        self._between += [act, done.set]
        self.wait_until(done.is_set, "a job has ended")

    @contextmanager
    def running(self) -> Iterator["Jobs"]:
        """Submit jobs until the last one has ended that began in the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            self._thread.join()
        self.wait_until(lambda: True, "all jobs have ended")

    def wait_until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait, and raise what a job raises meanwhile."""
        wait_until(lambda: self.failed or reached(), what)
        if self.failed is not None:
            raise self.failed


def now() -> datetime:
    return datetime.now(timezone.utc)


def certify(federation: Federation, lasts: timedelta) -> tuple[Path, datetime]:
    """Provision again with new certificates for all; return the folder of the new kits, and when the certificates end."""
    ends = renew(federation.kits.parent / "state" / "cert.json", (*HOSTS, LEAD), lasts)
    return federation.provision(federation.kits.parents[1]), ends


def replace_startup(federation: Federation, host: str, made: Path) -> None:
    """Replace `startup/` in a host's kit by that of a new kit."""
    shutil.rmtree(federation.kit(host) / "startup")
    shutil.copytree(made / host / "startup", federation.kit(host) / "startup")


def renew_server_and_sites(federation: Federation, made: Path) -> None:
    """Do what the operators do, each when the one before is done; no site is back before it was started again, as the server has another key."""
    federation.stop(SERVER)
    replace_startup(federation, SERVER, made)
    federation.start(SERVER)
    federation.wait_connected([])
    for site in SITES:
        with stopped(federation, site):
            replace_startup(federation, site, made)
    assert federation.connected() == sorted(SITES)


def restart_all(federation: Federation, made: Path) -> None:
    """Stop server and sites, replace all of `startup/`, and start them again."""
    federation.stop()
    for host in (*HOSTS, LEAD):
        replace_startup(federation, host, made)
    federation.start(*HOSTS)
    federation.wait_connected()


def secure_job(federation: Federation, expected: ExpectedSites | None = None) -> Outcome:
    """Run a job with secure sums of all sites."""
    asked = options(len(SITES), secure_sums=True)
    return Job(federation, get("lloyd"), asked, expected=expected).outcome()


def test_certificates_are_renewed_one_host_after_the_other_while_jobs_run(renewing, record_on):
    if policy_of(renewing.kit(FORGOTTEN) / "local") is not None:
        unpin_identities(renewing)
    made, _ = certify(renewing, timedelta(days=1))
    began = time.monotonic()
    restart_all(renewing, made)
    life = timedelta(seconds=max(LIFE, STARTS * (time.monotonic() - began)))

    made, ends = certify(renewing, life)
    restart_all(renewing, made)
    with Jobs(renewing).running() as jobs:
        jobs.wait_until(lambda: now() > ends - life / 2, "half of the life of the certificates is over")
        at, (made, _) = time.monotonic(), certify(renewing, timedelta(days=1))
        renew_server_and_sites(renewing, made)
        jobs.between_two(partial(replace_startup, renewing, LEAD, made))
        seconds = time.monotonic() - at
        assert now() < ends, "the machine was too slow for what is to be shown"
        jobs.wait_until(lambda: now() > ends, "the first certificates have ended")
    assert len(jobs.lost) <= 1
    for outcome in jobs.results:
        check_undisturbed(outcome, renewing, SITES, PARAMS, 2)
    assert jobs.results[-1].refused == {}
    policy = pin_identities(renewing)
    check_secure(secure_job(renewing), renewing, policy)
    record_on(renewing)(
        "renewed certificates",
        f"{len(jobs.results)} jobs run one after the other, kept back until the quorum of 2 is connected; when half of the life of all "
        f"certificates is over (of {life.total_seconds() / 60:.0f} minutes), server, sites and lead replace `startup/` one after the other",
        f"no job failed, {len(jobs.lost) or 'none'} of them was lost with the server and submitted again; each result equals, bit for "
        "bit, that of the sites that were there; after the end of the first certificates jobs with all sites, also with secure sums "
        "and pinned identities; the seconds run over all renewals",
        "those of a server crash and of a site that is not connected",
        seconds,
    )


def test_with_a_new_root_a_forgotten_site_is_named_and_comes_back_with_its_new_kit(renewing, record_on):
    policy = pin_identities(renewing)
    old, new = renewing.kits, renewing.provision(renewing.folder / "kits-of-the-next-root")
    others = [site for site in SITES if site != FORGOTTEN]
    renewing.stop(SERVER, *others)
    for host in HOSTS:
        shutil.copytree(old / host / "local", new / host / "local", dirs_exist_ok=True)
    shutil.copytree(old / SERVER / "jobs-storage", new / SERVER / "jobs-storage")
    renewing.kits = new
    give_rows(renewing, *SITES)
    try:
        at = time.monotonic()
        renewing.start(SERVER, *others)
        renewing.wait_connected(others)
        with pytest.raises(UserError, match=f"does not talk to the kit of {LEAD}"):
            run_production(get("lloyd"), {}, options(3, secure_sums=True), old / LEAD)
        expected = ExpectedSites(expect_sites=SITES)
        with pytest.raises(JobFailed, match=f"only north, south are connected .* start {FORGOTTEN} ") as caught:
            secure_job(renewing, expected)
        seconds = time.monotonic() - at
        told = [one.found for one in examine(old / FORGOTTEN) if (one.check, one.state) == ("kit", "fail")]
        server = f"{renewing.network.server_address}:{renewing.network.port}"
        assert told == [f"the server {server} has a certificate of another root than {FORGOTTEN}"]
    finally:
        processes.kill(processes.of_kits([old / FORGOTTEN]))
    renewing.start(FORGOTTEN)
    renewing.wait_connected()
    check_secure(secure_job(renewing), renewing, policy)
    record_on(renewing)(
        "forgotten at a new root",
        "all kits come from a new root certificate, but one of three sites goes on with its old kit; quorum 3",
        "server and site do not talk to each other; the job is not submitted. With its new kit the site is in the next job, with the "
        "same identity and policy",
        str(caught.value).replace(renewing.network.server_address, "SERVER"),
        seconds,
    )
