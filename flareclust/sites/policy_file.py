"""A site's policy in its kit: the arguments of our two filters in `local/privacy.json`.

NVFlare puts a job under the filters of the scope that the job names, or of the default scope. So our filters stand in every
scope of the file, with the same arguments, and a component puts them around jobs that have found a scope without them
(`flareclust.privacy.filters.EveryScope`). Each filter states its direction, as the server of a simulation reads the same file.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from flareclust._foundation.errors import UserError
from flareclust.privacy.policy import Policy
from flareclust.sites.kit import objects_in, read_json, write_json

#: The file in a kit's folder `local`.
PRIVACY = "privacy.json"

_TASK_FILTER = "flareclust.privacy.filters.SiteTaskPolicy"
_RESULT_FILTER = "flareclust.privacy.filters.SiteResultPolicy"
_GUARD = "flareclust.privacy.filters.EveryScope"
_GUARD_ID = "flareclust_policy"

#: By the key of their list: our filter, and which way what it sees goes, seen from here.
_OURS = {"task_data_filters": (_TASK_FILTER, "in"), "task_result_filters": (_RESULT_FILTER, "out")}

_ANEW = "take the policy away (`flareclust site policy KIT --remove`) and write it anew, with `flareclust site policy KIT` and your settings"

#: What a policy that may be shared says of itself: numbers and truth values, and no bounds, names or fingerprints; and `spent`, what is
#: gone of its budget.
SHARED = (
    *(
        "min_rows",
        "min_count",
        "round_counts",
        "max_centroids",
        "max_rounds",
        "max_numbers_per_row",
        "max_levels_per_row",
    ),
    *("secure_sums", "secure_min_sites", "epsilon", "delta", "budget", "spent"),
)

#: What to do about a file that is no JSON, or has a key twice: no kit comes with one to take in its place.
_DELETE = "correct the file, or delete it and run `flareclust site policy KIT`"


def policy_of(local: Path) -> Policy | None:
    """Return the policy of the site with the folder `local`; None where it has none.

    Raises:
        UserError: the file cannot be read, or does not impose one policy on every job.
    """
    file, content, scopes = _read(local)
    guards = [one for one in _objects(content, "components", file) if one.get("path") == _GUARD]
    found = [*guards, *(ours for scope in scopes for key in _OURS for ours in _ours(scope, key))]
    if not found:
        return None
    if len(guards) != 1 or not scopes:
        raise UserError(f"{file}: must have {_GUARD} once among its components, and a scope; {_ANEW}")
    for scope in scopes:
        for key, (path, direction) in _OURS.items():
            own = [(one.get("path"), str(one.get("direction", direction)).lower()) for one in _ours(scope, key)]
            if own != [(path, direction)]:
                raise UserError(
                    f"{file}: the scope {scope.get('name')!r} must have {path} once among its {key}, so that no job goes "
                    f"without the policy; {_ANEW}"
                )
    arguments = [one.get("args") or {} for one in found]
    if not all(isinstance(args, dict) for args in arguments):
        raise UserError(f"{file}: expected an object as args of flareclust's filters; {_ANEW}")
    try:
        policies = [Policy.of(args) for args in arguments]
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    if any(policy.to_json() != policies[0].to_json() for policy in policies):
        raise UserError(f"{file}: its filters state different policies; {_ANEW}")
    return policies[0]


def shared_rules(local: Path) -> dict[str, Any]:
    """Return what the policy of the site with the folder `local` says, where it says that others may see it; else nothing.

    Raises:
        UserError: as `policy_of` does.
    """
    policy = policy_of(local)
    if policy is None or not policy.share_rules:
        return {}
    said = policy.to_json() | ({} if policy.dp is None else asdict(policy.dp))
    said["min_rows"] = policy.least_rows(private=policy.dp is not None)  # as `site policy` says it at the site
    return {name: said[name] for name in SHARED if said.get(name) is not None}


def write_policy(local: Path, policy: Policy) -> Path:
    """Impose a policy on all jobs at the site with the folder `local`; return the file.

    Other filters and scopes of the operator stay; ours go before other filters, which see what has passed.

    Raises:
        UserError: the file that is there is not what NVFlare reads.
    """
    file, found, scopes = _read(local)
    components = _objects(found, "components", file)
    if not scopes:
        scopes = found["scopes"] = [{"name": "default", "properties": {}}]
        found["default_scope"] = "default"
    for scope in scopes:
        for key, (path, direction) in _OURS.items():
            ours = {"path": path, "direction": direction, "args": policy.to_json()}
            scope[key] = [ours, *(one for one in scope.get(key, []) if not _is_ours(one))]
    guard = {"id": _GUARD_ID, "path": _GUARD, "args": policy.to_json()}
    found["components"] = [guard, *(one for one in components if one.get("path") != _GUARD)]
    local.mkdir(parents=True, exist_ok=True)
    write_json(file, found)
    return file


def remove_policy(local: Path) -> bool:
    """Take the site's policy away, and the file where nothing else is in it; return whether there was one."""
    file, found, scopes = _read(local)
    components = _objects(found, "components", file)
    others = [one for one in components if one.get("path") != _GUARD]
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


class _Scopes(NamedTuple):
    """What NVFlare finds beside our filters: the scopes' names, of which a job may choose one; that of jobs which choose none, None
    where the file names none; and the classes of others' filters.
    """

    names: list[str]
    default: str | None
    other_filters: list[str]


def scopes_of(local: Path) -> _Scopes:
    """Return what a site's file says of scopes; UserError where it is not what NVFlare reads."""
    _, found, scopes = _read(local)
    default = found.get("default_scope")
    filters = (one for scope in scopes for key in _OURS for one in scope.get(key, []))
    others = [str(one.get("path")) for one in filters if not _is_ours(one)]
    return _Scopes([str(scope.get("name")) for scope in scopes], str(default) if default else None, others)


def _read(local: Path) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """Return a site's file, what is in it, nothing where there is none, and the scopes in that."""
    file = local / PRIVACY
    found = read_json(file, _DELETE) if file.exists() else {}
    scopes = _objects(found, "scopes", file)
    for scope in scopes:
        for key in _OURS:
            _objects(scope, key, file)
    return file, found, scopes


def _objects(owner: dict[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    return objects_in(owner.get(name, []), name, file, "NVFlare reads it")


def _ours(scope: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [one for one in scope.get(key, []) if _is_ours(one)]


def _is_ours(one: dict[str, Any]) -> bool:
    return one.get("path") in (_TASK_FILTER, _RESULT_FILTER)
