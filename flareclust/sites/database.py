"""The query that a site's configuration names in the place of files, and its password, which is in no text."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.extras import require
from flareclust._foundation.settings_file import NotPlain, read_text
from flareclust.data.sql_tables import DatabaseUnusable, Query
from flareclust.sites.config import SiteConfig, odd

#: How the name of a file with the query ends.
_SQL = ".sql"


def query_of(config: SiteConfig, address: str, local: Path) -> Query:
    """Return the query of a configuration in the folder `local`, to which files are relative.

    Raises:
        Refusal: the address or the query cannot be used, or SQLAlchemy is missing.
    """
    try:
        require("sql", "a database (path: sql+...)")
    except UserError as error:
        raise Refusal(f"cannot use its rows: {error}") from None
    password = None if config.password is None else _password(config.password, local)
    try:
        return Query(address, _text(config.query or "", local), local, password)
    except UserError as error:
        raise odd(str(error)) from None


def _text(query: str, local: Path) -> str:
    if not query.strip().endswith(_SQL) or len(query.split()) > 1:
        return query
    try:
        return read_text(local / query.strip())
    except OSError as error:
        raise odd(f"query names a file that cannot be read ({error.strerror})") from None
    except NotPlain as reason:
        raise odd(f"query names a file that {reason}") from None


def _password(place: str, local: Path) -> Callable[[], str]:
    kind, _, name = place.partition(":")
    return partial(_of_variable, name) if kind == "env" else partial(_of_file, local / name)


def _of_variable(name: str) -> str:
    if not (value := os.environ.get(name)):
        raise DatabaseUnusable(
            f"the environment variable {name}, which has the password, is not set in this process; jobs get listed ones only, "
            "so name it in the component process_launcher of the kit's local/resources.json, or say password: file:PATH"
        )
    return value


def _of_file(file: Path) -> str:
    try:
        return read_text(file).rstrip("\r\n")
    except (OSError, NotPlain) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatabaseUnusable(f"{file}, which has the password, cannot be read ({reason})") from None
