"""One provisioned federation for all tests of this folder, put right again before each of them."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.paths import TESTS

# The helpers, by their plain names, those here first; pytest's import mode adds no folder.
sys.path[:0] = [str(folder) for folder in (Path(__file__).parent, TESTS)]

from harness import Federation

from flareclust.protocol.registry import Algorithm
from flareclust.sites.account import accounts, folders_of
from flareclust.testing import iid_sites

SITES, LATE, LATER = ("north", "south", "west"), "east", "far"


@pytest.fixture(scope="session")
def running() -> Iterator[Federation]:
    """A server and three sites with a file each, and kits for two more."""
    with Federation(SITES, late=[LATE, LATER], byoc=True).running() as federation:  # faulty.py travels with its jobs
        parts = iid_sites(m=5, k=5)[0].values()
        for site, rows in zip((*SITES, LATE, LATER), parts, strict=True):
            folder = federation.kit(site) / "data"
            folder.mkdir()
            np.save(folder / "rows.npy", rows)
        yield federation


@pytest.fixture
def federation(running: Federation) -> Federation:
    """The federation with all its sites connected, each with its own plain configuration."""
    running.heal()
    for site in (*SITES, LATE, LATER):
        running.configure(site, path=str(rows_of(running, site)))
    return running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show, beside a failure, what server and sites said last."""
    report = yield
    found = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Federation)]
    if report.failed:
        for federation, host in dict.fromkeys((one, host) for one in found for host in one.hosts):
            console = federation.folder / f"{host}.txt"
            if console.exists():
                report.sections.append((f"console of {host}", console.read_text(errors="replace")[-4000:]))
    return report


@pytest.fixture
def files(federation: Federation) -> dict[str, Path]:
    """The sites' files."""
    return {site: rows_of(federation, site) for site in SITES}


def rows_of(federation: Federation, site: str) -> Path:
    return federation.kit(site) / "data" / "rows.npy"


def forget_account(local: Path) -> None:
    """Remove a site's privacy account and its record of it: they outlive the kit, are in its backups, and would be spent from again."""
    found = {folder.resolve() for folder in folders_of(local)}
    for link in accounts().glob("*"):  # by which kits find a named account
        if link.is_symlink() and link.resolve() in found:
            link.unlink()
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    (local / "flareclust_account.json").unlink(missing_ok=True)


@pytest.fixture
def faulty() -> Algorithm:
    """The algorithm of tests/faulty.py, whose faults are settings."""
    return Algorithm("faulty", "misbehaves", "faulty.FaultyExecutor", "faulty.FaultyAggregator")


Record = Callable[..., None]


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for what was seen; RELIABILITY_RECORDS names another, where records of other faults are kept."""
    named = os.environ.get("RELIABILITY_RECORDS")
    return Path(named) if named else tmp_path_factory.getbasetemp() / "reliability.json"


@pytest.fixture
def record_on(records: Path) -> Callable[[Federation], Record]:
    """Write down what was seen in a federation, as `benchmarks/pages/reliability.py` reads it; an older record of the same fault goes."""

    def on(federation: Federation) -> Record:
        def write(fault: str, done: str, happened: str, message: str, seconds: float) -> None:
            kept = json.loads(records.read_text()) if records.exists() else []
            new = {"fault": fault, "done": done, "happened": happened, "message": message}
            new |= {"seconds": round(seconds, 1), "network": federation.network.name}
            at = next((i for i, old in enumerate(kept) if old["fault"] == fault), len(kept))
            kept[at : at + 1] = [new]
            records.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")

        return write

    return on


@pytest.fixture
def record(record_on: Callable[[Federation], Record], running: Federation) -> Record:
    """Write down a fault of the federation of all tests."""
    return record_on(running)
