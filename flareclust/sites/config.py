"""A site's `local/flareclust.yaml`: what it may say, how it is read and how it is written.

The texts of refusals travel to the server: they name keys, never values.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.machine import machine_memory
from flareclust._foundation.settings_file import NotPlain, Twice, parse_yaml, read_text
from flareclust._foundation.typing import Agreement, Reading
from flareclust._foundation.validation import beside_schema, did_you_mean
from flareclust.data.memory import parse_size
from flareclust.data.sql_tables import PREFIX
from flareclust.data.tables import FORMATS
from flareclust.sites.cluster import is_address
from flareclust.sites.files import for_site

CONFIG_FILE = "flareclust.yaml"

#: The account of rows that are gone with their kit, or that only a simulation reads: of the kit, and not of their place.
ACCOUNT_IN_KIT = "../account"

#: A shorter salt can be found by trying, as what is hashed with it travels.
_SHORTEST_SALT = 16

#: More rows than any site has, and no number that takes long to write.
_MOST = 2**63


def _is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that may name a file, a folder or a column: not empty, without NUL, and Unicode."""
    try:
        return isinstance(value, str) and value != "" and "\0" not in value and bool(value.encode())
    except UnicodeEncodeError:  # half of a pair of surrogates, which YAML can spell
        return False


def _text(value: object, info: ValidationInfo) -> str | None:
    if value is not None and not _is_text(value):
        raise ValueError(f"{(info.field_name or '').rstrip('_')} is no text")
    return value


def _columns(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not (value and isinstance(value, list) and all(map(_is_text, value))):
        raise ValueError("columns are not a list of names")
    return tuple(value)


def _rows(value: object, info: ValidationInfo) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value < _MOST):
        raise ValueError(f"{info.field_name} is not an integer of at least 1")
    return value


def _bytes(value: object) -> int:
    """Return a size in bytes: "4GB" and "4GiB" are 4 * 1000**3 and 4 * 1024**3, a number is bytes."""
    if value is None:
        return _usual_memory()
    if type(value) is int and 0 < value < _MOST:
        return value
    if (size := parse_size(value) if isinstance(value, str) else None) is None:
        raise ValueError('memory is no size such as "4GB"')
    return size


def _usual_memory() -> int:
    return machine_memory() // 4  # a job holds some more numbers for each row, and a copy of rows with few columns


def _format(value: object, info: ValidationInfo) -> str | None:
    text = _text(value, info)
    if text is not None and text not in FORMATS:
        raise ValueError(f"format is none of {', '.join(FORMATS)}")
    return text


def _only(fits: Callable[[Any], object], otherwise: str) -> BeforeValidator:
    """Return a check that refuses with these words a value that does not fit."""

    def checked(value: Any) -> Any:
        if not fits(value):
            raise ValueError(otherwise)
        return value

    return BeforeValidator(checked)


def _account(value: object, info: ValidationInfo) -> str | None:
    text = _text(value, info)
    if text is not None and "/" not in text and (text.startswith(".") or not text.isprintable()):
        raise ValueError("account is neither a name nor a folder")
    return text


def _hide(value: object) -> object:
    if value is True:
        return True
    if not (isinstance(value, list) and all(map(_is_text, value))):
        raise ValueError("hide is neither true nor a list of names")
    return frozenset(value)


_Text = Annotated[str | None, BeforeValidator(_text)]
_COMPUTE = _only(lambda v: v is None or is_address(v), "compute is no address such as dask://10.0.0.5:8786")
_AGREEMENT = _only(lambda v: v in get_args(Agreement), f"agreement is none of {', '.join(get_args(Agreement))}")
_SALT = _only(
    lambda v: v == "" or (_is_text(v) and len(v) >= _SHORTEST_SALT),
    f"salt is no text of at least {_SHORTEST_SALT} characters",
)
_PASSWORD = _only(
    lambda v: v is None or (isinstance(v, str) and re.fullmatch(r"(env|file):[^\0\n]+", v)),
    "password is neither env:NAME nor file:PATH, which say where it is",
)


class SiteConfig(BaseModel):
    """The keys of the file; a key that is absent or null has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    path: str | dict[Any, Any] = Field(
        description="The file with the rows, a pattern, or a path for each site by name."
    )
    format: Annotated[str | None, BeforeValidator(_format)] = Field(None, description="Format of the files.")
    root: _Text = Field(None, description="Folder under which every file must lie.")
    columns: Annotated[tuple[str, ...] | None, BeforeValidator(_columns)] = Field(
        None, description="Names of the columns to use, in this order."
    )
    id: _Text = Field(None, description="The column with the rows' ids, which is no feature.")
    min_rows: Annotated[int | None, BeforeValidator(_rows)] = Field(None, description="Fewest rows to take part with.")
    max_rows: Annotated[int | None, BeforeValidator(_rows)] = Field(None, description="Most rows to take part with.")
    memory: Annotated[int, BeforeValidator(_bytes)] = Field(
        default_factory=_usual_memory, description="Most bytes of rows to hold in memory."
    )
    scratch: _Text = Field(None, description="Folder for rows that do not fit in memory.")
    labels: _Text = Field(None, description="Folder for the labels of all jobs.")
    account: Annotated[str | None, BeforeValidator(_account)] = Field(
        None, description="Name or folder of the rows' account of privacy; that of their place by default."
    )
    compute: Annotated[str | None, _COMPUTE] = Field(
        None, description="Address of the Dask cluster that computes the site's replies; this process by default."
    )
    agreement: Annotated[Agreement, _AGREEMENT] = Field(
        "has", description="How the columns of the files must agree with `columns`."
    )
    salt: Annotated[str, _SALT] = Field(
        "", repr=False, description="The secret with which several sites hash the names of their columns."
    )
    hide: Annotated[frozenset[str] | Literal[True], BeforeValidator(_hide)] = Field(
        frozenset(), description="Names of columns that do not leave the site; true for all."
    )
    schema_: Annotated[str | None, BeforeValidator(_text)] = Field(
        None, alias="schema", description="File with the federation's schema, by which the rows are read."
    )
    mapping: dict[Any, Any] | None = Field(None, description="How the files map to the schema.")
    query: _Text = Field(
        None, repr=False, description="The SELECT that gives the rows of a database, or the file NAME.sql with it."
    )
    password: Annotated[str | None, _PASSWORD] = Field(
        None, description="Where the password of the database is: env:NAME or file:PATH."
    )

    @model_validator(mode="after")
    def _together(self) -> "SiteConfig":
        if self.id is not None and self.id in (self.columns or ()):
            raise ValueError("id is among its columns")
        if self.max_rows is not None and self.max_rows < (self.min_rows or 1):
            raise ValueError("max_rows is less than its min_rows")
        if self.compute is not None and self.schema_ is not None:
            raise ValueError(
                "compute is beside a schema, whose tables are read by the site itself; leave out one of them"
            )
        self._check_database()
        if self.mapping is not None and self.schema_ is None:
            raise ValueError("mapping has no schema to map to; name its file as schema")
        agreement = None if self.agreement == "has" else self.agreement
        said = {"columns": self.columns, "id": self.id, "agreement": agreement}
        if self.schema_ is not None and (twice := [key for key, value in said.items() if value is not None]):
            raise ValueError(f"{' and '.join(twice)} are beside a schema, which says them; leave them out")
        if self.hide and not self.salt:
            raise Refusal(
                f"has a local/{CONFIG_FILE} that hides columns without a salt; without one, anybody can try names"
            )
        return self

    def _check_database(self) -> None:
        """Raise ValueError where keys of a database and of files are mixed."""
        paths = self.path.values() if isinstance(self.path, dict) else [self.path]
        of_database = [isinstance(path, str) and path.startswith(PREFIX) for path in paths]
        if not any(of_database):
            if self.query is not None or self.password is not None:
                raise ValueError(f"query or password is there without a database; begin path with {PREFIX}")
            return
        if self.query is None or not all(of_database):
            raise ValueError("path names a database without a query; give the SELECT as query")
        of_files = {"format": self.format, "root": self.root, "compute": self.compute}
        if odd := [key for key, value in of_files.items() if value is not None]:
            raise ValueError(f"{' and '.join(odd)} is for files, and path names a database; leave it out")

    def path_of(self, site: str) -> str:
        """Return the path of a site's rows; raise Refusal where there is none."""
        path = self.path.get(site) if isinstance(self.path, dict) else self.path
        if not _is_text(path):
            raise _no_path()
        try:
            return for_site(path, site)
        except UserError as error:
            raise Refusal(f"cannot use its rows: {error}") from None

    def account_of(self, site: str) -> str | None:
        """Return the name or the folder of a site's account of privacy, None for that of the rows' place."""
        try:
            return None if self.account is None else for_site(self.account, site)
        except UserError:
            raise odd("account has the site's name in it, which cannot stand in a path") from None


def read_config(local: Path) -> SiteConfig:
    """Return what the file in a site's folder `local` says.

    Raises:
        Refusal: the file is missing, is no YAML, has no path, has unknown keys or a value that cannot be.
    """
    file = local / CONFIG_FILE
    if not file.is_file():
        raise Refusal(f"has no local/{CONFIG_FILE}, which says where its rows are; flareclust site init writes it")
    keys = [field.alias or name for name, field in SiteConfig.model_fields.items()]
    try:
        config = parse_yaml(read_text(file))
    except OSError as error:
        raise Refusal(f"has a local/{CONFIG_FILE} that cannot be read ({error.strerror})") from None
    except Twice as twice:
        key = repr(twice.key) if twice.key in keys else "a key"  # others may be names of sites or columns
        raise Refusal(f"has a local/{CONFIG_FILE} with {key} twice, again in line {twice.line}; leave one") from None
    except NotPlain as reason:
        raise Refusal(f"has a local/{CONFIG_FILE} that {reason}") from None
    if not isinstance(config, dict) or not isinstance(config.get("path"), str | dict):
        raise _no_path()
    plain = {key if _is_text(key) and key.isprintable() else ascii(key)[:40] for key in config}
    if unknown := sorted(plain - set(keys)):
        hints = ", ".join(f"{key}{did_you_mean(key, keys)}" for key in unknown)
        raise Refusal(f"has unknown keys in local/{CONFIG_FILE}: {hints}")
    return _checked(config)


def _checked(config: Mapping[str, Any]) -> SiteConfig:
    try:
        return SiteConfig(**config)
    except ValidationError as error:
        found = [one.get("ctx", {}).get("error") or f"{one['loc'][0]} is of the wrong kind" for one in error.errors()]
        raise odd("; ".join(map(str, found))) from None


def _no_path() -> Refusal:
    return Refusal(f"has a local/{CONFIG_FILE} without a path to its rows")


def odd(what: str) -> Refusal:
    """Return the refusal of a site whose configuration is wrong about something."""
    return Refusal(f"has a local/{CONFIG_FILE} whose {what}")


def write_config(
    local: Path,
    path: str | dict[str, str],
    reading: Reading = None,
    *,
    memory: int | None = None,
    id_name: str | None = None,
) -> None:
    """Write the configuration of simulated sites into the folder `local`; their files may lie and be linked anywhere.

    Each path is absolute, with `{site}` in it, or stands for one site. `memory` is the most bytes of rows that each site
    holds in memory; None for the default. `id_name` is the column with the rows' ids, None for none.
    """
    local.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"path": path, "root": "/", "account": ACCOUNT_IN_KIT}
    config |= {key: value for key, value in (("memory", memory), ("id", id_name)) if value is not None}
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
    schema: str | None = None,
    mapping: Mapping[str, Any] | None = None,
    query: str | None = None,
    password: str | None = None,
) -> Path:
    """Write a site's own configuration, which only its account can read, and return the new file.

    Args:
        local: the folder of that name in the site's kit, to which the schema's file, and `rows` without a root, are relative.
        rows: the file with its rows or a pattern; `{site}` stands for the site's name.

    The others are the keys of `SiteConfig`, None for its defaults.

    Raises:
        UserError: there is one already, or the keys do not go together.
    """
    if schema is not None and (problem := beside_schema(columns=columns, id=id_name)):
        raise UserError(problem)
    if format is not None and format not in FORMATS:
        raise UserError(f"unknown format {format!r}{did_you_mean(format, FORMATS)}; it is one of {', '.join(FORMATS)}")
    keys: dict[str, object] = {"path": rows, "format": format, "root": root}
    keys |= {"columns": columns and list(columns), "id": id_name, "schema": schema, "mapping": mapping}
    keys |= {"query": query, "password": password}
    config = {key: value for key, value in keys.items() if value is not None}
    try:
        _checked(config)
    except Refusal as refusal:
        raise UserError(f"nothing was written: the site {refusal}") from None
    file = local / CONFIG_FILE
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{file} is there already; edit it, or remove it first") from None
    with os.fdopen(opened, "w", encoding="utf-8") as stream:
        yaml.safe_dump(config, stream, sort_keys=False, allow_unicode=True)
    return file
