"""The files of a kit that say what jobs may do: who can change them, and whether they changed while a job ran.

A job's process runs under the account of its site. So whatever gets a job to run code can write these files, and the next
job would find another policy. No listed class does that; this is for the day on which one does.
"""

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

#: In a kit's folder `local`. The last ones are NVFlare's: what is built for every job, limits, logging, and code.
_NAMES = (
    *("privacy.json", "resources.json*", "authorization.json*", "flareclust.yaml"),
    *("job_resources.json*", "comm_config.json*", "log_config.json*", "custom/**/*.py"),
)


def _files_of(local: Path) -> Iterator[Path]:
    """Yield the files in a kit's folder `local` that say what jobs may do, links among them."""
    for pattern in _NAMES:
        yield from sorted(path for path in local.glob(pattern) if path.is_symlink() or path.is_file())


def _fingerprint(local: Path) -> dict[str, str]:
    """Return the SHA-256 of each of these files by its path in `local`."""
    return {path.relative_to(local).as_posix(): _digest(path) for path in _files_of(local)}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def rights_problem(local: Path) -> str | None:
    """Return why another account could change what jobs may do, in words that follow the site's name; None if none can."""
    kit = local.parent
    trusted = {0, os.geteuid(), kit.stat().st_uid}
    for path in (local, *_files_of(local)):
        name = path.relative_to(kit)
        if not path.exists() or not path.resolve().is_relative_to(kit.resolve()):
            return f"has {name} as a link out of its kit; put the file itself there"
        about = path.stat()
        if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and _is_shared(about)):
            return f"has {name}, which other accounts can write; run `chmod go-w local local/*` in its kit"
        if about.st_uid not in trusted:
            return f"has {name}, which belongs to another account than the one that runs it; run `chown` on it"
    return None


def _is_shared(about: os.stat_result) -> bool:
    """Return whether others than the owner may be in a file's group, which is not so where each account has its own."""
    try:
        owner, group = pwd.getpwuid(about.st_uid), grp.getgrgid(about.st_gid)
    except KeyError:
        return True
    return group.gr_gid != owner.pw_gid or group.gr_name != owner.pw_name or bool({*group.gr_mem} - {owner.pw_name})


class Watch:
    """Remembers a kit's files from before a job until after it, in the process that starts the jobs.

    A change while no job runs is the operator's, and holds from the next job on. A change while one runs may be the
    job's: no further job is let in until this process is started anew.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[str] = set()
        self._before: dict[str, str] = {}
        self._changed: set[str] = set()

    def problem(self, local: Path) -> str | None:
        """Return why the next job may not run, in words that follow the site's name; None if it may."""
        with self._lock:
            self._compare(local)
            if not self._changed:
                return None
            names = ", ".join(f"local/{name}" for name in sorted(self._changed))
            return (
                f"takes no job, since {names} changed while a job ran: look at what is there now, with flareclust site "
                "check KIT, and then start the site anew"
            )

    def started(self, job: str, local: Path) -> None:
        """Note that a job runs."""
        with self._lock:
            self._compare(local, starting=True)
            self._running.add(job)

    def ended(self, job: str, local: Path) -> list[str]:
        """Note that a job has ended; return the paths of the files that changed while jobs ran."""
        with self._lock:
            self._compare(local)
            self._running.discard(job)
            return sorted(self._changed)

    def _compare(self, local: Path, *, starting: bool = False) -> None:
        now = _fingerprint(local)
        if not self._running and not (starting and self._before):
            self._before = now
            return
        names = self._before.keys() | now.keys()
        self._changed |= {name for name in names if self._before.get(name) != now.get(name)}
