"""The ledger that older versions kept in a site's kit: what was spent there goes into the account of the table.

Whatever ends the process, no spending is lost and none is counted twice: each has a name of its own, under which the
account takes it once, and the old file stays where it is. It is marked, so that an older version no longer spends from it.
It is looked at again whenever a job begins.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from flareclust._foundation.errors import Refusal
from flareclust.privacy.dp.ledger import Entry, Ledger
from flareclust.privacy.dp.ledger_file import PATIENCE, check, connect, in_words, transaction

#: Where a kit had its ledger.
OLD = Path("privacy") / "ledger.db"

#: The form of the old file before and after it was marked.
_FORM, _TAKEN = 1, 2


def take_over(old: Path, ledger: Ledger) -> None:
    """Add what a kit's old ledger has to the account's, unless another account has taken it.

    Raises:
        Refusal: a ledger cannot be read or written.
    """
    try:
        with closing(connect(old, PATIENCE)) as connection:
            check(connection, _FORM, _TAKEN)
            with transaction(connection):  # its lock keeps others from spending there meanwhile
                takers = _takers(connection)
                if takers and ledger.id not in takers:
                    return
                ledger.merge(_entries(connection, ledger.site))
                _mark(connection, ledger.id)
    except sqlite3.Error as error:
        raise Refusal(in_words(error)) from None


def waiting(old: Path, ledger: Ledger | None, site: str) -> list[Entry]:
    """Return what a kit's old ledger has and the account's has not; None is an account without a ledger yet.

    Raises:
        Refusal: a ledger cannot be read.
    """
    try:
        with closing(connect(old, PATIENCE)) as connection:
            check(connection, _FORM, _TAKEN)
            takers, entries = _takers(connection), _entries(connection, site)
    except sqlite3.Error as error:
        raise Refusal(in_words(error)) from None
    if takers and (ledger is None or ledger.id not in takers):
        return []
    known = set() if ledger is None else ledger.origins()
    return [entry for origin, entry in entries if origin not in known]


def taken_by(old: Path) -> list[str]:
    """Return the ids of the ledgers that have taken over a kit's old one; Refusal where it cannot be read."""
    try:
        with closing(connect(old, PATIENCE)) as connection:
            check(connection, _FORM, _TAKEN)
            return _takers(connection)
    except sqlite3.Error as error:
        raise Refusal(in_words(error)) from None


def _takers(connection: sqlite3.Connection) -> list[str]:
    if connection.execute("PRAGMA user_version").fetchone()[0] == _FORM:
        return []
    return [row[0] for row in connection.execute("SELECT ledger FROM taken")]


def _entries(connection: sqlite3.Connection, site: str) -> list[tuple[str, Entry]]:
    """Return the spendings with their names: a copy of the file has the same ones, another file never has."""
    rows = connection.execute("SELECT number, at, job, what, rho FROM spending ORDER BY number")
    return [
        (f"{site}/{number}/{at}/{job}/{what}/{rho!r}", Entry(at, job, site, what, rho))
        for number, at, job, what, rho in rows
    ]


def _mark(connection: sqlite3.Connection, taker: str) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS taken (ledger TEXT PRIMARY KEY)")
    connection.execute("INSERT OR IGNORE INTO taken VALUES (?)", (taker,))
    connection.execute(f"PRAGMA user_version = {_TAKEN}")
