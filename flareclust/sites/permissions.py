"""What the files of a kit allow: which classes and whose code jobs may bring, what is streamed, who can read what."""

import platform
import stat
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.version import __version__
from flareclust.privacy.policy import Policy, unknown_arrays
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
from flareclust.sites.kit_files import rights_problem
from flareclust.sites.policy_file import PRIVACY, default_scope, other_filters, policy_of, scope_names

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


def summary(policy: Policy) -> dict[str, str]:
    """Return what a policy holds jobs to, a line for each subject."""
    dp, counts = policy.dp, policy.round_counts
    return {
        "rows": f"takes part with {policy.least_rows(private=dp is not None)} or more",
        "small clusters": f"of fewer than {policy.min_count} rows are left out",
        "numbers of rows": "exact" if counts == 1 else f"multiples of {counts}",
        "one message": f"at most {policy.max_centroids} centroids",
        "one job": f"at most {policy.max_rounds} exchanges",
        "arrays": "those of registered algorithms" if policy.arrays is None else ", ".join(policy.arrays),
        "sums": "masked only" if policy.secure_sums else "as they are",
        "masked sums": _summed(policy),
        "differential privacy": "none"
        if dp is None
        else f"at most epsilon {dp.epsilon:g} for a job and {dp.budget:g} for all, at delta {dp.delta:g}, for each {dp.unit}"
        + ("" if dp.colluding is None else f"; at least {dp.colluding} sites may collude"),
    }


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


def _summed(policy: Policy) -> str:
    """Return how many sites masked sums cover, and which."""
    among = "" if policy.secure_sites is None else f", of {', '.join(policy.secure_sites)} only"
    return f"of at least {policy.secure_min_sites} sites{among}"


def _other_filters(local: Path) -> str:
    try:
        return ", ".join(other_filters(local)) or "none"
    except UserError:
        return "unknown"


def _policy_hints(local: Path) -> list[str]:
    try:
        policy, names = policy_of(local), list(scope_names(local))
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
    if (default := default_scope(local)) not in (None, *names):
        found.append(
            f"local/{PRIVACY} has the default_scope {default!r} and no scope of that name, so that NVFlare cannot apply one: "
            f"name one of {', '.join(names)}"
        )
    if len(names) > 1:
        found.append(
            f"local/{PRIVACY} has the scopes {', '.join(names)}; the policy holds in all, but other filters may not, and a job chooses"
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
    if open_ := [path for path in own if path.exists() and _others_read(path)]:
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


def _others_read(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
