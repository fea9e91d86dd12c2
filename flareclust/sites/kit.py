"""The files in a kit's `local/` that NVFlare reads before it runs a job: how they are read and written, and what they permit.

NVFlare reads `resources.json` and, only where that is absent, `resources.json.default`; `authorization.json` likewise.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import write_atomically
from flareclust._foundation.settings_file import LONGEST_JSON, NotPlain, parse_json, read_text
from flareclust.sites import class_list as classes

RESOURCES, RIGHTS = "resources.json", "authorization.json"

#: In the kit's own folder, where NVFlare's server writes it: whom `nvflare system disable-client` keeps out.
_DISABLED = "disabled_clients.json"

#: NVFlare's launchers of jobs, and ours in their places.
LAUNCHERS = {
    "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher": "flareclust.launcher.SiteProcessLauncher",
    "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher": "flareclust.launcher.ServerProcessLauncher",
}


def resources_of(local: Path) -> Path:
    """Return the file in a kit's folder `local` that NVFlare reads."""
    return _read_by_nvflare(local, RESOURCES)


def rights_of(local: Path) -> Path:
    """Return the file in a kit's folder `local` that says who may do what."""
    return _read_by_nvflare(local, RIGHTS)


def _read_by_nvflare(local: Path, name: str) -> Path:
    own = local / name
    return own if own.exists() else local / f"{name}.default"


def classes_problem(local: Path, named: Iterable[str] = ()) -> str | None:
    """Return why a job may not run at the site or server with the folder `local`, by its list of classes.

    The job's settings may name import paths, such as that of a network of the user's own.
    """
    file = resources_of(local)
    if not file.exists():
        return None
    resources = read_json(file)
    return classes.problem_of(resources, file) or classes.unlisted(resources, named, file)


def passes_on_everything(resources: Mapping[str, Any]) -> bool:
    """Return whether the processes of jobs get all environment variables, as from NVFlare's own launchers."""
    found = resources.get("components", ())
    return any(isinstance(one, Mapping) and one.get("path") in LAUNCHERS for one in found)


def disabled_sites(kit: Path) -> list[str]:
    """Return the names of the sites that the server of a kit keeps out.

    Raises:
        UserError: its list of them cannot be read.
    """
    file = kit / _DISABLED
    found = read_json(file).get("disabled_clients") if file.exists() else []
    if not isinstance(found, list):
        raise UserError(f"{file}: expected a list of names as disabled_clients, as NVFlare's server writes it")
    return sorted(map(str, found))


def objects_in(
    value: object, name: str, file: Path, whose: str = "NVFlare's provisioning makes it"
) -> list[dict[str, Any]]:
    """Return a list of objects that stands in a file of a kit under a name; raise UserError where it is none."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise UserError(f"{file}: expected a list of objects as {name}, as {whose}")
    return value


def read_json(file: Path, remedy: str = "correct it, or take the kit's own file again") -> dict[str, Any]:
    """Return the object in a file of a kit.

    Raises:
        UserError: there is none; the text ends with the remedy.
    """
    try:
        resources = parse_json(read_text(file, LONGEST_JSON))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except NotPlain as reason:
        raise UserError(f"{file} {reason}; {remedy}") from None
    if not isinstance(resources, dict):
        raise UserError(f"{file}: expected a JSON object, got {type(resources).__name__}")
    return resources


def write_json(file: Path, resources: dict[str, Any], mode: int = 0o644) -> None:
    """Replace the file as a whole, so that a site that starts meanwhile reads the old one or the new one.

    A new file has this mode, an old one keeps its own.
    """
    mode = file.stat().st_mode & 0o777 if file.exists() else mode
    try:
        with write_atomically(file, mode=mode, shared=True) as out:
            out.write(json.dumps(resources, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


#: The right of those whose jobs may bring code of their own.
_CODE = "byoc"
_SUBMIT = "submit_job"
#: The rights to see the state of server and sites, and their versions; NVFlare has the latter in none of its categories of rights.
_VIEW, _VERSIONS = "view", "report_version"
#: Stands for all rights of a role, and goes before those that are named beside it.
_ALL = "*"
_NOBODY = ("none", "no")


def code_from(permissions: Mapping[str, Any]) -> dict[str, str]:
    """Return the roles whose jobs may bring code, with NVFlare's expression for which of their users."""
    granted = {role: _granted(rights, _CODE) for role, rights in permissions.items()}
    said = {role: right if isinstance(right, list) else [right] for role, right in granted.items() if _grants(right)}
    return {role: ", ".join(map(str, words)) for role, words in said.items()}


def without_code(permissions: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return a kit's permissions with `byoc` refused to every role, and all other rights, which NVFlare knows, as they were."""
    return {role: _replaced(rights, "none", known) for role, rights in permissions.items()}


def with_code(permissions: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the permissions with `byoc` for all who may submit jobs; roles that have the right keep it as it is."""
    changed = dict(permissions)
    for role, rights in permissions.items():
        submits = _granted(rights, _SUBMIT)
        if _grants(submits) and not _grants(_granted(rights, _CODE)):
            changed[role] = _replaced(rights, submits, known)
    return changed


def with_versions(permissions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the permissions with the right to ask for versions for all who may see the state of server and sites."""
    changed = dict(permissions)
    for role, rights in permissions.items():
        named = _named(rights)
        if _VIEW in named and not {_ALL, _VERSIONS} & named.keys():
            changed[role] = {**rights, _VERSIONS: named[_VIEW]}
    return changed


def _named(rights: object) -> dict[str, object]:
    """Return a role's rights by name; one expression is for all of them."""
    return {_plain(right): one for right, one in rights.items()} if isinstance(rights, Mapping) else {_ALL: rights}


def _replaced(rights: object, expression: object, known: Sequence[str]) -> object:
    """Return a role's rights with another expression for `byoc`."""
    named = _named(rights)
    if _ALL not in named:
        return {**named, _CODE: expression}
    return rights if not _grants(named[_ALL]) else {**dict.fromkeys(known, named[_ALL]), _CODE: expression}


def _granted(rights: object, right: str) -> object:
    named = _named(rights)
    return named.get(_ALL, named.get(right, "none"))


def _grants(expression: object) -> bool:
    return any(_plain(one) not in _NOBODY for one in (expression if isinstance(expression, list) else [expression]))


def _plain(word: object) -> str:
    """Return a word as NVFlare compares it."""
    return " ".join(str(word).lower().split())
