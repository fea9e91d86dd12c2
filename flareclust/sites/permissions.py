"""What the files of a kit allow: which classes and whose code jobs may bring, what is streamed, who can read and change what.

A job's process runs under the account of its site. So whatever gets a job to run code can write these files, and the next
job would find another policy. No listed class does that; `Watch` is for the day on which one does.
"""

import hashlib
import os
import platform
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require_posix
from flareclust._foundation.version import __version__
from flareclust.privacy.policy import Policy, summary, unknown_arrays
from flareclust.privacy.secure_aggregation.own_identity import IDENTITY, described, read_identity
from flareclust.sites import class_list as classes
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.kit import (
    RESOURCES,
    RIGHTS,
    classes_problem,
    code_from,
    disabled_sites,
    passes_on_everything,
    read_json,
    resources_of,
    rights_of,
)
from flareclust.sites.policy_file import PRIVACY, policy_of, scopes_of
from flareclust.sites.withdrawn import WITHDRAWN_FILE

#: What executors have for min_count where a job says nothing.
_MIN_COUNT = 2


def versions() -> str:
    """Return the versions that must be the same everywhere, or nearly so, in a line."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("nvflare", "numpy"))
    return f"flareclust {__version__}, {packages}, Python {platform.python_version()}"


#: Groups of fewer rows give too much of each away.
_LEAST_FLOOR = 6


class KitFiles:
    """What the files in a kit's folder `local` say, each read once; what cannot be read is a problem, and says nothing else.

    Args:
        local: the folder of that name in the kit of a site or a server.
    """

    def __init__(self, local: Path) -> None:
        self.local = local
        self._resources, self._rights = _json(resources_of(local)), _json(rights_of(local)) or {}
        found = self._rights.get("permissions")
        self._permissions: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
        #: Whether it is a server's, which has neither rows nor a policy.
        self.of_server = (local.parent / "startup" / "fed_server.json").exists() or "servers" in (self._resources or {})
        self._wanted = classes.of_server() if self.of_server else classes.of_sites()
        self._listed = [str(entry) for entry in (self._resources or {}).get(classes.CLASSES, ())]
        #: The site's policy; None where it has none, or one that no job can be held to.
        self.policy: Policy | None = None
        self._scopes, self._no_policy = None, None
        self._identity, self._no_identity = "none", None
        if not self.of_server:
            try:
                self._identity = described(read_identity(local))
            except UserError as error:
                self._identity, self._no_identity = "broken", f"has an identity that signs nothing: {error}"
            with suppress(UserError):
                self._scopes = scopes_of(local)
            try:
                self.policy = policy_of(local)
            except UserError as error:
                self._no_policy = str(error)

    def facts(self) -> dict[str, str]:
        """Return what jobs may do, a line for each subject."""
        classes_line, code = self._classes(), self._byoc()
        if self.of_server:
            return {"classes": classes_line, "code in jobs": code, "disabled sites": self._disabled()}
        streams = None if self._resources is None else self._resources.get("allow_log_streaming", True) is not False
        texts = "unknown" if streams is None else "may go to the server" if streams else "stay here"
        others = "unknown" if self._scopes is None else ", ".join(self._scopes.other_filters) or "none"
        jobs = {"classes": classes_line, "error texts": texts, "code in jobs": code}
        return {**jobs, "policy": self._policy_line(), "other filters": others, "identity": self._identity}

    def problems(self, name: str) -> list[str]:
        """Return why no job is run under these files at the site or server of this name, a sentence each."""
        try:
            disabled_sites(self.local.parent)
            found = [classes_problem(self.local)]
        except UserError as error:
            found = [f"has a file that cannot be read: {error}"]
        found.append(rights_problem(self.local))
        found.append(self._no_identity)
        found.append(None if self._no_policy is None else f"has a policy that no job can be held to: {self._no_policy}")
        return [f"{name} {problem}" for problem in found if problem is not None]

    def hints(self) -> list[str]:
        """Return what its operator may want to change in the kit, a sentence each."""
        found, local = self._classes_hints(), self.local
        if passes_on_everything(self._resources or {}):
            found.append(
                "the processes of jobs get all environment variables of the one that starts them: flareclust site allow"
            )
        if code_from(self._permissions):
            rights = rights_of(local)
            remedy = '"byoc": "none" there' if rights.name == RIGHTS else "flareclust site allow"
            found.append(f"jobs may bring code {self._byoc()} ({rights.name}), whatever classes are allowed: {remedy}")
        found += self._policy_hints()
        own = [
            local / CONFIG_FILE,
            local / IDENTITY,
            local / WITHDRAWN_FILE,
            *sorted((local.parent / "startup").glob("*.key")),
        ]
        if open_ := [path for path in own if path.exists() and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)]:
            names = ", ".join(str(path.relative_to(local.parent)) for path in open_)
            found.append(f"other accounts of this machine can read {names}: chmod 600")
        return found

    def chosen(self) -> list[str]:
        """Return what an operator's own files say where `site allow` would say something else, a sentence each."""
        found, resources = [], self._resources or {}
        own = resources_of(self.local).name == RESOURCES
        if own and resources.get("allow_log_streaming") is True and "servers" not in resources:
            found.append(f"allow_log_streaming: true in {RESOURCES}, the site's error texts may go to the server")
        if rights_of(self.local).name == RIGHTS:
            found.append(f"byoc in {RIGHTS}: code in jobs {self._byoc()}")
        return found

    def _classes(self) -> str:
        if self._resources is None:
            return f"unknown ({resources_of(self.local).name} cannot be read)"
        if classes.open_entries(self._resources):
            return "every function of flareclust"
        wanted, listed = {*self._wanted}, {*self._listed}
        return f"{len(wanted & listed)} of {len(self._wanted)} of flareclust, {len(listed - wanted)} others"

    def _classes_hints(self) -> list[str]:
        if self._resources is None or classes.open_entries(self._resources):  # which `problems` reports
            return []
        found, file = [], resources_of(self.local).name
        if missing := {*self._wanted} - {*self._listed}:
            found.append(f"{len(missing)} classes of flareclust's jobs are not listed in {file}: flareclust site allow")
        if wide := [entry for entry in self._listed if entry.endswith(".")]:
            found.append(f"jobs may call every function of {', '.join(wide)} ({file}): name classes, not packages")
        return found

    def _disabled(self) -> str:
        """Return which sites the server keeps out."""
        try:
            return ", ".join(disabled_sites(self.local.parent)) or "none"
        except UserError:
            return "unknown"

    def _byoc(self) -> str:
        """Return which roles may submit jobs that bring code of their own."""
        if not self._permissions:
            return f"unknown (no local/{RIGHTS})"
        roles = [f"{role} ({right})" for role, right in code_from(self._permissions).items()]
        return f"from {', '.join(roles)}" if roles else "from nobody"

    def _policy_line(self) -> str:
        policy = self.policy
        if policy is None:
            return "none" if self._no_policy is None else "broken"
        lines = summary(policy)
        line = f"clusters {lines['small clusters']}; numbers of rows {lines['numbers of rows']}"
        if policy.dp is not None:
            line = f"differentially private numbers only, {lines['differential privacy']}"
        return f"{line}; sums masked only, {lines['masked sums']}" if policy.secure_sums else line

    def _policy_hints(self) -> list[str]:
        policy, scopes = self.policy, self._scopes
        if scopes is None or self._no_policy is not None:  # a server's, or broken, which `problems` reports
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
        found += self._identity_hints(policy)
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

    def _identity_hints(self, policy: Policy) -> list[str]:
        """Return what is missing for sums that the issuer of certificates cannot read either, a sentence each."""
        pins, sites = policy.secure_identities or {}, policy.secure_sites or ()
        if not (policy.secure_sums or pins):
            return []
        found, pin = [], "flareclust site policy --secure-identities, with what flareclust site identity prints there"
        if self._identity == "none":
            found.append(
                "secure sums rest on the kit's certificate alone, for the site has no identity of its own: flareclust site allow"
            )
        if not pins:
            found.append(f"the policy pins no identity of another site, so that their certificates count: {pin}")
        elif not sites:
            found.append(
                "the policy pins identities and names no sites, so that kits made for the purpose can be among them: flareclust site "
                "policy --secure-sites"
            )
        elif others := [site for site in sites if site not in pins and site != self.local.parent.name]:
            found.append(f"the policy pins no identity of {', '.join(others)}, whose certificates count: {pin}")
        return found


def _json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, empty where there is no file; None where it cannot be read, which `problems` reports."""
    try:
        return read_json(path) if path.exists() else {}
    except UserError:
        return None


#: In a kit's folder `local`. The last ones are NVFlare's: what is built for every job, limits, logging, and code.
_NAMES = (
    *("privacy.json", "resources.json*", "authorization.json*", "flareclust.yaml", IDENTITY),
    *("job_resources.json*", "comm_config.json*", "log_config.json*", "custom/**/*.py"),
)


def _files_of(local: Path) -> Iterator[Path]:
    """Yield the files in a kit's folder `local` that say what jobs may do, links among them."""
    for pattern in _NAMES:
        yield from sorted(path for path in local.glob(pattern) if path.is_symlink() or path.is_file())


def _fingerprint(local: Path) -> dict[str, str]:
    """Return the SHA-256 of each of these files by its path in `local`, or why it cannot be read."""
    found = {}
    for path in _files_of(local):
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            digest = f"cannot be read ({error.strerror})"
        found[path.relative_to(local).as_posix()] = digest
    return found


def rights_problem(local: Path) -> str | None:
    """Return why another account could change what jobs may do, in words that follow the site's name; None if none can."""
    require_posix("a site or server of a federation")
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
    import grp  # not on Windows, which has no accounts of this kind
    import pwd

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
