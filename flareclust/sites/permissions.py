"""What the files of a kit allow: which classes and whose code jobs may bring, what is streamed, who can read and change what.

A job's process runs under the account of its site. So whatever gets a job to run code can write these files, and the next
job would find another policy. No listed class does that; `Watch` is for the day on which one does.
"""

import grp
import hashlib
import os
import platform
import pwd
import stat
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.privacy.policy import summary, unknown_arrays
from flareclust.sites import class_list as classes
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.kit import (
    RESOURCES,
    RIGHTS,
    classes_problem,
    code_from,
    passes_on_everything,
    read_json,
    resources_of,
    rights_of,
)
from flareclust.sites.policy_file import PRIVACY, policy_of, scopes_of

#: What executors have for min_count where a job says nothing.
_MIN_COUNT = 2


def versions() -> str:
    """Return the versions that must be the same everywhere, or nearly so, in a line."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("nvflare", "numpy"))
    return f"flareclust {__version__}, {packages}, Python {platform.python_version()}"


#: Groups of fewer rows give too much of each away.
_LEAST_FLOOR = 6


def is_server(local: Path) -> bool:
    """Return whether this is the folder `local` of a server's kit, which has neither rows nor a policy."""
    return (local.parent / "startup" / "fed_server.json").exists() or "servers" in (_json(resources_of(local)) or {})


def policies(local: Path) -> dict[str, str]:
    """Return what a kit's folder `local` says jobs may do, a line for each subject."""
    resources = _json(resources_of(local))
    found = {"classes": _classes(resources, local), "code in jobs": _byoc(local)}
    if is_server(local):
        return found
    return {
        "classes": found["classes"],
        "error texts": _streaming(resources),
        "code in jobs": found["code in jobs"],
        "policy": _policy_line(local),
        "other filters": _other_filters(local),
    }


def problems(local: Path, name: str) -> list[str]:
    """Return why no job is run under a kit's files, a sentence each; with none of them a job may be.

    Args:
        local: the folder of that name in the kit.
        name: of its site or server.
    """
    found = []
    try:
        found.append(classes_problem(local))
    except UserError as error:
        found.append(f"has a file that cannot be read: {error}")
    found.append(rights_problem(local))
    texts = [f"{name} {problem}" for problem in found if problem is not None]
    try:
        if not is_server(local):
            policy_of(local)
    except UserError as error:
        texts.append(f"{name} has a policy that no job can be held to: {error}")
    return texts


def _streaming(resources: Mapping[str, Any] | None) -> str:
    if resources is None:
        return "unknown"
    return "may go to the server" if resources.get("allow_log_streaming", True) is not False else "stay here"


def _classes(resources: Mapping[str, Any] | None, local: Path) -> str:
    if resources is None:
        return f"unknown ({resources_of(local).name} cannot be read)"
    if classes.open_entries(resources):
        return "every function of flareclust"
    listed = [str(entry) for entry in resources.get(classes.CLASSES, ())]
    wanted = _wanted(local)
    found, others = len({*wanted} & {*listed}), len({*listed} - {*wanted})
    return f"{found} of {len(wanted)} of flareclust, {others} others"


def _wanted(local: Path) -> tuple[str, ...]:
    return classes.of_server() if is_server(local) else classes.of_sites()


def _policy_line(local: Path) -> str:
    try:
        policy = policy_of(local)
    except UserError:
        return "broken"
    if policy is None:
        return "none"
    lines = summary(policy)
    line = f"clusters {lines['small clusters']}; numbers of rows {lines['numbers of rows']}"
    if policy.dp is not None:
        line = f"differentially private numbers only, {lines['differential privacy']}"
    return f"{line}; sums masked only, {lines['masked sums']}" if policy.secure_sums else line


def _other_filters(local: Path) -> str:
    try:
        return ", ".join(scopes_of(local).other_filters) or "none"
    except UserError:
        return "unknown"


def _policy_hints(local: Path) -> list[str]:
    try:
        policy, scopes = policy_of(local), scopes_of(local)
    except UserError:  # which `problems` reports
        return []
    if policy is None:
        return [
            f"no policy: each job says what leaves the site (min_count {_MIN_COUNT}, or what it says): flareclust site policy"
        ]
    found = []
    if policy.dp is None and policy.min_count < _LEAST_FLOOR:
        found.append(
            f"min_count is {policy.min_count}: means of fewer than {_LEAST_FLOOR} rows hide little; 10 is recommended "
            "(flareclust site policy --min-count)"
        )
    if policy.dp is not None and policy.secure_sums and policy.secure_sites is None:
        found.append(
            "the policy asks for masked sums with differential privacy and names no sites, so jobs of dp-lloyd are refused: name the "
            "sites of the federation (flareclust site policy --secure-sites)"
        )
    found += [f"the policy names arrays that no algorithm here sends: {name}" for name in unknown_arrays(policy)]
    names = ", ".join(scopes.names)
    if scopes.default not in (None, *scopes.names):
        found.append(
            f"local/{PRIVACY} has the default_scope {scopes.default!r} and no scope of that name, so that NVFlare cannot apply one: "
            f"name one of {names}"
        )
    if len(scopes.names) > 1:
        found.append(
            f"local/{PRIVACY} has the scopes {names}; the policy holds in all, but other filters may not, and a job chooses"
        )
    return found


def _classes_hints(file: Path) -> list[str]:
    resources = _json(file)
    if resources is None or classes.open_entries(resources):  # which `problems` reports
        return []
    found = []
    listed = [str(entry) for entry in resources.get(classes.CLASSES, ())]
    if missing := {*_wanted(file.parent)} - {*listed}:
        found.append(
            f"{len(missing)} classes of flareclust's jobs are not listed in {file.name}: flareclust site allow"
        )
    if wide := [entry for entry in listed if entry.endswith(".")]:
        found.append(f"jobs may call every function of {', '.join(wide)} ({file.name}): name classes, not packages")
    return found


def hints(local: Path) -> list[str]:
    """Return what its operator may want to change in the kit with this folder `local`, a sentence each."""
    found = []
    found += _classes_hints(resources_of(local))
    if passes_on_everything(_json(resources_of(local)) or {}):
        found.append(
            "the processes of jobs get all environment variables of the one that starts them: flareclust site allow"
        )
    if code_from(_permissions(local)):
        rights = rights_of(local)
        remedy = '"byoc": "none" there' if rights.name == RIGHTS else "flareclust site allow"
        found.append(f"jobs may bring code {_byoc(local)} ({rights.name}), whatever classes are allowed: {remedy}")
    found += [] if is_server(local) else _policy_hints(local)
    own = [local / CONFIG_FILE, *sorted((local.parent / "startup").glob("*.key"))]
    if open_ := [path for path in own if path.exists() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)]:
        names = ", ".join(str(path.relative_to(local.parent)) for path in open_)
        found.append(f"other accounts of this machine can read {names}: chmod 600")
    return found


def chosen(local: Path) -> list[str]:
    """Return what an operator's own files say where `site allow` would say something else, a sentence each."""
    found = []
    own = resources_of(local)
    resources = _json(own) or {}
    if own.name == RESOURCES and resources.get("allow_log_streaming") is True and "servers" not in resources:
        found.append(f"allow_log_streaming: true in {RESOURCES}, the site's error texts may go to the server")
    if rights_of(local).name == RIGHTS:
        found.append(f"byoc in {RIGHTS}: code in jobs {_byoc(local)}")
    return found


def _byoc(local: Path) -> str:
    """Return which roles may submit jobs that bring code of their own."""
    permissions = _permissions(local)
    if not permissions:
        return f"unknown (no local/{RIGHTS})"
    roles = [f"{role} ({right})" for role, right in code_from(permissions).items()]
    return f"from {', '.join(roles)}" if roles else "from nobody"


def _permissions(local: Path) -> Mapping[str, Any]:
    found = (_json(rights_of(local)) or {}).get("permissions")
    return found if isinstance(found, Mapping) else {}


def _json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, empty where there is no file; None where it cannot be read, which `problems` reports."""
    try:
        return read_json(path) if path.exists() else {}
    except UserError:
        return None


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
