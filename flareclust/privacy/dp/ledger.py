"""What a site has spent on jobs, in a file that stays consistent if the machine stops while it is written.

A spending is written, and is on the disk, before the noise is drawn that it pays for. So whatever happens afterwards, the
ledger never says less than what was sent; it may say more, by what was paid for and then lost.

SQLite keeps it: one transaction for each spending, which looks at the sums and adds to them while it holds the lock, so
that several processes share one ledger. With a rollback journal, `synchronous=EXTRA` is what FULL is for other journals: it
also syncs the folder in which the journal was removed, without which a power cut could bring a finished spending back.
"""

import math
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp import ledger_file
from flareclust.privacy.dp.ledger_file import (
    GONE,
    PATIENCE,
    VERSION,
    check,
    connect,
    in_words,
    now,
    or_rolled_back,
    transaction,
)


class Spent(NamedTuple):
    """What was spent, in rho: by job in the order of their first spending, and in all."""

    jobs: dict[str, float]
    total: float


class Entry(NamedTuple):
    """One expense: time (UTC), job, site, purpose and rho."""

    at: str
    job: str
    site: str
    what: str
    rho: float


class User(NamedTuple):
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
        self, path: str | Path | None, patience: float = PATIENCE, *, site: str = "", must_exist: bool = False
    ) -> None:
        self.path = None if path is None else Path(path)
        self.patience = patience
        self.site, self.must_exist = site, must_exist
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        if self.path is None:
            self._memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            ledger_file.set_up(self._memory)

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
            with or_rolled_back(connection):
                before = _read(connection)
                of_job = before.jobs.get(job, 0.0)
                if math.fsum([of_job, rho]) > job_limit:
                    raise Overspent(True, of_job)
                if math.fsum([before.total, rho]) > total_limit:
                    raise Overspent(False, before.total)
                self._write(connection, job, what, rho)
                self._commit(connection)

    def spent(self) -> Spent:
        """Return what was spent so far; nothing where there is no file yet.

        Raises:
            Refusal: as for `spend`.
        """
        if self.path is not None and not self.must_exist and not self.path.exists():
            return Spent({}, 0.0)
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

    def entries(self) -> list[Entry]:
        """Return all spendings by their time."""
        with self._open(make=False) as connection:
            found = connection.execute("SELECT at, job, site, what, rho FROM spending ORDER BY at, number")
            return [Entry(*row) for row in found]

    def users(self) -> list[User]:
        """Return who uses the ledger, the first ones first."""
        with self._open(make=False) as connection:
            return [User(*row) for row in connection.execute("SELECT * FROM user ORDER BY since, rowid")]

    def note(self, place: str, kit: str) -> None:
        """Write down that the site uses the ledger for the table in this place, by this kit."""
        with self._open(make=False) as connection:
            connection.execute("INSERT OR IGNORE INTO user VALUES (?, ?, ?, ?)", (place, self.site, kit, now()))

    def origins(self) -> set[str]:
        """Return the names of the spendings that were taken over."""
        with self._open(make=False) as connection:
            return {row[0] for row in connection.execute("SELECT origin FROM spending WHERE origin IS NOT NULL")}

    def merge(self, entries: Iterable[tuple[str, Entry]]) -> None:
        """Add spendings of another ledger, each with a name of its own by which it is added once; all or none."""
        with self._open(make=False) as connection, transaction(connection):
            connection.executemany(
                "INSERT OR IGNORE INTO spending (origin, at, job, site, what, rho) VALUES (?, ?, ?, ?, ?, ?)",
                ((origin, *entry) for origin, entry in entries),
            )

    # The three steps of a transaction, on their own so that a test can end the process between them.

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")

    def _write(self, connection: sqlite3.Connection, job: str, what: str, rho: float) -> None:
        row = (now(), job, self.site, what, rho)
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
                        ledger_file.make(self.path)
                with closing(connect(self.path, self.patience)) as connection:
                    check(connection, VERSION)
                    yield connection
        except sqlite3.Error as error:
            raise Refusal(in_words(error)) from None
        except OSError as error:
            raise Refusal(f"cannot write its privacy ledger ({error.strerror}); its operator must look at it") from None


def _read(connection: sqlite3.Connection) -> Spent:
    spendings: dict[str, list[float]] = {}
    for job, rho in connection.execute("SELECT job, rho FROM spending ORDER BY number"):
        spendings.setdefault(job, []).append(rho)
    return Spent(
        {job: math.fsum(values) for job, values in spendings.items()},
        math.fsum(value for values in spendings.values() for value in values),
    )
