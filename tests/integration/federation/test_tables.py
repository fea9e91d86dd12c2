"""Tables of real sites that change while they are read, or for which there is too little memory: a sentence, and the others go on."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from harness import Federation
from jobs import Job

from flareclust.engines.inprocess import run_inprocess
from flareclust.engines.options import JobOptions
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.registry import get

pytestmark = pytest.mark.slow

SITE, OPTIONS = "west", JobOptions(k=5, seed=3, min_sites=2)

#: Control groups of memory, in the first version of Linux' interface.
GROUPS = Path("/sys/fs/cgroup/memory")

#: In a network namespace of its own a process does not see the folder of the groups, as it does in a container.
_SHOW_GROUPS = f"mount -t tmpfs tmpfs {GROUPS.parent} && mkdir {GROUPS} && mount -t cgroup -o memory none {GROUPS}"


@contextmanager
def writing(table: Path) -> Iterator[None]:
    """Append rows to a table all the time."""
    line, over = table.read_text().splitlines(keepends=True)[-1], threading.Event()

    def write() -> None:
        with table.open("a") as file:
            while not over.wait(0.0005):
                file.write(line)
                file.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ended(federation: Federation, algorithm: str = "kfed") -> tuple[Outcome, float]:
    """Return how a job of all sites ended, and its seconds."""
    job = Job(federation, get(algorithm), OPTIONS)
    return job.outcome(), job.ended - job.started


def test_a_table_that_is_being_written_is_refused_until_it_is_complete(federation, files, tmp_path, record):
    rows, table = pd.DataFrame(np.load(files[SITE])), files[SITE].with_name("rows.csv")
    rows.to_csv(table, index=False)
    federation.configure(SITE, path=str(table))
    with writing(table):
        found, seconds = ended(federation)
    assert "rows.csv changed while it was read" in found.refused[SITE]
    record(
        "table being written",
        "another program appends rows to the csv file of one of three sites while a job reads it; quorum 2",
        "the site takes no part, and the others go on; the next job after the file was replaced has all sites and the right result",
        f"{SITE} {found.refused[SITE]}",
        seconds,
    )
    rows.to_csv(tmp_path / "new.csv", index=False)
    os.replace(tmp_path / "new.csv", table)
    found, _ = ended(federation)
    assert found.refused == {}
    here = run_inprocess(get("kfed"), {}, {**files, SITE: table}, OPTIONS)
    np.testing.assert_array_equal(found.centroids, here.centroids)


@pytest.fixture
def little_memory(federation: Federation) -> Iterator[None]:
    """Have a site's processes in a container with 400 MB of memory, as far as memory goes."""
    group = GROUPS / f"flareclust-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("400000000")
    for process in federation.processes(SITE):
        (group / "cgroup.procs").write_text(str(process.pid))
    enter = ["nsenter", "--mount", "--target", str(federation.processes(SITE)[0].pid), "sh", "-ec", _SHOW_GROUPS]
    subprocess.run(enter, check=True)
    yield
    for pid in (group / "cgroup.procs").read_text().split():
        (GROUPS / "cgroup.procs").write_text(pid)
    group.rmdir()


@pytest.mark.skipif(
    not os.access(GROUPS, os.W_OK), reason="only root may make control groups, and here are none of version 1"
)
def test_where_a_job_does_not_fit_into_a_containers_memory_the_site_says_so_and_is_not_killed(
    federation, little_memory, record
):
    table = federation.kit(SITE) / "data" / "many.npy"
    np.lib.format.open_memmap(table, "w+", np.float64, (20_000_000, 2)).flush()  # takes no room on the disk
    federation.configure(SITE, path=str(table))
    before = {process.pid for process in federation.processes(SITE)}
    found, seconds = ended(federation, "lloyd")
    assert "a job needs at least # bytes of memory for each row beside the table" in found.refused[SITE]
    assert before <= {process.pid for process in psutil.process_iter()}
    record(
        "too little memory",
        "the processes of one of three sites have 400 MB of memory, as in a container, and its mapped table 20,000,000 rows; quorum 2",
        "the site takes no part and is not killed, and the others go on",
        f"{SITE} {found.refused[SITE]}",
        seconds,
    )
