"""What people do at machines: commands of flareclust, each a process of its own, and a machine that is lost."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import processes
from harness import Federation, wait_until

from tests.patience import PATIENCE


def flareclust(folder: Path, *words: object, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with more variables in its environment; return what it printed. It must end with the code."""
    done = subprocess.run(
        [sys.executable, "-m", "flareclust", *map(str, words)],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)} | env,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def wait_idle(federation: Federation) -> None:
    """Wait until no process of a job runs: operators change their kits between jobs."""
    hosts = [federation.kit(host) for host in federation.hosts]
    wait_until(lambda: not any(processes.job_of_kit(kit) for kit in hosts), "no job runs")


@contextmanager
def burnt(folder: Path, *machines: Path) -> Iterator[None]:
    """Take machines away; what nobody has brought back in the end is put back, for the other tests."""
    folder.mkdir()
    for number, machine in enumerate(machines):
        shutil.move(machine, folder / str(number))
    try:
        yield
    finally:
        for number, machine in enumerate(machines):
            if not machine.exists():
                shutil.move(folder / str(number), machine)
