"""Rows that a query of a database gives, read a part at a time; only SQLAlchemy and its drivers know how databases differ.

One statement is one snapshot, so rows that others change meanwhile are the old ones or the new ones and never a mixture. The
address, the query and what a database answers stay at the site; the password is in no text at all.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.extras import require
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

#: What SQLite says of a query, and not of a cell.
_OF_THE_QUERY = re.compile(
    r"no such |near \"|ambiguous column|incomplete input|unrecognized token|database is locked|attempt to write"
)

#: The classes of SQLSTATE whose texts are of a query: syntax, names and permissions, and what a read-only one may not do.
_STATES_OF_QUERIES = ("42", "25", "0A")

_SQLITE = "sqlite"


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
        require("sql", "a database (path: sql+...)")
        url = self._url()
        if url.password is not None or any("password" in key.lower() for key in url.query):
            raise UserError("path holds a password; take it out, and say where it is: password: env:NAME or file:PATH")
        if url.get_backend_name() == _SQLITE and (url.host or url.database in (None, "", ":memory:")):
            raise UserError(
                "path names no SQLite database; write sql+sqlite:///FILE, and sql+sqlite:////FOLDER/FILE for one "
                "that does not lie beside the configuration"
            )

    @property
    def place(self) -> Path:
        """Return what stands for the database's place: its file, or host and name without account and settings."""
        url = self._url()
        if url.get_backend_name() == _SQLITE:
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
            raise UserError("path is no address such as sql+postgresql://USER@HOST/DATABASE") from None

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
        if url.get_backend_name() == _SQLITE:
            if not (file := self._file()).is_file():
                raise DatabaseUnusable(f"there is no SQLite database {file}; correct path in the site's configuration")
            url = url.set(database=f"{file.resolve().as_uri()}", query={**url.query, "mode": "ro", "uri": "true"})
        elif url.get_backend_name() == "postgresql":
            settings = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            engine = sqlalchemy.create_engine(
                url if secret is None else url.set(password=secret), poolclass=NullPool, hide_parameters=True
            )
        except (ImportError, sqlalchemy.exc.SQLAlchemyError) as error:
            raise DatabaseUnusable(
                f"there is no driver for {self._url().drivername} ({_first_line(error)}); install it at the site, for PostgreSQL: "
                "python -m pip install 'flareclust[sql,postgres]'"
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
        return DatabaseUnusable(
            f"{url} cannot be reached, or refuses the account{why}; look at path and password in the site's configuration"
        )


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
    text = _first_line(error)
    if state.startswith(_STATES_OF_QUERIES) or _OF_THE_QUERY.match(text):
        return text
    if "not a database" in text:
        return "the file is no SQLite database"
    number = f" {state}" if state else ""
    return f"{type(error).__name__}{number}; run the query in the database's own client, which says more"


def _first_line(error: object) -> str:
    return next(chain(str(error).strip().splitlines(), [""])).strip().rstrip(".;")
