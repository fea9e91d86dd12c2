"""A site's policy in its kit: the arguments of our two filters in `local/privacy.json`.

NVFlare puts a job under the filters of the scope that the job names, or of the default scope. So our filters stand in every
scope of the file, with the same arguments, and a component puts them around jobs that have found a scope without them
(`flareclust.privacy.filters.EveryScope`). Each filter states its direction, as the server of a simulation reads the same file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.privacy.policy import Policy
from flareclust.sites.kit import read_json, write_json

#: The file in a kit's folder `local`.
PRIVACY = "privacy.json"

_TASK_FILTER = "flareclust.privacy.filters.SiteTaskPolicy"
_RESULT_FILTER = "flareclust.privacy.filters.SiteResultPolicy"
GUARD = "flareclust.privacy.filters.EveryScope"
_GUARD_ID = "flareclust_policy"

#: By the key of their list: our filter, and which way what it sees goes, seen from here.
_OURS = {"task_data_filters": (_TASK_FILTER, "in"), "task_result_filters": (_RESULT_FILTER, "out")}

_ANEW = "take the policy away (`flareclust site policy KIT --remove`) and write it anew, with `flareclust site policy KIT` and your settings"

#: What to do about a file that is no JSON, or has a key twice: no kit comes with one to take in its place.
_DELETE = "correct the file, or delete it and run `flareclust site policy KIT`"


def policy_of(local: Path) -> Policy | None:
    """Return the policy of the site with the folder `local`; None where it has none.

    Raises:
        UserError: the file cannot be read, or does not impose one policy on every job.
    """
    file = local / PRIVACY
    if not file.exists():
        return None
    content = read_json(file, _DELETE)
    scopes, guards, found = _all_ours(content, file)
    if not found:
        return None
    if len(guards) != 1 or not scopes:
        raise UserError(f"{file}: must have {GUARD} once among its components, and a scope; {_ANEW}")
    for scope in scopes:
        for key, (path, direction) in _OURS.items():
            own = _ours(scope, key)
            if [one.get("path") for one in own] != [path] or str(
                own[0].get("direction", direction)
            ).lower() != direction:
                raise UserError(
                    f"{file}: the scope {scope.get('name')!r} must have {path} once among its {key}, so that no job goes "
                    f"without the policy; {_ANEW}"
                )
    try:
        policies = [Policy.of(args) for args in _arguments(found, file)]
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if any(policy.to_json() != policies[0].to_json() for policy in policies):
        raise UserError(f"{file}: its filters state different policies; {_ANEW}")
    return policies[0]


def write_policy(local: Path, policy: Policy) -> Path:
    """Impose a policy on all jobs at the site with the folder `local`; return the file.

    Other filters and scopes of the operator stay; ours go before other filters, which see what has passed.

    Raises:
        UserError: the file that is there is not what NVFlare reads.
    """
    file = local / PRIVACY
    found = read_json(file, _DELETE) if file.exists() else {}
    scopes, components = _scopes(found, file), _components(found, file)
    if not scopes:
        scopes = found["scopes"] = [{"name": "default", "properties": {}}]
        found["default_scope"] = "default"
    for scope in scopes:
        for key, (path, direction) in _OURS.items():
            ours = {"path": path, "direction": direction, "args": policy.to_json()}
            scope[key] = [ours, *(one for one in scope.get(key, []) if not _is_ours(one))]
    guard = {"id": _GUARD_ID, "path": GUARD, "args": policy.to_json()}
    found["components"] = [guard, *(one for one in components if one.get("path") != GUARD)]
    local.mkdir(parents=True, exist_ok=True)
    write_json(file, found)
    return file


def remove_policy(local: Path) -> bool:
    """Take the site's policy away, and the file where nothing else is in it; return whether there was one."""
    file = local / PRIVACY
    if not file.exists():
        return False
    found = read_json(file, _DELETE)
    scopes = _scopes(found, file)
    components = _components(found, file)
    others = [one for one in components if one.get("path") != GUARD]
    had = len(others) < len(components) or any(_ours(scope, key) for scope in scopes for key in _OURS)
    for scope in scopes:
        for key in _OURS:
            scope[key] = [one for one in scope.get(key, []) if not _is_ours(one)]
    found["components"] = others
    bare = len(scopes) <= 1 and not any(scope[key] or scope.get("properties") for scope in scopes for key in _OURS)
    if had and bare and not others:
        file.unlink()
    elif had:
        write_json(file, found)
    return had


def other_filters(local: Path) -> list[str]:
    """Return the classes of the filters in the file that are not ours."""
    file = local / PRIVACY
    scopes = _scopes(read_json(file, _DELETE), file) if file.exists() else []
    return [
        str(one.get("path")) for scope in scopes for key in _OURS for one in scope.get(key, []) if not _is_ours(one)
    ]


def _all_ours(
    content: dict[str, Any], file: Path
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the scopes of a file, our component, as often as it is there, and that with our filters of all scopes."""
    scopes, guards = _scopes(content, file), [one for one in _components(content, file) if one.get("path") == GUARD]
    return scopes, guards, [*guards, *(ours for scope in scopes for key in _OURS for ours in _ours(scope, key))]


def _arguments(found: list[dict[str, Any]], file: Path) -> list[dict[str, Any]]:
    arguments = [one.get("args") or {} for one in found]
    if not all(isinstance(args, dict) for args in arguments):
        raise UserError(f"{file}: expected an object as args of flareclust's filters; {_ANEW}")
    return arguments


def _scopes(found: dict[str, Any], file: Path) -> list[dict[str, Any]]:
    scopes = found.get("scopes", [])
    if not isinstance(scopes, list) or not all(isinstance(scope, dict) for scope in scopes):
        raise UserError(f"{file}: expected a list of objects as scopes, as NVFlare reads it")
    for scope in scopes:
        for key in _OURS:
            filters = scope.get(key, [])
            if not isinstance(filters, list) or not all(isinstance(one, dict) for one in filters):
                raise UserError(f"{file}: expected a list of objects as {key}, as NVFlare reads it")
    return scopes


def _components(found: dict[str, Any], file: Path) -> list[dict[str, Any]]:
    components = found.get("components", [])
    if not isinstance(components, list) or not all(isinstance(one, dict) for one in components):
        raise UserError(f"{file}: expected a list of objects as components, as NVFlare reads it")
    return components


def _ours(scope: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [one for one in scope.get(key, []) if _is_ours(one)]


def _is_ours(one: dict[str, Any]) -> bool:
    return one.get("path") in (_TASK_FILTER, _RESULT_FILTER)


def scope_names(local: Path) -> Iterator[str]:
    """Yield the names of the file's scopes; a job may choose one."""
    file = local / PRIVACY
    yield from (str(scope.get("name")) for scope in (_scopes(read_json(file, _DELETE), file) if file.exists() else []))


def default_scope(local: Path) -> str | None:
    """Return the name of the scope for jobs that name none, which the file need not have; None where it names none."""
    file = local / PRIVACY
    found = read_json(file, _DELETE).get("default_scope") if file.exists() else None
    return None if not found else str(found)
