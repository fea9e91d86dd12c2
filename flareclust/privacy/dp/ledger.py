"""What a site has spent on jobs, in a file that stays consistent if the machine stops while it is written.

A spending is written, and is on the disk, before the noise is drawn that it pays for. So whatever happens afterwards, the
ledger never says less than what was sent; it may say more, by what was paid for and then lost.

SQLite keeps it: one transaction for each spending, which looks at the sums and adds to them while it holds the lock, so
that several processes share one ledger. With a rollback journal, `synchronous=EXTRA` is what FULL is for other journals: it
also syncs the folder in which the journal was removed, without which a power cut could bring a finished spending back.
"""

import math
import os
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from flareclust._foundation.errors import Refusal
from flareclust._foundation.own_files import make_folder

#: Marks the file as ours, and the form of its tables. A ledger from a backup has a form of its own until its operator has stated
#: what was spent since, so that a version which knows nothing of this refuses it as well.
_MARK, _FORM, _RESTORED = 0x666C6C67, 2, 3

#: What SQLite's files begin with, and where they have the mark.
SQLITE = b"SQLite format 3\0"
_MARK_AT = slice(68, 72)

_TABLES = (
    """
CREATE TABLE spending (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    job TEXT NOT NULL,
    site TEXT NOT NULL,
    what TEXT NOT NULL,
    rho REAL NOT NULL CHECK (rho > 0)
)
""",
    "CREATE TABLE ledger (id TEXT NOT NULL)",
    "CREATE TABLE user (place TEXT, site TEXT, kit TEXT, since TEXT, PRIMARY KEY (place, site, kit))",
)

#: Seconds to wait for another process that is just spending.
_PATIENCE = 30.0

#: What a site answers whose ledger is not where it was.
GONE = (
    "has no privacy ledger where the account of its rows is, and these rows have spent before; its operator must bring back "
    "the account's folder, or a copy of it that is at least as new (flareclust site budget)"
)

#: What a site answers whose ledger is a copy from a backup.
RESTORED = (
    "has a privacy ledger from a backup, which does not know what was spent since; its operator must state it (flareclust site "
    "budget --spent-since)"
)

_DAMAGED = (
    "has a privacy ledger that is damaged, so that it does not know what was spent; its operator must bring back a copy "
    "that is at least as new, or end the use of differential privacy on these rows"
)


class _Spent(NamedTuple):
    """What was spent, in rho: by job in the order of their first spending, and in all."""

    jobs: dict[str, float]
    total: float


class _Entry(NamedTuple):
    """One expense: time (UTC), job, site, purpose and rho."""

    at: str
    job: str
    site: str
    what: str
    rho: float


class _User(NamedTuple):
    """Who uses a ledger: the place of a table, the site and the kit that named it, and since when."""

    place: str
    site: str
    kit: str
    since: str


class Overspent(Exception):
    """A spending was refused, and nothing was written.

    Attributes:
        of_job: whether the job's own limit was in the way, else that of all jobs together.
        spent: rho spent so far under that limit.
    """

    def __init__(self, of_job: bool, spent: float) -> None:
        super().__init__("beyond the limit of the job" if of_job else "beyond the limit of all jobs")
        self.of_job, self.spent = of_job, spent


class Ledger:
    """A site's ledger.

    Args:
        path: the file, which `spend` makes with the mode 0600 where there is none; None keeps the ledger in memory.
        patience: seconds to wait for other processes.
        site: whose spendings these are, for those who read the ledger.
        must_exist: whether a file that is not there is refused rather than made.
    """

    def __init__(
        self, path: str | Path | None, patience: float = _PATIENCE, *, site: str = "", must_exist: bool = False
    ) -> None:
        self.path = None if path is None else Path(path)
        self.patience, self.site, self.must_exist = patience, site, must_exist
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            _set_up(self._memory)

    @classmethod
    def in_memory(cls) -> "Ledger":
        """Return a ledger that is forgotten with the process, for simulations."""
        return cls(None)

    def spend(self, job: str, what: str, rho: float, job_limit: float, total_limit: float) -> None:
        """Write down that a job spends rho, unless that is more than a limit; it is on the disk when this returns.

        Args:
            job: who spends.
            what: a description for readers of the ledger; no data.
            rho: of zero-concentrated differential privacy, above 0.
            job_limit: the most that the job may have spent afterwards.
            total_limit: the most that all jobs together may have spent afterwards.

        Raises:
            Overspent: a limit would be passed.
            Refusal: the ledger cannot be used: in use for too long, damaged, of another program, not writable.
        """
        if not (math.isfinite(rho) and rho > 0):
            raise ValueError(f"rho must be a finite number above 0, got {rho!r}")
        with self._open(make=not self.must_exist) as connection:
            self._begin(connection)
            with connection:  # rolls back where something is raised
                if _form(connection) == _RESTORED:
                    raise Refusal(RESTORED)
                before = _read(connection)
                of_job = before.jobs.get(job, 0.0)
                if math.fsum([of_job, rho]) > job_limit:
                    raise Overspent(True, of_job)
                if math.fsum([before.total, rho]) > total_limit:
                    raise Overspent(False, before.total)
                self._write(connection, job, what, rho)
                self._commit(connection)

    def spent(self) -> _Spent:
        """Return what was spent so far; nothing where there is no file yet. Refusal as for `spend`."""
        if self.path is not None and not self.must_exist and not self.path.exists():
            return _Spent({}, 0.0)
        with self._open(make=False) as connection:
            return _read(connection)

    def make(self) -> None:
        """Make the file, without spendings, unless it is there; Refusal as for `spend`."""
        with self._open(make=True):
            pass

    @property
    def id(self) -> str:
        """Return the ledger's own name, which no other ledger has; a copy of the file has the same."""
        with self._open(make=False) as connection:
            return str(connection.execute("SELECT id FROM ledger").fetchone()[0])

    def entries(self) -> list[_Entry]:
        """Return all spendings by their time."""
        with self._open(make=False) as connection:
            found = connection.execute("SELECT at, job, site, what, rho FROM spending ORDER BY at, number")
            return [_Entry(*row) for row in found]

    def users(self) -> list[_User]:
        """Return who uses the ledger, the first ones first."""
        with self._open(make=False) as connection:
            return [_User(*row) for row in connection.execute("SELECT * FROM user ORDER BY since, rowid")]

    def note(self, place: str, kit: str) -> None:
        """Write down that the site uses the ledger for the table in this place, by this kit."""
        with self._open(make=False) as connection:
            connection.execute("INSERT OR IGNORE INTO user VALUES (?, ?, ?, ?)", (place, self.site, kit, _now()))

    @property
    def restored(self) -> bool:
        """Return whether the ledger is from a backup, and nobody has stated yet what was spent since."""
        with self._open(make=False) as connection:
            return _form(connection) == _RESTORED

    def mark_restored(self) -> None:
        """Have no job spend until `state` says what was spent since this copy was made."""
        with self._open(make=False) as connection:
            connection.execute(f"PRAGMA user_version = {_RESTORED}")

    def state(self, rhos: Sequence[float], least: float, what: str = "stated by the operator") -> None:
        """Write down what was spent without being in the ledger, and let jobs spend again.

        Args:
            rhos: what each job has spent; nothing for none.
            least: what all together have spent at least; the ledger says no less afterwards.
            what: how it is known, for readers of the ledger.
        """
        with self._open(make=False) as connection:
            self._begin(connection)
            with connection:
                if (missing := max(math.fsum(rhos), least - _read(connection).total)) > 0:
                    self._write(connection, "unknown", what, missing)
                connection.execute(f"PRAGMA user_version = {_FORM}")
                self._commit(connection)

    # The three steps of a transaction, on their own so that a test can end the process between them.

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _write(self, connection: sqlite3.Connection, job: str, what: str, rho: float) -> None:
        row = (_now(), job, self.site, what, rho)
        connection.execute("INSERT INTO spending (at, job, site, what, rho) VALUES (?, ?, ?, ?, ?)", row)

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")

    @contextmanager
    def _open(self, make: bool) -> Iterator[sqlite3.Connection]:
        """Yield a checked connection; turn what SQLite and the disk say into refusals without the file's place."""
        try:
            with self._lock:
                if self._memory is not None:
                    yield self._memory
                    return
                assert self.path is not None
                if not self.path.exists():
                    if self.must_exist and not make:
                        raise Refusal(GONE)
                    if make:
                        _make(self.path)
                with closing(_connect(self.path, self.patience)) as connection:
                    _check(connection)
                    yield connection
        except sqlite3.Error as error:
            raise Refusal(_in_words(error)) from None
        except OSError as error:
            raise Refusal(f"cannot write its privacy ledger ({error.strerror}); its operator must look at it") from None


def _read(connection: sqlite3.Connection) -> _Spent:
    spendings: dict[str, list[float]] = {}
    for job, rho in connection.execute("SELECT job, rho FROM spending ORDER BY number"):
        spendings.setdefault(job, []).append(rho)
    return _Spent(
        {job: math.fsum(values) for job, values in spendings.items()},
        math.fsum(value for values in spendings.values() for value in values),
    )


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    """Return a connection to a ledger that is there, for which a commit waits for the disk."""
    # mode=rw: a file that is gone is not made anew in passing, which would forget what was spent.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=patience, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA fullfsync = ON")
    return connection


def _make(path: Path) -> None:
    """Make a ledger that appears complete or not at all, so that an empty file is a damaged one and not a new one."""
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes files of the mode 0600
    os.close(handle)
    try:
        with closing(_connect(Path(name), _PATIENCE)) as connection:
            _set_up(connection)
        with suppress(FileExistsError):  # another process was quicker
            os.link(name, path)
        _sync(path.parent)
    finally:
        os.unlink(name)


def _set_up(connection: sqlite3.Connection) -> None:
    """Make the tables of a new ledger, and give it a name of its own."""
    named = f"INSERT INTO ledger VALUES ('{uuid.uuid4().hex}')"
    pragmas = f"PRAGMA application_id = {_MARK}", f"PRAGMA user_version = {_FORM}"
    with connection:  # rolls back where something is raised
        connection.executescript(";".join(("BEGIN IMMEDIATE", *_TABLES, named, *pragmas, "COMMIT")))


def _now() -> str:
    """Return the time as the ledger has it, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _check(connection: sqlite3.Connection) -> None:
    """Raise Refusal unless the file is a whole ledger of our form."""
    [mark], version = connection.execute("PRAGMA application_id").fetchone(), _form(connection)
    if mark != _MARK:
        raise Refusal("has something else in the place of its privacy ledger; its operator must look at it")
    if version not in (_FORM, _RESTORED):
        raise Refusal(
            f"has a privacy ledger of the form {version}, which another version of flareclust wrote; this one reads {_FORM}"
        )
    if [row[0] for row in connection.execute("PRAGMA quick_check")] != ["ok"]:
        raise Refusal(_DAMAGED)


def _form(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_ledger(file: Path) -> bool:
    """Return whether a file is a ledger, by how it begins."""
    with file.open("rb") as stream:
        head = stream.read(_MARK_AT.stop)
    return head.startswith(SQLITE) and int.from_bytes(head[_MARK_AT]) == _MARK


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _in_words(error: sqlite3.Error) -> str:
    """Return what SQLite met, without its own text, which may name folders."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return f"has a privacy ledger that another process has held for more than {_PATIENCE:g} s; try again later"
    if "readonly" in text or "unable to open" in text or "full" in text:
        return "cannot write its privacy ledger (not writable, or the disk is full); its operator must look at it"
    return _DAMAGED
