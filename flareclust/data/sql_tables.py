"""Rows that a query of a database gives, read a part at a time; only SQLAlchemy and its drivers know how databases differ.

One statement is one snapshot, so rows that others change meanwhile are the old ones or the new ones and never a mixture. The
address, the query and what a database answers stay at the site; the password is in no text at all.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
from flareclust._foundation.settings_file import NotPlain, read_text
from flareclust.data.arrow_cells import arrow_of
from flareclust.data.arrow_files import column_source
from flareclust.data.file_formats import Selection, Source
from flareclust.data.tables import File

#: How an address begins in the place of a path.
PREFIX = "sql+"

#: What messages call the rows, at the site and elsewhere.
PLACE = "the query"

#: Most rows that are held as values of Python beside those that were read.
_ROWS = 10_000

#: What SQLite and DuckDB say of a query, and not of a cell.
_OF_THE_QUERY = re.compile(
    r"no such |near \"|ambiguous column|incomplete input|unrecognized token|database is locked|attempt to write"
    r"|(Catalog|Parser|Binder) Error: |Invalid Input Error: Cannot execute statement"
)

#: The classes of SQLSTATE whose texts are of a query: syntax, names and permissions, and what a read-only one may not do.
_STATES_OF_QUERIES = ("42", "25", "0A")

#: The numbers of MySQL and MariaDB for the same: unknown or ambiguous names, syntax, permissions, and writing in a read-only session.
_NUMBERS_OF_QUERIES = frozenset((1046, 1052, 1054, 1064, 1109, 1142, 1143, 1146, 1305, 1370, 1792))

_SQLITE, _DUCKDB = "sqlite", "duckdb"

#: Databases that are one file, as messages call them.
_FILES = {_SQLITE: "SQLite", _DUCKDB: "DuckDB"}

#: How the driver of a database is installed.
_DRIVERS = {
    "postgresql": "for PostgreSQL: python -m pip install 'flareclust[sql,postgres]'",
    **dict.fromkeys(
        ("mysql", "mariadb"), "python -m pip install PyMySQL, and begin the address with sql+mysql+pymysql://"
    ),
}

#: How the name of a file with the query ends.
_SQL = ".sql"

#: What MySQL and MariaDB get before the query, so that it writes nothing.
_READ_ONLY = dict.fromkeys(("mysql", "mariadb"), "SET SESSION TRANSACTION READ ONLY")


class DatabaseUnusable(UserError):
    """The database gives no rows; the text names its address and the query, and is for the site only."""


@dataclass(frozen=True)
class Query:
    """One SELECT statement and the database that it asks.

    Attributes:
        address: `sql+DIALECT://USER@HOST/DATABASE`, as SQLAlchemy has it behind `sql+`; without a password.
        text: the statement.
        folder: to which the file of a SQLite database is relative.
        password: gives the password when it is needed, None where the driver knows one or needs none.
    """

    address: str = field(repr=False)
    text: str = field(repr=False)
    folder: Path
    password: Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        require("sql", "a database (sql+...)")
        url = self._url()
        if url.password is not None or any("password" in key.lower() for key in url.query):
            raise UserError(
                "address holds a password; take it out, and say where it is: password: env:NAME or file:PATH"
            )
        kind = url.get_backend_name()
        if kind in _FILES and (url.host or url.database in (None, "", ":memory:")):
            raise UserError(
                f"address names no {_FILES[kind]} database; write sql+{kind}:///FILE, and sql+{kind}:////FOLDER/FILE for an "
                "absolute path"
            )

    @classmethod
    def of(cls, address: str, query: str, folder: Path, password: str | None = None) -> "Query":
        """Return a query as settings have it: the statement or the name of a file NAME.sql, and where the password is, env:NAME or file:PATH.

        Files are relative to `folder`; the password is read when it is needed.

        Raises:
            UserError: SQLAlchemy is missing, or one of the settings cannot be used; its text begins with the setting's name, and has no
                password.
        """
        secret = None if password is None else _password(password, folder)
        return cls(address, _text(query, folder), folder, secret)

    @property
    def place(self) -> Path:
        """Return what stands for the database's place: its file, or host and name without account and settings."""
        url = self._url()
        if url.get_backend_name() in _FILES:
            return self._file()
        port = f":{url.port}" if url.port else ""
        return Path(
            "/", f"{PREFIX}{url.get_backend_name()}", f"{(url.host or 'localhost').lower()}{port}", url.database or ""
        )

    def hints(self, *, has_ids: bool) -> list[str]:
        """Return what is odd about the statement, a sentence each."""
        if re.search(r"\border\s+by\b", self.text, re.IGNORECASE):
            return []
        labels = "" if has_ids else ", and without an `id` nobody can tell which row has which label"
        return [f"the query has no ORDER BY: rows may come in another order each time, with other results{labels}"]

    def file(self) -> File:
        """Return the rows in the place of a file."""
        return File(self.place, PLACE, opener=self._opened)

    def _url(self) -> Any:
        from sqlalchemy import exc
        from sqlalchemy.engine import make_url

        try:
            return make_url(self.address.removeprefix(PREFIX))
        except (exc.ArgumentError, ValueError):
            raise UserError("address is none such as sql+postgresql://USER@HOST/DATABASE") from None

    def _file(self) -> Path:
        return Path(self.folder, self._url().database)

    @contextmanager
    def _opened(self, path: Path, place: str, selection: Selection) -> Iterator[Source]:
        del path
        with self._connected() as connection, self._answer(connection) as result:
            names = tuple(result.keys())
            yield column_source(names, _Columns(names, result, self._errors), place, selection)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Connect for reading only; DatabaseUnusable where that cannot be."""
        import sqlalchemy
        from sqlalchemy.pool import NullPool

        url, settings = self._url(), dict[str, Any]()
        secret = None if self.password is None else self.password()
        if (kind := url.get_backend_name()) in _FILES:
            if not (file := self._file()).is_file():
                raise DatabaseUnusable(f"there is no {_FILES[kind]} database {file}; correct its address")
            if kind == _SQLITE:
                url = url.set(database=f"{file.resolve().as_uri()}", query={**url.query, "mode": "ro", "uri": "true"})
            else:
                url = url.set(database=str(file.resolve()), query={**url.query, "access_mode": "READ_ONLY"})
        elif url.get_backend_name() == "postgresql":
            settings = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            engine = sqlalchemy.create_engine(
                url if secret is None else url.set(password=secret), poolclass=NullPool, hide_parameters=True
            )
        except (ImportError, sqlalchemy.exc.SQLAlchemyError) as error:
            raise DatabaseUnusable(
                f"there is no driver for {self._url().drivername} ({_first_line(error)}); install it where the rows are read, "
                f"{_DRIVERS.get(kind, _DRIVERS['postgresql'])}"
            ) from None
        try:
            connection = engine.connect()
        except (sqlalchemy.exc.SQLAlchemyError, OSError, RuntimeError, ValueError) as error:
            raise self._unreachable(error, secret) from None
        try:
            yield connection.execution_options(stream_results=True, no_parameters=True, **settings)
        finally:
            connection.close()
            engine.dispose()

    @contextmanager
    def _answer(self, connection: Any) -> Iterator[Any]:
        with self._errors():
            if (first := _READ_ONLY.get(connection.dialect.name)) is not None:
                connection.exec_driver_sql(first)
            result = connection.exec_driver_sql(self.text)
        if not result.returns_rows:
            raise DatabaseUnusable("the query gives no rows; it must be one SELECT")
        try:
            yield result
        finally:
            result.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn what the database says while it answers into DatabaseUnusable; texts that may quote a cell are left out."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except DBAPIError as error:
            raise DatabaseUnusable(f"the database refuses the query: {_said(error.orig)}") from None
        except (SQLAlchemyError, ArithmeticError, ValueError, TypeError, UnicodeError) as error:
            raise DatabaseUnusable(
                f"the driver cannot read what the query gives ({type(error).__name__}); cast the columns in the query to "
                "numbers, text or dates"
            ) from None

    def _unreachable(self, error: Exception, secret: str | None) -> DatabaseUnusable:
        text = _first_line(getattr(error, "orig", None) or error)
        why = "" if secret and secret in text else f" ({text})"
        url = self._url().set(query={}).render_as_string(hide_password=True)
        return DatabaseUnusable(f"{url} cannot be reached, or refuses the account{why}; look at address and password")


class _Columns:
    """Gives Arrow arrays of some columns of a result, which can be gone through once."""

    def __init__(self, names: Sequence[str], result: Any, errors: Callable[[], Any]) -> None:
        self._names, self._result, self._errors = names, result, errors

    def __call__(self, names: Sequence[str], rows: int) -> Iterator[list[Any]]:
        places = [self._names.index(name) for name in names]
        while part := self._part(min(rows, _ROWS)):
            yield [arrow_of([row[place] for row in part]) for place in places]

    def _part(self, rows: int) -> list[Any]:
        with self._errors():
            return list(self._result.fetchmany(rows))


def _said(error: BaseException | None) -> str:
    """Return what a database says of a query; its number and advice where the text may quote a cell."""
    state = str(getattr(error, "pgcode", None) or getattr(error, "sqlstate", None) or "")
    text, number = _first_line(error), next(iter(getattr(error, "args", ())), None)
    if isinstance(number, int) and number in _NUMBERS_OF_QUERIES:
        return _first_line(" ".join(map(str, error.args[1:])))  # type: ignore[union-attr]
    if state.startswith(_STATES_OF_QUERIES) or _OF_THE_QUERY.match(text):
        return text
    if "not a database" in text:
        return "the file is no SQLite database"
    state = f" {state}" if state else ""
    return f"{type(error).__name__}{state}; run the query in the database's own client, which says more"


def _first_line(error: object) -> str:
    return next(chain(str(error).strip().splitlines(), [""])).strip().rstrip(".;")


def _text(query: str, folder: Path) -> str:
    """Return the statement, of the file that it names where it names one."""
    if not query.strip().endswith(_SQL) or len(query.split()) > 1:
        return query
    try:
        return read_text(folder / query.strip())
    except OSError as error:
        raise UserError(f"query names a file that cannot be read ({error.strerror})") from None
    except NotPlain as reason:
        raise UserError(f"query names a file that {reason}") from None


def _password(place: str, folder: Path) -> Callable[[], str]:
    kind, _, name = place.partition(":")
    if kind not in ("env", "file") or not name:  # it may be the password
        raise UserError("password is neither env:NAME nor file:PATH, which say where it is")
    return partial(_of_variable, name) if kind == "env" else partial(_of_file, folder / name)


def _of_variable(name: str) -> str:
    if not (value := os.environ.get(name)):
        raise DatabaseUnusable(
            f"the environment variable {name}, which has the password, is not set in this process; set it, or say password: "
            "file:PATH. Jobs at a site get listed variables only: name it in the component process_launcher of the kit's "
            "local/resources.json"
        )
    return value


def _of_file(file: Path) -> str:
    try:
        return read_text(file).rstrip("\r\n")
    except (OSError, NotPlain) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatabaseUnusable(f"{file}, which has the password, cannot be read ({reason})") from None
