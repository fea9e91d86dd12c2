"""The command `flareclust poc` as a person calls it, with an empty home, and the processes of a POC."""

import os
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from tests.living import naming
from tests.patience import PATIENCE

COMMAND = [sys.executable, "-m", "flareclust", "poc"]


def flareclust(place, *words, home=None):
    """Call `flareclust` as a person does and return exit code, stdout and stderr; a run keeps files in a home."""
    done = subprocess.run(
        [*COMMAND[:-1], *map(str, words)],
        check=False,
        cwd=place / "work",
        env=environment(place) | ({} if home is None else {"HOME": str(home)}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


def environment(place):
    return os.environ | {"HOME": str(place / "home"), "TMPDIR": str(place / "temporary")}


def command(place, *words):
    """Call `flareclust poc` as a person does and return exit code, stdout and stderr."""
    return flareclust(place, COMMAND[-1], *words)


def nvflare(kit):
    """Return the process of NVFlare, not its daemon, that runs from a kit."""
    for process in naming(kit):
        with suppress(psutil.Error):  # it may just have ended
            if "-m" in process.cmdline() and str(kit) in process.cmdline():
                return process
    return None


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not so within {PATIENCE} s"
        time.sleep(0.2)
