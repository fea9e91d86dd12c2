"""Whose jobs may bring code of their own: the right `byoc` in a kit's `local/authorization.json`.

Code in a job is loaded whatever the list of allowed classes says, so that the list protects only where nobody has it.
"""

from collections.abc import Mapping
from typing import Any

from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.security.security import COMMAND_CATEGORIES

RIGHTS = "authorization.json"

_CODE = "byoc"
_SUBMIT = "submit_job"
#: Stands for all rights of a role, and goes before those that are named beside it.
_ALL = "*"
_NOBODY = ("none", "no")


def code_from(permissions: Mapping[str, Any]) -> dict[str, str]:
    """Return the roles whose jobs may bring code, with NVFlare's expression for which of their users."""
    granted = {role: _granted(rights, _CODE) for role, rights in permissions.items()}
    return {role: _text(right) for role, right in granted.items() if _grants(right)}


def without_code(permissions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the permissions with `byoc` refused to every role, and all other rights as they were."""
    return {role: _replaced(rights, "none") for role, rights in permissions.items()}


def with_code(permissions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the permissions with `byoc` for all who may submit jobs; roles that have the right keep it as it is."""
    changed = dict(permissions)
    for role, rights in permissions.items():
        submits = _granted(rights, _SUBMIT)
        if _grants(submits) and not _grants(_granted(rights, _CODE)):
            changed[role] = _replaced(rights, submits)
    return changed


def _replaced(rights: object, expression: object) -> object:
    """Return a role's rights with another expression for `byoc`."""
    named = rights if isinstance(rights, Mapping) else {_ALL: rights}
    named = {_plain(right): one for right, one in named.items()}
    if _ALL not in named:
        return {**named, _CODE: expression}
    if not _grants(named[_ALL]):
        return rights
    return {**dict.fromkeys(_all_rights(), named[_ALL]), _CODE: expression}


def _all_rights() -> list[str]:
    """Return all rights that NVFlare knows: one expression for a whole role cannot have an exception."""
    commands = [name for key, name in vars(AdminCommandNames).items() if key.isupper()]
    alone = sorted({name for name in commands if name not in COMMAND_CATEGORIES} - set(COMMAND_CATEGORIES.values()))
    return [*sorted(set(COMMAND_CATEGORIES.values())), *alone, "server-predeployed-flwr"]


def _granted(rights: object, right: str) -> object:
    if not isinstance(rights, Mapping):
        return rights
    named = {_plain(name): one for name, one in rights.items()}
    return named.get(_ALL, named.get(right, "none"))


def _grants(expression: object) -> bool:
    return any(_plain(one) not in _NOBODY for one in (expression if isinstance(expression, list) else [expression]))


def _text(expression: object) -> str:
    return ", ".join(str(one) for one in expression) if isinstance(expression, list) else str(expression)


def _plain(word: object) -> str:
    """Return a word as NVFlare compares it."""
    return " ".join(str(word).lower().split())
