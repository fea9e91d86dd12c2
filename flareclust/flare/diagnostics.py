"""Why a job failed, put together from what NVFlare leaves at the server.

The job's own log has what the controller said. What a site's starter reported is in the server's log, which an admin of
the server's organisation may search.
"""

import re
from contextlib import suppress
from pathlib import Path

from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.flare_api import Session

from flareclust._foundation.errors import JobFailed

#: The controller's own words, or NVFlare's, in the log of the job.
FATAL = re.compile(r"FATAL_SYSTEM_ERROR received: (?P<reason>.*)")

#: NVFlare's words where too few sites are left, and those before it that name the lost ones.
_POLICY = "Aborting job due to deployment policy violation"
_DISCONNECTED = re.compile(r"Client (?P<site>\S+) is deemed disconnected")

#: What the server's log says when a site has reported that its process failed.
_REPORTED = re.compile(r"due to reported failure from (?P<site>[^\s:.]+)\S*: (?P<reason>.*)")

#: How a line about a deployment ends where all is well.
_WELL = ": OK"

#: What a site reports if its list of classes does not have ours: the second where NVFlare's own launcher starts its jobs.
_NOT_ALLOWED = ("unsafe component", "infrastructure error")


def beyond(deadline: float) -> JobFailed:
    """Return the failure of a job that was stopped after so many seconds."""
    return JobFailed(
        f"the job was still running after the deadline of {deadline:g} s and was stopped; give it longer with task_timeout "
        f"(--task-timeout) above {deadline / 3:.0f}: the deadline is three times that, in seconds, or an hour if that is more"
    )


def reason_of(session: Session, job: str, status: str, folder: Path) -> JobFailed:
    """Return the failure of a job that ended without a result.

    Args:
        session: with the server.
        job: the job's id.
        status: NVFlare's word.
        folder: what was downloaded of the job.
    """
    text = log_text(folder / "error_log.txt") + log_text(folder / "log.txt")
    if (fatal := FATAL.search(text)) is not None and fatal.group("reason").strip() != _POLICY:
        return JobFailed(fatal.group("reason").strip())
    if fatal is not None:
        lost = ", ".join(sorted(set(_DISCONNECTED.findall(text))))
        return JobFailed(f"fewer sites are left than the job needs; lost: {lost or 'unknown'}", transient=True)
    if refusals := [line for line in _deployment(session, job) if not line.endswith(_WELL)]:
        return JobFailed(f"NVFlare did not start the job: {'; '.join(refusals)}")
    return _reported(_server_log(session, job), job, status)


def undeployed(session: Session, job: str) -> dict[str, str]:
    """Return why the job was not deployed, by what NVFlare names in front of it: a site, as a rule."""
    problems = [line.partition(": ") for line in _deployment(session, job) if not line.endswith(_WELL)]
    return {name: why for name, _, why in problems}


def _deployment(session: Session, job: str) -> list[str]:
    """Return what the server and the sites said when they were given the job's files, a line each."""
    return [str(line) for line in session.get_job_meta(job).get(JobMetaKey.JOB_DEPLOY_DETAIL.value) or []]


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
    if status.endswith("ABORTED"):
        return JobFailed("the job was aborted by somebody")
    return JobFailed(
        f"NVFlare ended the job {job} with {status} and no reason that this kit may read; see log.txt at the server and at "
        "the sites",
        transient=True,
    )


def _server_log(session: Session, job: str) -> str:
    """Return the lines about the job in the server's log; nothing where this admin may not search it."""
    with suppress(Exception):  # whatever goes wrong here must not hide that the job has failed
        return str(session.grep_target("server", "", job, "log.txt"))
    return ""


def log_text(path: Path) -> str:
    """Return the text of a log file; empty where there is none."""
    return path.read_text(errors="replace") if path.exists() else ""
