"""What a site has spent on jobs, in a file that is right even where the machine stops at the worst moment.

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
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from flareclust.errors import Refusal

#: Marks the file as ours, and the form of its table.
_MARK, _VERSION = 0x666C6C67, 1

_TABLE = """
CREATE TABLE spending (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    job TEXT NOT NULL,
    what TEXT NOT NULL,
    rho REAL NOT NULL CHECK (rho > 0)
)
"""

#: Seconds to wait for another process that is just spending.
PATIENCE = 30.0


class Spent(NamedTuple):
    """What was spent, in rho: by job in the order of their first spending, and in all."""

    jobs: dict[str, float]
    total: float


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
        path: the file, which is made with the mode 0600 where there is none; None keeps the ledger in memory.
        patience: seconds to wait for other processes.
    """

    def __init__(self, path: str | Path | None, patience: float = PATIENCE) -> None:
        self.path = None if path is None else Path(path)
        self.patience = patience
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
            what: on what, for whoever reads the ledger; no data.
            rho: of zero-concentrated differential privacy, above 0.
            job_limit: the most that the job may have spent afterwards.
            total_limit: the most that all jobs together may have spent afterwards.

        Raises:
            Overspent: a limit would be passed.
            Refusal: the ledger cannot be used: in use for too long, damaged, of another program, not writable.
        """
        if not (math.isfinite(rho) and rho > 0):
            raise ValueError(f"rho must be a finite number above 0, got {rho!r}")
        with self._open(make=True) as connection:
            self._begin(connection)
            try:
                before = _read(connection)
                of_job = before.jobs.get(job, 0.0)
                if math.fsum([of_job, rho]) > job_limit:
                    raise Overspent(True, of_job)
                if math.fsum([before.total, rho]) > total_limit:
                    raise Overspent(False, before.total)
                self._write(connection, job, what, rho)
                self._commit(connection)
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def spent(self) -> Spent:
        """Return what was spent so far; nothing where there is no file yet.

        Raises:
            Refusal: as for `spend`.
        """
        if self.path is not None and not self.path.exists():
            return Spent({}, 0.0)
        with self._open(make=False) as connection:
            return _read(connection)

    # The three steps of a transaction, on their own so that a test can end the process between them.

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _write(self, connection: sqlite3.Connection, job: str, what: str, rho: float) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        connection.execute("INSERT INTO spending (at, job, what, rho) VALUES (?, ?, ?, ?)", (now, job, what, rho))

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
                if make and not self.path.exists():
                    _make(self.path)
                with closing(_connect(self.path, self.patience)) as connection:
                    _check(connection)
                    yield connection
        except sqlite3.Error as error:
            raise Refusal(_words(error)) from None
        except OSError as error:
            raise Refusal(f"cannot write its privacy ledger ({error.strerror}); its operator must look at it") from None


def _connect(path: Path, patience: float) -> sqlite3.Connection:
    # mode=rw: a file that is gone is not made anew in passing, which would forget what was spent.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=patience, isolation_level=None)
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA fullfsync = ON")
    return connection


def _make(path: Path) -> None:
    """Make a ledger that appears complete or not at all, so that an empty file is a damaged one and not a new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes files of the mode 0600
    os.close(handle)
    try:
        with closing(_connect(Path(name), PATIENCE)) as connection:
            _set_up(connection)
        with suppress(FileExistsError):  # another process was quicker
            os.link(name, path)
        _sync(path.parent)
    finally:
        os.unlink(name)


def _set_up(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    connection.execute(f"PRAGMA application_id = {_MARK}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection) -> None:
    """Raise Refusal unless the file is a whole ledger of this version."""
    [mark], [version] = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if mark != _MARK:
        raise Refusal("has something else in the place of its privacy ledger; its operator must look at it")
    if version != _VERSION:
        raise Refusal(
            f"has a privacy ledger of the form {version}, which another version of flareclust wrote; this one reads {_VERSION}"
        )
    if [row[0] for row in connection.execute("PRAGMA quick_check")] != ["ok"]:
        raise Refusal(_DAMAGED)


def _read(connection: sqlite3.Connection) -> Spent:
    spendings: dict[str, list[float]] = {}
    for job, rho in connection.execute("SELECT job, rho FROM spending ORDER BY number"):
        spendings.setdefault(job, []).append(rho)
    return Spent(
        {job: math.fsum(values) for job, values in spendings.items()},
        math.fsum(value for values in spendings.values() for value in values),
    )


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_DAMAGED = (
    "has a privacy ledger that is damaged, so that it cannot tell what was spent; its operator must bring back a copy "
    "that is at least as new, or end the use of differential privacy on these rows"
)


def _words(error: sqlite3.Error) -> str:
    """Return what SQLite met, without its own text, which may name folders."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return f"has a privacy ledger that another process has held for more than {PATIENCE:g} s; try again later"
    if "readonly" in text or "unable to open" in text or "full" in text:
        return "cannot write its privacy ledger (not writable, or the disk is full); its operator must look at it"
    return _DAMAGED
