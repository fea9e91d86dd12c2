"""A provisioned federation: the job goes to its server through an admin's kit, as NVFlare's users submit jobs.

NVFlare tells how a job ended by one word. This module finds out the rest: how far the job is, from the statistics that
the controller offers; why it failed, from the logs of the server; whether it is still there at all after a crash.

Success is a complete result.json, as in the simulator. NVFlare's status can say otherwise where a site was lost after the
result was complete (docs/adr/0010-lost-sites.md).
"""

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.api_spec import (
    AuthorizationError,
    InvalidJobDefinition,
    JobNotFound,
    JobNotRunning,
    SubmitTokenConflict,
    SubmitTokenJobDeleted,
    TargetType,
)
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.job_config.api import FedJob

from flareclust import outcome as outcome_files
from flareclust.aggregators.controller import EXCHANGES, LIVE, RECORDS
from flareclust.engines.job import MIN_SITES, build_job, export_job
from flareclust.engines.options import JobOptions
from flareclust.engines.reasons import reason_of, undeployed
from flareclust.engines.session import admin_of, connected_sites, open_session, quiet
from flareclust.errors import FlareclustError, JobFailed, UserError
from flareclust.federation import OnRound
from flareclust.outcome import Outcome
from flareclust.registry import Algorithm

#: Between two looks at a job, and between two looks at its rounds, which each fill a line of the server's log until the
#: job's own process is there.
POLL_SECONDS, ROUNDS_SECONDS = 0.5, 1.0

#: A server that does not answer for so long is taken for lost, with the job that it ran. Its own starter brings it
#: back within seconds; longer interruptions of the network are survived up to this.
UNREACHABLE_SECONDS = 90

#: Seconds after its start in which a server's sites may still be on their way: they connect again within 5 to 15.
CONNECT_SECONDS = 45

#: So many times a failed job is submitted anew with the same token.
MOST_ATTEMPTS = 20

#: How NVFlare's statuses begin and end.
FINISHED, RUNNING, COMPLETED, ABORTED = "FINISHED", "RUNNING", "COMPLETED", "ABORTED"

log = logging.getLogger(__name__)


def run_production(
    algorithm: Algorithm,
    params: Mapping[str, object],
    options: JobOptions,
    kit: Path,
    on_round: OnRound = lambda record: None,
    *,
    token: str | None = None,
) -> Outcome:
    """Run a federation's job on its own sites.

    Args:
        algorithm: a federated algorithm.
        params: its settings.
        options: settings every job has.
        kit: of the admin who submits it.
        on_round: gets a record per exchange while the job runs.
        token: with the same one, a job that was submitted before and is running or complete is taken up again.

    Raises:
        UserError: a setting or the kit is wrong, or the server does not permit the job.
        JobFailed: the job ended without a result; the text says why. Transient where another try may help.
    """
    job = build_job(algorithm, params, options)
    executor, aggregator = algorithm.build(options.k, options.seed, params)

    def check(sites: list[str]) -> None:
        executor.check_sites(sites)
        aggregator.check_sites(sites)
        _check_enough(sites, options.min_sites or MIN_SITES, kit)

    return run_job(job, kit, options.deadline, on_round, token=token, check=check)


def run_job(
    job: FedJob,
    kit: Path,
    deadline: float,
    on_round: OnRound = lambda record: None,
    *,
    token: str | None = None,
    check: Callable[[list[str]], None] = lambda sites: None,
    amend: Callable[[Path], None] = lambda folder: None,
) -> Outcome:
    """Submit a job whose server part is a controller of ours, follow it, and fetch its result.

    Args:
        job: what to submit.
        kit: of the admin who submits it.
        deadline: seconds after which the job is aborted.
        on_round: gets a record per exchange while the job runs.
        token: as in `run_production`.
        check: gets the names of the connected sites before the job is submitted, and raises where they will not do.
        amend: gets the job's folder before it is submitted, to add files.

    Raises:
        UserError, JobFailed: as `run_production`.
    """
    with TemporaryDirectory(prefix="flareclust-") as scratch, closing(_Server(kit)) as server:
        with quiet():
            folder = export_job(job, Path(scratch) / str(job.name))
        amend(folder)
        _wait_for_sites(server.session, check)
        watched = _Watched(server, on_round, deadline)
        try:
            watched.submit(folder, token)
            watched.follow()
            return watched.fetch(Path(scratch) / "fetched")
        finally:
            watched.abort_unless_ended()


def _wait_for_sites(session: Session, check: Callable[[list[str]], None]) -> None:
    """Check the connected sites; those of a server that was just started are given the time to connect."""
    started = _start_time(session)
    while True:
        try:
            return check(connected_sites(session))
        except FlareclustError:
            if not 0 <= time.time() - started < CONNECT_SECONDS:
                raise
        time.sleep(POLL_SECONDS)


def _check_enough(sites: list[str], needed: int, kit: Path) -> None:
    if len(sites) < needed:
        found = f"only {', '.join(sites)}" if sites else "no site"
        raise JobFailed(
            f"{found} of at least {needed} sites is connected to the server {admin_of(kit)['host']}; start the others "
            "(startup/start.sh in their kits), and see their log.txt if they do not connect",
            transient=True,
        )


class _Server:
    """A session that is opened again when it was lost."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self._open = ExitStack()
        self.reopen()

    def reopen(self) -> None:
        self.close()
        self.session = self._open.enter_context(open_session(self.kit))

    def close(self) -> None:
        self._open.close()


class _Lost(JobFailed):
    """The server has lost the job."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, transient=True)


class _Watched:
    """A job at a server, and what was last heard of it."""

    def __init__(self, server: _Server, on_round: OnRound, deadline: float) -> None:
        self.server, self.on_round, self.deadline = server, on_round, deadline
        self.id, self.status, self.lost = "", "", False
        self.seen = 0
        self._end = time.monotonic() + deadline
        self._asked = 0.0
        self._server_start = _start_time(server.session)

    @property
    def ended(self) -> bool:
        return self.status.startswith(FINISHED)

    def submit(self, folder: Path, token: str | None) -> None:
        """Submit the job, or find the one that was submitted with this token before."""
        self.id, self.status = _submit(self.server, folder, token)
        log.info("job %s", self.id)

    def follow(self) -> None:
        """Return when the job has ended; pass on its rounds.

        Raises:
            JobFailed: at the deadline, or because the server has lost the job.
        """
        heard = time.monotonic()
        broken = False
        while not self.ended:
            try:
                if broken:
                    self.server.reopen()
                self._look()
                heard, broken = time.monotonic(), False
            except _Lost:
                raise
            except Exception as error:  # noqa: BLE001 - NVFlare's API has a dozen ways to say that the server is gone
                log.info("no answer of the server: %s", error)
                broken = True
            if broken and time.monotonic() - heard > UNREACHABLE_SECONDS:
                raise JobFailed(f"the server did not answer for {UNREACHABLE_SECONDS} s", transient=True)
            if not self.ended:
                if time.monotonic() > self._end:
                    raise JobFailed(
                        f"the job was still running after the deadline of {self.deadline:g} s and was stopped"
                    )
                time.sleep(POLL_SECONDS)

    def _look(self) -> None:
        """Ask for the status and the rounds that are new."""
        session = self.server.session
        self.status = _status(session, self.id)
        if not self.status.startswith(RUNNING):
            return
        if _start_time(session) != self._server_start:
            self.lost = True
            raise _Lost("the server was started again and has lost the job")
        if time.monotonic() - self._asked < ROUNDS_SECONDS:
            return
        self._asked = time.monotonic()
        with suppress(JobNotRunning, JobNotFound):  # its process is not there yet, or no more
            told = session.show_stats(self.id, TargetType.SERVER).get("server", {}).get(LIVE, {})
            records, total = told.get(RECORDS, []), int(told.get(EXCHANGES, 0))
            self._pass_on(records[max(0, len(records) - (total - self.seen)) :], total)

    def _pass_on(self, records: Sequence[Mapping[str, object]], total: int) -> None:
        for record in records:
            self.on_round(record)
        self.seen = max(self.seen, total)

    def fetch(self, scratch: Path) -> Outcome:
        """Return the result of the ended job, or raise JobFailed with the reason."""
        session = self.server.session
        with quiet():
            folder = Path(session.download_job_result(self.id, str(scratch))) / "workspace"
        if self.status.endswith(ABORTED) or not (folder / outcome_files.SUMMARY).exists():
            raise reason_of(session, self.id, self.status, folder)
        outcome = outcome_files.read(folder)[0]
        self._pass_on(outcome.rounds[self.seen :], len(outcome.rounds))
        missing = {site: f"did not take the job: {why}" for site, why in undeployed(session, self.id).items()}
        sites = sorted({*outcome.sites, *missing})
        return replace(outcome, job=self.id, sites=sites, refused=missing | dict(outcome.refused))

    def abort_unless_ended(self) -> None:
        """Abort the job if it still runs, so that an interrupted or failed caller leaves nothing behind at the sites."""
        if self.id and not self.ended and not self.lost:
            with suppress(Exception), _undisturbed():  # the reason why we are here must not be hidden
                self.server.reopen()
                self.server.session.abort_job(self.id)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep back the signals that end a program: an impatient second one must not break off the abort."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start_time(session: Session) -> float:
    return float(session.check_status(TargetType.SERVER).get("server_start_time", 0.0))


def _status(session: Session, job: str) -> str:
    return str(session.get_job_meta(job).get(JobMetaKey.STATUS.value, ""))


def _submit(server: _Server, folder: Path, token: str | None) -> tuple[str, str]:
    """Submit a job, or find one that was submitted with this token and is running or complete; return id and status."""
    session = server.session
    for attempt in range(MOST_ATTEMPTS):
        try:
            job = session.submit_job(str(folder), None if token is None else f"{token}-{attempt}")
        except (SubmitTokenConflict, SubmitTokenJobDeleted):
            continue
        except AuthorizationError:
            user = admin_of(server.kit)["username"]
            raise UserError(f"{user} may not submit jobs to this server; ask for a kit with the role lead") from None
        except InvalidJobDefinition as error:
            raise UserError(f"the server does not take the job: {error}") from None
        status = _status(session, job)
        if token is None or not status.startswith((FINISHED, RUNNING)) or status.endswith(COMPLETED):
            return job, status
        if status.startswith(RUNNING) and job in _running(session):
            return job, status
    raise JobFailed(f"{MOST_ATTEMPTS} jobs with the token {token} have failed already")


def _running(session: Session) -> set[str]:
    jobs: list[dict[str, Any]] = session.check_status(TargetType.SERVER).get("jobs", [])
    return {str(job.get("job_id")) for job in jobs}
