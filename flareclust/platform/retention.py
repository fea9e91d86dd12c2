"""What grows for ever in a federation, and goes when it is old: jobs at the server, and folders of jobs at a site.

Ledgers of privacy never go, nor what an account's spendings are explained by, nor what nobody has fetched or saved.
"""

import re
import shutil
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from flareclust._foundation.errors import UserError
from flareclust.data.labels import LABELS_FILE
from flareclust.platform.session import admin_of, delete_job, ended_jobs, open_session
from flareclust.protocol.outcome import SUMMARY
from flareclust.sites.account import jobs_of
from flareclust.sites.check import local_of
from flareclust.sites.kit import read_json
from flareclust.sites.running import job_runs, owner_without_jobs

#: NVFlare's names of jobs.
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Old(NamedTuple):
    """A job that is old: its number, its time (UTC), and why it is kept; None where it goes."""

    job: str
    at: str
    kept: str | None


def prune(
    kit: Path, days: float, *, results: Path, unfetched: bool = False, labels: bool = False, dry_run: bool = False
) -> list[_Old]:
    """Remove what is older than so many days: with a lead's kit own jobs at the server, in a site's kit folders of jobs.

    Args:
        kit: of a lead, a site or a server.
        days: at least 1, so that nothing that may go on is old.
        results: the folder with the lead's results, which says what was fetched.
        unfetched: whether results at the server go that are not in that folder.
        labels: whether folders of a site go that hold labels.
        dry_run: whether nothing is removed.

    Returns:
        All that is old, the oldest first.

    Raises:
        UserError: the folder is no kit, or the site's account cannot be read.
        JobFailed: the server does not answer.
    """
    if not days >= 1:
        raise UserError(f"a job is old after at least 1 day, got {days:g}")
    before = time.time() - days * 24 * 3600
    if owner_without_jobs(kit) == "a user":
        return _prune_server(kit, before, None if unfetched else _fetched(results), dry_run)
    return _prune_folders(kit, before, labels, dry_run)


def _prune_server(kit: Path, before: float, fetched: set[str] | None, dry_run: bool) -> list[_Old]:
    found = []
    with open_session(kit) as session:
        for job, at, may_have_result in sorted(ended_jobs(session, admin_of(kit)["username"]), key=lambda one: one[1]):
            if at < before:
                needed = may_have_result and fetched is not None and job not in fetched
                found.append(
                    _Old(job, _date(at), "what it may have found is in none of your results" if needed else None)
                )
                if not dry_run and not needed:
                    delete_job(session, job)
    return found


def _fetched(results: Path) -> set[str]:
    """Return the jobs whose results are in a folder or below it."""
    found = set()
    for file in results.rglob(SUMMARY):
        with suppress(UserError):  # somebody else's file
            found.add(str(read_json(file).get("job")))
    return found


def _prune_folders(kit: Path, before: float, labels: bool, dry_run: bool) -> list[_Old]:
    local, found = local_of(kit), []
    spent = jobs_of(local)
    for folder in sorted(kit.iterdir()):
        if not _JOB.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
            continue
        if (changed := max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))) >= before:
            continue
        kept = "the privacy ledger has its spendings" if folder.name in spent else None
        if (folder / LABELS_FILE).exists() and not labels:
            kept = f"{LABELS_FILE} is in it; save the labels that you need, then --labels"
        if job_runs(folder.name):  # it may wait for others, and write nothing for days
            kept = "a process of the job runs"
        found.append(_Old(folder.name, _date(changed), kept))
        if kept is None and not dry_run:
            shutil.rmtree(folder)
    return sorted(found, key=lambda one: one.at)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds")[:10]
