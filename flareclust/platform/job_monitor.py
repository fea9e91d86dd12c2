"""One job at a server: submitted or found again, followed to its end, fetched, and aborted if nobody waits for it any more.

Why it failed is put together from what NVFlare leaves at the server. The job's own log has what the controller said. What a
site's starter reported is in the server's log, which an admin of the server's organisation may search.
"""

import errno
import logging
import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.api_spec import (
    AuthorizationError,
    InvalidJobDefinition,
    JobNotFound,
    SubmitTokenConflict,
    SubmitTokenJobDeleted,
    TargetType,
)
from nvflare.fuel.flare_api.flare_api import Session

from flareclust._foundation.certificates import ends_soon, near_end, server_ends_soon
from flareclust._foundation.display import shown
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.interrupts import deferred_signals
from flareclust.federation import OnRound
from flareclust.platform.controller import DISABLED, DISABLED_SITES, EXCHANGES, LIVE, RECORDS
from flareclust.platform.peers import reported_by_hosts
from flareclust.platform.session import admin_of, connected_sites, open_session, server_status
from flareclust.protocol import outcome as outcome_files
from flareclust.protocol.outcome import Outcome

#: The controller's own words, or NVFlare's, in the log of the job.
FATAL = re.compile(r"FATAL_SYSTEM_ERROR received: (?P<reason>.*)")

#: NVFlare's words where too few sites are left, and those before it that name the lost ones.
_POLICY = "Aborting job due to deployment policy violation"
_DISCONNECTED = re.compile(r"Client (?P<site>\S+) is deemed disconnected")

#: What the server's log says when a site has reported that its process failed.
_REPORTED = re.compile(r"due to reported failure from (?P<site>[^\s:.]+)\S*: (?P<reason>.*)")

#: How a line about a deployment ends where all is well, and what stands in front of a site's reason where not.
_WELL, _ERROR = ": OK", "NVFLARE_ERROR: "

#: What a site reports if its list of classes does not have ours: the second where NVFlare's own launcher starts its jobs.
_NOT_ALLOWED = ("unsafe component", "infrastructure error")

#: Between two looks at a job, and between two looks at its rounds, which each fill a line of the server's log until the
#: job's own process is there. Each look is also a line of its audit.log for ever, so a long job is looked at less often: by the
#: share of its time so far that its end may be noticed late, up to some seconds.
POLL_SECONDS, ROUNDS_SECONDS = 0.5, 1.0
_LATE, _MOST_SECONDS = 0.02, 5.0

#: A server that does not answer for so long is taken for lost, with the job that it ran. Its own starter brings it
#: back within seconds; longer interruptions of the network are survived up to this.
_UNREACHABLE_SECONDS = 90

#: How long NVFlare may take from "dispatched" to "running". A job that was caught by a crash in between stays dispatched.
_DISPATCH_SECONDS = 30

#: So many times a failed job is submitted anew with the same token.
_MOST_ATTEMPTS = 20

#: How long a job that replaces a lost one is kept back for the sites of that one. After a restart of the server they need
#: about 10 s; one that is silent for so long is lost (`heart_beat_timeout`).
_RECONNECT_SECONDS = 60

#: So many earlier jobs say which sites are expected. Of the last one alone a site that stays away would be named once.
_EARLIER = 10

#: Why a site is missing that was expected, and had no part in the job at all.
_ABSENT = (
    "was not connected when the job began, and {why}; start it (startup/start.sh in its kit) and run again, or let it place its "
    "rows later (flareclust assign)"
)

#: Why a site was expected.
_EXPECTED, _REPLACED = "is expected", "had part in the job that this one replaces"
_BEFORE = f"had part in one of your last {_EARLIER} jobs{{}} (those to expect: --expect-sites)"

#: How NVFlare's statuses begin and end.
_FINISHED, _RUNNING, _DISPATCHED, _COMPLETED, _ABORTED = "FINISHED", "RUNNING", "DISPATCHED", "COMPLETED", "ABORTED"

#: How a status ends that a server of ours gives to the jobs that it has lost.
_ABANDONED = "ABANDONED"

_LOST = "the server was started again and has lost the job"
_LOST_OR_UNWRITTEN = "the server has lost the job: it was started again, or its disk was full"

#: So many jobs, the latest first, are looked at for lost ones.
_MOST_LISTED = 200

#: Errors of the folder that a result is written to; others may be of the network.
_OF_THIS_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG))

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Meta = Mapping[str, Any]  # what the server says of a job


class Server:
    """A session that is opened again when it was lost."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self._open = ExitStack()
        self.reopen()

    def reopen(self) -> None:
        """Open a new session in the place of the old one."""
        self.close()
        self.session = self._open.enter_context(open_session(self.kit))

    def close(self) -> None:
        """Close the session."""
        self._open.close()

    def call_with_retry(self, ask: Callable[[Session], _T]) -> _T:
        """Return the answer to a question, asked again in a new session while the server does not answer.

        Raises:
            JobFailed: it did not for `_UNREACHABLE_SECONDS`; or what the question raises that no other try changes.
            UserError: it does not permit the question.
        """
        end = time.monotonic() + _UNREACHABLE_SECONDS
        while True:
            try:
                return ask(self.session)
            except AuthorizationError as error:
                raise UserError(f"the server does not permit this kit to follow its job: {error}") from None
            except UserError:
                raise
            except Exception as error:  # NVFlare's API has a dozen ways to say that the server is gone
                if isinstance(error, JobFailed) and not error.transient:
                    raise
                _log.info("no answer of the server: %s", error)
                if time.monotonic() > end:
                    raise JobFailed(
                        f"the server did not answer for {_UNREACHABLE_SECONDS} s; last: {error}", transient=True
                    ) from error
            time.sleep(POLL_SECONDS)
            with suppress(Exception):  # as above
                self.reopen()

    def await_sites(self, names: Collection[str], seconds: float, number: int | None = None) -> None:
        """Return when so many sites are connected, or else all of these names; after so many seconds in any case.

        Who is missing is logged while it waits.

        Raises:
            JobFailed, UserError: as `call_with_retry`.
        """
        end, said = time.monotonic() + seconds, ""
        while True:
            connected = self.call_with_retry(connected_sites)
            missing = sorted(set(names) - set(connected))
            if time.monotonic() > end or (not missing if number is None else len(connected) >= number):
                return
            whom = "sites" if number is None else f"{number} sites"
            text = f"waiting up to {seconds:g} s for {whom}; connected: {', '.join(connected) or 'none'}"
            text += f"; missing: {', '.join(missing)}" if missing else ""
            if text != said:
                _log.warning("%s", text)
            said = text
            time.sleep(POLL_SECONDS)

    def last_jobs(self) -> list[dict[str, Any]]:
        """Return what the server knows of the last jobs, the latest first; raise JobFailed or UserError as `call_with_retry`."""
        return self.call_with_retry(_last_jobs)

    def find_expected(
        self, name: str, named: Sequence[str] | None, listed: Sequence[_Meta] | None = None, meta: _Meta | None = None
    ) -> dict[str, str]:
        """Return the sites that a job of this name, or any job for "", should have, with the reason why: those that are named, else
        those of this user's last such jobs, of `listed` or at the server; with the `meta` of a job those of its user before it.
        """
        if named is not None:
            return dict.fromkeys(named, _EXPECTED)
        with suppress(Exception):  # as of `lost_jobs`
            before = meta or {"submitter_name": admin_of(self.kit)["username"], "submit_time": math.inf}
            user, end = before["submitter_name"], float(before["submit_time"])
            known = _last_jobs(self.session, name) if listed is None else listed
            own = [one for one in known if one.get("submitter_name") == user and name in ("", one.get("name"))]
            parts = [sites for one in own if float(one.get("submit_time", 0)) < end and (sites := deployed(one))]
            found = sorted(set().union(*parts[:_EARLIER]))
            return dict.fromkeys(found, _BEFORE.format(" of this kind" if name else ""))
        return {}


class JobMonitor:
    """A job at a server, and its last known state; `expected` says of sites that should have part in it why."""

    def __init__(
        self, server: Server, on_round: OnRound, deadline: float, expected: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.server, self.on_round, self.deadline, self.expected = server, on_round, deadline, dict(expected)
        self.id, self.status, self.lost = "", "", False
        self._sites, about = connected_sites(server.session), admin_of(server.kit)
        hints = [ends_soon(server.kit), server_ends_soon(server.kit, about["host"], int(about["port"]))]
        with suppress(Exception):  # not every user may ask
            for site, said in reported_by_hosts(server.session).items():
                hints.append(near_end(f"the certificate of {site}", said["certificate_end"]))
        for hint in filter(None, hints):
            _log.warning("%s", hint)
        for job in lost_jobs(server.session):
            _log.warning("%s", lost_words(job))
        self._server_start = _start_time(server.session)
        self._seen = 0
        self._end = time.monotonic() + deadline
        self._asked = 0.0
        self._odd_since: float | None = None

    @property
    def ended(self) -> bool:
        """Return whether NVFlare has reported the end."""
        return self.status.startswith(_FINISHED)

    def submit(self, folder: Path, token: str | None) -> None:
        """Submit the job, or find one that was submitted with this token and is running or complete.

        Raises:
            UserError: the server does not permit the job, or does not take it.
            JobFailed: it does not answer.
        """
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self.id = self.server.session.submit_job(str(folder), None if token is None else f"{token}-{attempt}")
            except (SubmitTokenConflict, SubmitTokenJobDeleted):
                continue
            except AuthorizationError:
                user = admin_of(self.server.kit)["username"]
                raise UserError(
                    f"{user} may not submit jobs to this server; ask for a kit with the role lead"
                ) from None
            except InvalidJobDefinition as error:
                raise UserError(f"the server does not take the job: {error}") from None
            except Exception as error:
                raise JobFailed(
                    f"the server did not answer when it was given the job ({error})", transient=True
                ) from error
            if token is None or self._is_worth_following():
                _log.info("job %s", self.id)
                return
            self.await_sites_of(self.id)
            self.id = ""
        raise JobFailed(f"{_MOST_ATTEMPTS} jobs with the token {token} have failed already")

    def await_sites_of(self, job: str) -> None:
        """Wait for the sites of a job that this one replaces, whose result depends on them; they are expected from now on."""
        before: set[str] = set()
        with suppress(Exception):  # of a job that is not known the controller says so
            before = deployed(self.server.session.get_job_meta(job))
        new = {site for site in before if self.expected.get(site) != _REPLACED}  # the others have been waited for
        self.expected |= dict.fromkeys(new, _REPLACED)
        self.server.await_sites(new, _RECONNECT_SECONDS)

    def _is_worth_following(self) -> bool:
        """Return whether a job that may have been submitted before is new, complete, or really running."""
        end = time.monotonic() + _DISPATCH_SECONDS
        while True:
            status = self.server.call_with_retry(lambda session: _status(session, self.id))
            if status.startswith(_FINISHED):
                return status.endswith(_COMPLETED)
            if not status.startswith((_RUNNING, _DISPATCHED)) or self.id in self.server.call_with_retry(_running):
                return True
            if status.startswith(_RUNNING) or time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)

    def follow(self) -> None:
        """Return when the job has ended; pass on its rounds.

        Raises:
            JobFailed: at the deadline, or because the server is gone or has lost the job.
        """
        started = time.monotonic()
        while True:
            self.status = self.server.call_with_retry(lambda session: _status(session, self.id))
            if self.status.endswith(_ABANDONED):
                raise JobFailed(_LOST_OR_UNWRITTEN, transient=True)
            if self.ended:
                return
            self._check_not_lost()
            for record in self._new_records():
                self.on_round(record)
            if time.monotonic() > self._end:
                raise beyond(self.deadline)
            pause = min(_MOST_SECONDS, _LATE * (time.monotonic() - started), self._end - time.monotonic())
            time.sleep(max(POLL_SECONDS, pause))

    def _check_not_lost(self) -> None:
        """Raise JobFailed where the server was started again and does not run the job any more; NVFlare never says so."""
        start = self.server.call_with_retry(_start_time)
        if start == self._server_start:
            return
        if not self.status.startswith((_RUNNING, _DISPATCHED)) or self.id in self.server.call_with_retry(_running):
            # It was waiting in the queue, and still is or was started.
            self._server_start, self._odd_since = start, None
            return
        self._odd_since = self._odd_since or time.monotonic()
        if self.status.startswith(_RUNNING) or time.monotonic() - self._odd_since > _DISPATCH_SECONDS:
            self.lost = True
            raise JobFailed(_LOST, transient=True)

    def _new_records(self) -> list[Mapping[str, object]]:
        """Return the exchanges that are new. No answer is no news: the job's process may not be there yet, or no more."""
        if not self.status.startswith(_RUNNING) or time.monotonic() - self._asked < ROUNDS_SECONDS:
            return []
        self._asked = time.monotonic()
        try:
            state = self.server.session.show_stats(self.id, TargetType.SERVER).get("server", {}).get(LIVE, {})
            records, total = list(state.get(RECORDS, [])), int(state.get(EXCHANGES, 0))
        except Exception as error:  # noqa: BLE001 - whatever it is, the status decides about the job
            _log.debug("no statistics: %s", error)
            return []
        fresh = records[max(0, len(records) - (total - self._seen)) :] if total > self._seen else []
        self._seen = max(self._seen, total)
        return fresh

    def fetch(self, scratch: Path) -> Outcome:
        """Return the result of the ended job, or raise JobFailed with the reason."""

        def download(session: Session) -> Path:
            try:
                return Path(session.download_job_result(self.id, str(scratch))) / "workspace"
            except OSError as error:
                if error.errno not in _OF_THIS_DISK:
                    raise
                raise JobFailed(
                    f"the result of the job {self.id} cannot be written to {error.filename or scratch} ({error.strerror}); make "
                    f"room there, or name another folder in TMPDIR, and fetch it: {outcome_files.fetch_command(self.id, self.server.kit)}"
                ) from error

        folder = self.server.call_with_retry(download)
        if self.status.endswith(_ABORTED) or not (folder / outcome_files.SUMMARY).exists():
            raise _reason_of(self.server.session, self.id, self.status, folder)
        outcome, said = outcome_files.read(folder)
        for record in outcome.rounds[self._seen :]:
            self.on_round(record)
        missing = {}
        with suppress(Exception):  # the result is there; who is not in it is a bonus
            refusals = (line.partition(": ") for line in _refusals(self.server.session, self.id))
            reasons = {name: why for name, _, why in refusals}
            missing = {site: f"did not take the job: {reasons[site]}" for site in self._sites if site in reasons}
        there = {*outcome.sites, *missing}
        absent = {site: why for site, why in self.expected.items() if site not in there}
        out = absent.keys() & {*said.get(DISABLED_SITES, ())}
        missing |= {site: DISABLED if site in out else _ABSENT.format(why=why) for site, why in absent.items()}
        sites = sorted({*outcome.sites, *missing})
        return replace(outcome, job=self.id, sites=sites, refused=missing | dict(outcome.refused))

    def abort_unless_ended(self) -> None:
        """Abort the job if it still runs, so that an interrupted or failed caller leaves nothing behind at the sites."""
        if self.id and not self.ended and not self.lost:
            with deferred_signals(), suppress(Exception):  # the reason why we are here must not be hidden
                self.server.reopen()
                self.server.session.abort_job(self.id)


def meta_of(server: Server, job: str) -> dict[str, Any]:
    """Return what a server says of a job, such as `name` and `submit_time` (s since 1970); raise UserError where it knows no such job."""

    def ask(session: Session) -> dict[str, Any]:
        try:
            return dict(session.get_job_meta(job))
        except JobNotFound:
            raise UserError(
                f"the server knows no job {shown(job)}; flareclust status --kit KIT lists the last ones"
            ) from None

    return server.call_with_retry(ask)


def lost_jobs(session: Session, listed: Sequence[_Meta] | None = None) -> list[str]:
    """Return the jobs, of `listed` or of the last ones, that NVFlare lists as running although the server has lost them.

    A server whose kit has `LostJobs` ends them itself. Empty where the server does not permit the question.
    """
    with suppress(Exception):  # NVFlare's API raises a dozen kinds; the question is a courtesy
        said = server_status(session)
        start, running = _start_in(said), _running_in(said)
        return sorted(
            job
            for meta in (_last_jobs(session) if listed is None else listed)
            if str(meta.get(JobMetaKey.STATUS.value, "")).startswith(_RUNNING)
            and float(meta.get(JobMetaKey.SUBMIT_TIME.value, start)) < start
            and (job := str(meta.get(JobMetaKey.JOB_ID.value, ""))) not in running
        )
    return []


def lost_words(job: str) -> str:
    """Return what to say of a lost job."""
    return (
        f"the job {job} was lost when the server was started again, and NVFlare still lists it as RUNNING; `flareclust site allow KIT` "
        "at the server, and a new start, end it"
    )


def _last_jobs(session: Session, name: str = "") -> list[dict[str, Any]]:
    return list(session.list_jobs(detailed=True, limit=_MOST_LISTED, name_prefix=name, reverse=True))


def _start_in(said: Mapping[str, Any]) -> float:
    return float(said.get("server_start_time", 0.0))


def _start_time(session: Session) -> float:
    return _start_in(server_status(session))


def _status(session: Session, job: str) -> str:
    return str(session.get_job_meta(job).get(JobMetaKey.STATUS.value, ""))


def _running_in(said: Mapping[str, Any]) -> set[str]:
    return {str(job.get("job_id")) for job in said.get("jobs", [])}


def _running(session: Session) -> set[str]:
    return _running_in(server_status(session))


def beyond(deadline: float) -> JobFailed:
    """Return the failure of a job that was stopped after so many seconds."""
    return JobFailed(
        f"the job was still running after the deadline of {deadline:g} s and was stopped; give it longer with task_timeout "
        f"(--task-timeout) above {deadline / 3:.0f}: the deadline is three times that, in seconds, or an hour if that is more"
    )


def _reason_of(session: Session, job: str, status: str, folder: Path) -> JobFailed:
    """Return the failure of a job that ended with NVFlare's word `status` and no result; `folder` is what was downloaded."""
    text = log_text(folder / "error_log.txt") + log_text(folder / "log.txt")
    if (fatal := FATAL.search(text)) is not None and fatal.group("reason").strip() != _POLICY:
        return JobFailed(fatal.group("reason").strip())
    if fatal is not None:
        lost = ", ".join(sorted(set(_DISCONNECTED.findall(text))))
        return JobFailed(f"fewer sites are left than the job needs; lost: {lost or 'unknown'}", transient=True)
    if refusals := _refusals(session, job):
        return JobFailed(f"NVFlare did not start the job: {'; '.join(refusals)}")
    server_log = ""
    with suppress(Exception):  # this admin may not search it; whatever it is must not hide that the job has failed
        server_log = str(session.grep_target("server", "", job, "log.txt"))
    return _reported(server_log, job, status)


def _deployment(meta: Mapping[str, Any]) -> list[str]:
    """Return what the server and the sites, as a rule named in front, said of a job's files, a line each."""
    return [str(line) for line in meta.get(JobMetaKey.JOB_DEPLOY_DETAIL.value) or []]


def deployed(meta: Mapping[str, Any]) -> set[str]:
    """Return the sites that took a job's files."""
    return {line.removesuffix(_WELL) for line in _deployment(meta) if line.endswith(_WELL)} - {"server"}


def refusals_in(meta: Mapping[str, Any]) -> list[str]:
    """Return why the server and the sites, as a rule named in front, did not take a job's files, a line each."""
    return [line.replace(_ERROR, "") for line in _deployment(meta) if not line.endswith(_WELL)]


def _refusals(session: Session, job: str) -> list[str]:
    return refusals_in(session.get_job_meta(job))


def _reported(server_log: str, job: str, status: str) -> JobFailed:
    for site, reason in _REPORTED.findall(server_log):
        if reason.strip() in _NOT_ALLOWED:
            sure = "does" if reason.strip() == _NOT_ALLOWED[0] else "could not start the job; most likely it does"
            return JobFailed(
                f"{site} {sure} not allow the classes of flareclust; at the site: flareclust site allow KIT. Its log.txt names the class"
            )
        return JobFailed(
            f"the job's process at {site} ended ({reason.strip()}); the reason is in error_log.txt of that job at {site}",
            transient=True,
        )
    if status.endswith(_ABORTED):
        return JobFailed("the job was aborted by somebody")
    return JobFailed(
        f"NVFlare ended the job {job} with {status} and no reason that this kit may read; see log.txt at the server and at "
        "the sites",
        transient=True,
    )


def log_text(path: Path) -> str:
    """Return the text of a log file; empty where there is none."""
    return path.read_text(errors="replace") if path.exists() else ""
