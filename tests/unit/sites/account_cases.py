"""Kits with a privacy budget over one table, and what they spend."""

import shutil
from pathlib import Path

from flareclust.privacy.policy import Policy
from flareclust.sites.account import session_of
from flareclust.sites.config import CONFIG_FILE, write_site
from flareclust.sites.policy_file import write_policy

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
