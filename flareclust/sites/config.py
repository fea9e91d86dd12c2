"""What a site's `local/flareclust.yaml` may say, checked; and how it is written.

The texts of refusals travel to the server: they name keys, never values.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

import psutil
import yaml

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings_file import NotPlain, Twice, parse_yaml, read_text
from flareclust._foundation.typing import Agreement, Reading
from flareclust._foundation.validation import did_you_mean
from flareclust.data.tables import FORMATS
from flareclust.sites.files import for_site

CONFIG_FILE = "flareclust.yaml"

KEYS = (
    *("path", "format", "root", "columns", "id", "min_rows", "max_rows"),
    *("memory", "scratch", "labels", "account", "agreement", "salt", "hide"),
)

#: The account of rows that are gone with their kit, or that only a simulation reads: of the kit, and not of their place.
ACCOUNT_IN_KIT = "../account"

#: A shorter salt can be found by trying, as what is hashed with it travels.
SHORTEST_SALT = 16

#: More rows than any site has, and no number that takes long to write.
_MOST = 2**63

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?")
_POWER = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def read_config(local: Path) -> dict[str, Any]:
    """Return what the file in a site's folder `local` says; its keys are known ones.

    Raises:
        Refusal: the file is missing, is no YAML, has no path or has unknown keys.
    """
    file = local / CONFIG_FILE
    if not file.is_file():
        raise Refusal(f"has no local/{CONFIG_FILE}, which says where its rows are; flareclust site init writes it")
    try:
        config = parse_yaml(read_text(file))
    except OSError as error:
        raise Refusal(f"has a local/{CONFIG_FILE} that cannot be read ({error.strerror})") from None
    except Twice as twice:
        key = repr(twice.key) if twice.key in KEYS else "a key"  # others may be names of sites or columns
        raise Refusal(f"has a local/{CONFIG_FILE} with {key} twice, again in line {twice.line}; leave one") from None
    except NotPlain as reason:
        raise Refusal(f"has a local/{CONFIG_FILE} that {reason}") from None
    if not isinstance(config, dict) or not isinstance(config.get("path"), str | dict):
        raise no_path()
    if unknown := sorted(set(map(_shown, config)) - set(KEYS)):
        hints = ", ".join(f"{key}{did_you_mean(key, KEYS)}" for key in unknown)
        raise Refusal(f"has unknown keys in local/{CONFIG_FILE}: {hints}")
    return config


def _shown(key: object) -> str:
    """Return a key of the file as text that can be sent."""
    return key if is_text(key) and key.isprintable() else ascii(key)[:40]


def no_path() -> Refusal:
    """Return the refusal of a site whose configuration does not name its rows."""
    return Refusal(f"has a local/{CONFIG_FILE} without a path to its rows")


def odd(what: str) -> Refusal:
    """Return the refusal of a site whose configuration is wrong about something."""
    return Refusal(f"has a local/{CONFIG_FILE} whose {what}")


def text(config: Mapping[str, Any], key: str) -> str | None:
    """Return a key's text, None where it is absent or null."""
    value = config.get(key)
    if value is not None and not is_text(value):
        raise odd(f"{key} is no text")
    return value


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that may name a file, a folder or a column: not empty, without NUL, and Unicode."""
    try:
        return isinstance(value, str) and value != "" and "\0" not in value and bool(value.encode())
    except UnicodeEncodeError:  # half of a pair of surrogates, which YAML can spell
        return False


def account(config: Mapping[str, Any], site: str) -> str | None:
    """Return the name or the folder of the rows' account of privacy, None for that of their place."""
    value = text(config, "account")
    if value is None:
        return None
    if "/" not in value and (value.startswith(".") or not value.isprintable()):
        raise odd("account is neither a name nor a folder")
    try:
        return for_site(value, site)
    except UserError:
        raise odd("account has the site's name in it, which cannot stand in a path") from None


def names(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the columns to use, None for all."""
    columns = config.get("columns")
    if columns is None:
        return None
    if not (columns and isinstance(columns, list) and all(map(is_text, columns))):
        raise odd("columns are not a list of names")
    if config.get("id") in columns:
        raise odd("id is among its columns")
    return tuple(columns)


def file_format(config: Mapping[str, Any]) -> str | None:
    """Return the format of the files, None for that of their names."""
    value = text(config, "format")
    if value is not None and value not in FORMATS:
        raise odd(f"format is none of {', '.join(FORMATS)}")
    return value


def row_limits(config: Mapping[str, Any]) -> tuple[int, int | None]:
    """Return the fewest and the most rows (None: any) with which the site takes part."""
    minimum, maximum = config.get("min_rows"), config.get("max_rows")
    for key, value in (("min_rows", minimum), ("max_rows", maximum)):
        if value is not None and (type(value) is not int or not 1 <= value < _MOST):
            raise odd(f"{key} is not an integer of at least 1")
    if maximum is not None and maximum < (minimum or 1):
        raise odd("max_rows is less than its min_rows")
    return minimum or 1, maximum


def memory(config: Mapping[str, Any]) -> int:
    """Return the most bytes of rows to hold in memory: as said, or half of what the machine has.

    "4GB" and "4GiB" are 4 * 1000**3 and 4 * 1024**3; a number is bytes.
    """
    value = config.get("memory")
    if value is None:
        return int(psutil.virtual_memory().total) // 2
    if type(value) is int and 0 < value < _MOST:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = float(found[1]) * (1024 if found[3] else 1000) ** _POWER[found[2]] if found else 0.0
    if not 0 < size < math.inf:
        raise odd('memory is no size such as "4GB"')
    return int(size)


def disclosed(config: Mapping[str, Any]) -> tuple[Agreement, str, frozenset[str] | Literal[True]]:
    """Return how the columns must agree, the salt and the hidden names."""
    agreement, salt, hide = config.get("agreement", "has"), config.get("salt", ""), config.get("hide", [])
    if agreement not in get_args(Agreement):
        raise odd(f"agreement is none of {', '.join(get_args(Agreement))}")
    if salt != "" and not (is_text(salt) and len(salt) >= SHORTEST_SALT):
        raise odd(f"salt is no text of at least {SHORTEST_SALT} characters")
    if hide is not True and not (isinstance(hide, list) and all(map(is_text, hide))):
        raise odd("hide is neither true nor a list of names")
    if hide and not salt:
        raise Refusal(
            f"has a local/{CONFIG_FILE} that hides columns without a salt; without one, anybody can try names"
        )
    return agreement, salt, True if hide is True else frozenset(hide)


def write_config(local: Path, path: str | dict[str, str], reading: Reading = None) -> None:
    """Write the configuration of simulated sites into the folder `local`; their files may lie and be linked anywhere.

    Each path is absolute, with `{site}` in it, or stands for one site.
    """
    local.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"path": path, "root": "/", "account": ACCOUNT_IN_KIT}
    if reading is not None:
        config |= {"columns": list(reading[0]), "agreement": reading[1]}
    (local / CONFIG_FILE).write_text(yaml.safe_dump(config, sort_keys=False))


def write_site(
    local: Path,
    rows: str,
    columns: Sequence[str] | None = None,
    *,
    id_name: str | None = None,
    root: str | None = None,
    format: str | None = None,
) -> Path:
    """Write a site's own configuration, which only its account can read, and return the new file.

    Args:
        local: the folder of that name in the site's kit.
        rows: the file with its rows or a pattern, absolute or relative to `root`, else to the folder `local`; `{site}`
            stands for the site's name.
        columns: names of the columns to use; None for all.
        id_name: the column with the rows' ids.
        root: folder under which the files must lie; None for the one that `rows` names.
        format: of the files; None for that of their names.

    Raises:
        UserError: there is one already, or the format is unknown.
    """
    if format is not None and format not in FORMATS:
        raise UserError(f"unknown format {format!r}{did_you_mean(format, FORMATS)}; it is one of {', '.join(FORMATS)}")
    said = {"path": rows, "format": format, "root": root, "columns": columns and list(columns), "id": id_name}
    config = {key: value for key, value in said.items() if value is not None}
    file = local / CONFIG_FILE
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{file} is there already; edit it, or remove it first") from None
    with os.fdopen(opened, "w", encoding="utf-8") as stream:
        yaml.safe_dump(config, stream, sort_keys=False, allow_unicode=True)
    return file
