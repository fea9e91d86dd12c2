"""Which rows each job at a site had, so that the site can say which results hold those of an id. Nothing of it is sent.

For each table that a job had, the kit keeps the hashes of its ids in order, 8 bytes each; jobs with the same ids share a file.
The key of the hashes is in the same folder: they tell who has the files and not the key nothing, and they are smaller than the ids.
"""

import hashlib
import logging
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.own_files import create, make_folder, write_atomically
from flareclust._foundation.typing import Array
from flareclust.sites.job_log import JOBS_FILE, JobLine, note_rows

_log = logging.getLogger(__name__)

#: In a kit's folder.
_ROWS_FOLDER = "flareclust_rows"

#: Bytes of all hashes that a kit keeps; those of the tables that no job has had for longest go first.
_MOST = 256 << 20

_KEY, _SUFFIX = "key", ".ids"


def keep_rows(kit: Path, job: str, ids: Iterable[str] | None, withdrawn: int) -> None:
    """Write down the ids of the rows that a job has, None for rows without, and how many rows it leaves out.

    Only in a kit that has a log of its jobs; a log that cannot be written is no reason to end a job.
    """
    if not (kit / JOBS_FILE).exists():
        return
    try:
        note_rows(kit, job, "" if ids is None else _kept(kit / _ROWS_FOLDER, ids), withdrawn)
    except OSError as error:
        _log.warning("the log of jobs (flareclust site log) cannot be written: %s", error.strerror)


def held(kit: Path, jobs: Sequence[JobLine], ids: Iterable[str]) -> list[int | None]:
    """Return how many of some ids each job had rows of: 0 for one that had no rows, None where that is not known.

    Raises:
        UserError: the files cannot be read.
    """
    folder, found = kit / _ROWS_FOLDER, dict[str, int]()
    try:
        if (folder / _KEY).exists():
            asked = _hashes((folder / _KEY).read_bytes(), ids)
            for table in {job.rows for job in jobs}:
                if (file := folder / f"{table}{_SUFFIX}").exists():
                    found[table] = int(np.isin(asked, np.fromfile(file, "<u8")).sum())
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from None
    return [found.get(job.rows) if job.accepted else 0 for job in jobs]


def _kept(folder: Path, ids: Iterable[str]) -> str:
    """Return the name under which the ids of a table are kept, now or since an earlier job."""
    make_folder(folder)
    key = _key(folder / _KEY)
    hashes = _hashes(key, ids).astype("<u8")
    name = hashlib.blake2b(hashes.data, key=key, digest_size=16).hexdigest()
    if (file := folder / f"{name}{_SUFFIX}").exists():
        os.utime(file)
    else:
        with write_atomically(file, "bytes", shared=True) as out:
            out.write(hashes.tobytes())
        _make_room(folder, file)
    return name


def _key(file: Path) -> bytes:
    """Return the kit's key, made once: two jobs may begin at a time."""
    if not file.exists():
        own = file.with_name(f"{secrets.token_hex(8)}.new")
        with create(own, "bytes") as out:
            out.write(secrets.token_bytes(32))
        try:
            os.link(own, file)
        except FileExistsError:
            pass
        finally:
            own.unlink()
    return file.read_bytes()


def _hashes(key: bytes, ids: Iterable[str]) -> Array:
    """Return 64 bits for each different id, in order."""
    every = b"".join(hashlib.blake2b(one.encode(), key=key, digest_size=8).digest() for one in ids)
    return np.unique(np.frombuffer(every, "<u8"))


def _make_room(folder: Path, newest: Path) -> None:
    files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda file: (file == newest, file.stat().st_mtime))
    room = _MOST - sum(file.stat().st_size for file in files)
    for file in files[:-1]:
        if room >= 0:
            return
        room += file.stat().st_size
        file.unlink(missing_ok=True)
