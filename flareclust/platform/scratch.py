"""Temporary folders with the rows of simulated sites, or with a signed job and its result: they go with the run, or at the latest when the next one begins.

The process that made a folder holds a lock on it, which the system releases however that process ends. So a folder
without a lock is a leftover of a run that was killed, and neither a process with an old number nor a changed clock can
be taken for its owner, or the owner for dead.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flareclust._foundation.extras import require_posix
from flareclust._foundation.interrupts import deferred_signals
from flareclust.platform.process_tree import end_all, working_in

_PREFIX = "fc-"

#: A file in each of these folders, which distinguishes them from folders of other programs.
_MARK = ".flareclust"

#: NVFlare makes sockets in its temporary folder, whose paths may not be longer than about 100 characters.
_LONGEST_BASE = 50

#: A younger folder may belong to a process that has not locked it yet.
_YOUNGEST_LEFTOVER = 5.0

#: Seconds in which the processes of a killed run must be gone.
_LONGEST_END = 30.0


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Give a folder for this account only, with which NVFlare's simulator can work, too; it goes with everything in it.

    NVFlare splits its own command lines at spaces, so a TMPDIR with a space cannot be used, nor a long one. What killed
    runs have left beside it is removed first.

    Raises:
        UserError: on Windows.
    """
    require_posix("a run with NVFlare")
    base = scratch_base()
    _sweep(base)
    folder, lock = None, None
    try:
        with deferred_signals():
            folder, lock = _make(base)
        yield str(folder)
    finally:
        with deferred_signals():
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def leftovers() -> list[Path]:
    """Return the folders that killed runs of this account have left; the next `scratch_folder` removes them."""
    found = []
    for folder, lock in _unlocked(scratch_base()):
        os.close(lock)
        found.append(folder)
    return found


def scratch_base() -> Path:
    """Return the folder in which scratch folders are made: that for temporary files, or /tmp where its path is unusable."""
    base = tempfile.gettempdir()
    usable = len(base) <= _LONGEST_BASE and not any(character.isspace() for character in base)
    return Path(base if usable else "/tmp")


def _make(base: Path) -> tuple[Path, int]:
    """Return a new folder that this process has locked, with the open lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        if (lock := _locked(folder)) is not None:
            (folder / _MARK).touch()
            return folder, lock


def _locked(folder: Path) -> int | None:
    """Return the open lock of a folder; None where another process has it, or the folder is gone."""
    import fcntl  # not on Windows

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(folder)):
            return handle
    os.close(handle)
    return None


def _sweep(base: Path) -> None:
    """Remove the folders of this account that no living process has locked, after the processes that work in them."""
    for folder, lock in _unlocked(base):
        try:
            end_all(lambda name=str(folder): working_in(name), _LONGEST_END)  # type: ignore[misc]
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _unlocked(base: Path) -> Iterator[tuple[Path, int]]:
    """Yield the folders of this account that no living process has locked, each with the open lock that is now ours."""
    for folder in base.glob(f"{_PREFIX}*"):
        old = False
        with suppress(OSError):  # it has just gone
            about = folder.lstat()
            old = about.st_uid == os.getuid() and time.time() - about.st_ctime >= _YOUNGEST_LEFTOVER
        if old and (folder / _MARK).is_file() and (lock := _locked(folder)) is not None:
            yield folder, lock
