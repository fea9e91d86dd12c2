"""Kits with a privacy budget over one table, and what they spend."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from flareclust.privacy.policy import Policy
from flareclust.sites.config import CONFIG_FILE, write_site
from flareclust.sites.policy_file import session_of, write_policy
from flareclust.sites.takeover import OLD

PRIVATE = {"min_count": 2, "differential_privacy": {"bounds": [-9, 9], "epsilon": 1, "delta": 1e-5, "budget": 5}}


def kit_of(tmp_path: Path, name: str, rows: Path | str, **said: object) -> Path:
    """Make a kit as provisioning does, with rows and a policy of differential privacy; return its folder `local`."""
    local = tmp_path / name / "local"
    local.mkdir(parents=True)
    (local.parent / "startup").mkdir()
    write_site(local, str(rows))
    configure(local, **said)
    write_policy(local, Policy.of(PRIVATE))
    return local


def configure(local: Path, **said: object) -> None:
    with (local / CONFIG_FILE).open("a") as file:
        file.writelines(f"{key}: {value}\n" for key, value in said.items())


def renewed(local: Path, folder: Path) -> Path:
    """Renew a kit as documented: a new one, with the folder `local` of the old one, which is gone."""
    (folder / "startup").mkdir(parents=True)
    shutil.copytree(local, folder / "local")
    shutil.rmtree(local.parent)
    return folder / "local"


def spend(local: Path, job: str, rho: float = 0.25, site: str = "north") -> float:
    """Spend as a job of that id does; return what the table has spent until then."""
    terms = session_of(local, site, job, private=True)
    assert terms is not None
    assert terms.ledger is not None
    before = terms.ledger.spent().total
    terms.ledger.spend(job, "cells", rho, 10.0, 10.0)
    return before


def old_ledger(local: Path, *spendings: tuple[str, float]) -> Path:
    """Make the ledger that an older version kept in a kit."""
    file = local.parent / OLD
    file.parent.mkdir(mode=0o700)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "CREATE TABLE spending (number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, job TEXT NOT NULL, "
            "what TEXT NOT NULL, rho REAL NOT NULL CHECK (rho > 0))"
        )
        for job, rho in spendings:
            connection.execute(
                "INSERT INTO spending (at, job, what, rho) VALUES (?, ?, ?, ?)",
                ("2026-01-01T00:00:00+00:00", job, "cells", rho),
            )
        connection.execute(f"PRAGMA application_id = {0x666C6C67}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
    return file


# What must not get a fresh account
