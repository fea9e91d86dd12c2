"""The file of a ledger: how it is made, opened and looked at, and what is said where something is wrong with it."""

import os
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from flareclust._foundation.errors import Refusal
from flareclust._foundation.own_files import make_folder

#: Marks the file as ours, and the form of its tables. Form 1 was kept by a kit; `flareclust.sites.takeover` reads it.
MARK, VERSION = 0x666C6C67, 2

#: `origin` names a spending that was taken over from an older ledger, so that it is taken over once.
_TABLES = (
    """
CREATE TABLE spending (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    job TEXT NOT NULL,
    site TEXT NOT NULL,
    what TEXT NOT NULL,
    rho REAL NOT NULL CHECK (rho > 0),
    origin TEXT UNIQUE
)
""",
    "CREATE TABLE ledger (id TEXT NOT NULL)",
    "CREATE TABLE user (place TEXT, site TEXT, kit TEXT, since TEXT, PRIMARY KEY (place, site, kit))",
)

#: Seconds to wait for another process that is just spending.
PATIENCE = 30.0


def connect(path: Path, patience: float) -> sqlite3.Connection:
    """Return a connection to a ledger that is there, for which a commit waits for the disk."""
    # mode=rw: a file that is gone is not made anew in passing, which would forget what was spent.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=patience, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA fullfsync = ON")
    return connection


def make(path: Path) -> None:
    """Make a ledger that appears complete or not at all, so that an empty file is a damaged one and not a new one."""
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes files of the mode 0600
    os.close(handle)
    try:
        with closing(connect(Path(name), PATIENCE)) as connection:
            set_up(connection)
        with suppress(FileExistsError):  # another process was quicker
            os.link(name, path)
        _sync(path.parent)
    finally:
        os.unlink(name)


def set_up(connection: sqlite3.Connection) -> None:
    """Make the tables of a new ledger, and give it a name of its own."""
    with transaction(connection):
        for table in _TABLES:
            connection.execute(table)
        connection.execute("INSERT INTO ledger VALUES (?)", (uuid.uuid4().hex,))
        connection.execute(f"PRAGMA application_id = {MARK}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Keep all that is written within, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    with or_rolled_back(connection):
        yield
        connection.execute("COMMIT")


@contextmanager
def or_rolled_back(connection: sqlite3.Connection) -> Iterator[None]:
    """Take back what was written within where something is raised."""
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def now() -> str:
    """Return the time as the ledger has it, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def check(connection: sqlite3.Connection, *versions: int) -> None:
    """Raise Refusal unless the file is a whole ledger of one of these forms."""
    [mark], [version] = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if mark != MARK:
        raise Refusal("has something else in the place of its privacy ledger; its operator must look at it")
    if version not in versions:
        raise Refusal(
            f"has a privacy ledger of the form {version}, which another version of flareclust wrote; this one reads "
            f"{', '.join(map(str, versions))}"
        )
    if [row[0] for row in connection.execute("PRAGMA quick_check")] != ["ok"]:
        raise Refusal(_DAMAGED)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: What a site answers whose ledger is not where it was.
GONE = (
    "has no privacy ledger where the account of its rows is, and these rows have spent before; its operator must bring back "
    "the account's folder, or a copy of it that is at least as new (flareclust site budget)"
)

_DAMAGED = (
    "has a privacy ledger that is damaged, so that it does not know what was spent; its operator must bring back a copy "
    "that is at least as new, or end the use of differential privacy on these rows"
)


def in_words(error: sqlite3.Error) -> str:
    """Return what SQLite met, without its own text, which may name folders."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return f"has a privacy ledger that another process has held for more than {PATIENCE:g} s; try again later"
    if "readonly" in text or "unable to open" in text or "full" in text:
        return "cannot write its privacy ledger (not writable, or the disk is full); its operator must look at it"
    return _DAMAGED
