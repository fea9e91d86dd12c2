"""Memory for tables: sizes as people write them, and the limit of a run.

Rows that come in pieces are in memory while they fit, else in a file that has no name and goes with the process.
"""

import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.machine import free_memory, machine_memory
from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.core.chunks import PIECE, pieces

#: The environment variable with the limit of a run, such as "8GB".
LIMIT = "FLARECLUST_MEMORY"

#: Bytes for each row that every algorithm has at a time beside the rows: a label and a distance; and those that code and buffers take.
_BESIDE, _OTHERS = 16, 64 << 20

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?")
_POWER = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int | None:
    """Return a size in bytes: "4GB" and "4GiB" are 4 * 1000**3 and 4 * 1024**3; None where the text is no size."""
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2]] if match else 0.0
    return int(size) if 0 < size < math.inf else None


def _run_limit() -> int:
    """Return the most bytes of rows that a run on this machine reads: `FLARECLUST_MEMORY`, or an eighth of the memory.

    A run holds the rows several times: as they were read, by site, and as the sites use them. UserError for no size.
    """
    if not (text := os.environ.get(LIMIT, "")):
        return machine_memory() // 8
    if (size := parse_size(text)) is None:
        raise UserError(f'{LIMIT} must be a size such as "8GB", got {text[:40]!r}')
    return size


def site_limit(sites: int) -> int:
    """Return the most bytes of rows that each of so many simulated sites holds in memory; further ones lie in a file."""
    return max(1, _run_limit() // sites)


def check_fits(size: int, place: str) -> None:
    """Raise UserError where a table of so many bytes is more than a run reads."""
    if size > (limit := _run_limit()):
        raise UserError(
            f"{place} has {size:,} bytes of rows, more than the {limit:,} that a run may read (an eighth of the machine's "
            f"memory, or {LIMIT}); use fewer rows or columns, or set {LIMIT}=8GB or the like"
        )


class RowStore:
    """Collects rows (n, d).

    Args:
        memory: most bytes to hold in memory; None for no limit.
        scratch: folder for the rows that do not fit; None for the system's temporary folder.
        bounded: whether rows that are more than a run reads are refused (`flareclust.data.memory`).
    """

    def __init__(self, memory: int | None = None, scratch: Path | None = None, *, bounded: bool = False) -> None:
        self._memory, self.scratch, self._bounded = memory, scratch, bounded
        self._parts: list[FloatArray] = []
        self._file: IO[bytes] | None = None
        self._bytes = 0
        self.d: int | None = None  # columns, known from the first rows on

    @property
    def room(self) -> int | None:
        """Return how many bytes of rows may still be held in memory; None for no limit."""
        if self._memory is None:
            return None
        return 0 if self._file is not None else max(0, self._memory - self._bytes)

    @property
    def piece(self) -> int:
        """Return how many bytes of rows should come at once."""
        return PIECE if self._memory is None else min(PIECE, max(self._memory // 4, 1 << 20))

    def takes(self, n: int, d: int, copies: int) -> bool:
        """Return whether so many copies of rows (n, d) may be held in memory."""
        return self.room is None or 8 * n * d * copies <= self.room

    def check_fits(self, size: int, place: str) -> None:
        """Raise UserError where so many bytes of a file, with what is there already, are more than a run reads."""
        if self._bounded:
            check_fits(self._bytes + size, place)

    @staticmethod
    def check_job_fits(n: int) -> None:
        """Raise UserError where what every job holds beside n rows is more than what is free for this process."""
        if _BESIDE * n > free_memory() - min(_BESIDE * n, _OTHERS):
            raise UserError(
                f"a job needs at least {_BESIDE} bytes of memory for each row beside the table, and this process may not have as "
                "much: give its container or machine more memory, or name fewer rows"
            )

    def add(self, rows: FloatArray) -> None:
        """Add rows (c, d), C-contiguous; UserError where they do not fit in the scratch folder."""
        self.d = rows.shape[1]
        self._bytes += rows.nbytes
        self._parts.append(rows)
        if self._memory is not None and self._bytes > self._memory:
            self._write()

    def keep(self, kept: BoolArray) -> None:
        """Forget all rows but these (n,), piece by piece, where they lie; nothing is added after. UserError as `add`."""
        if self._file is None or self.d is None:
            ends = np.cumsum([0, *map(len, self._parts)]).tolist()
            for j, part in enumerate(self._parts):
                self._parts[j] = part[kept[ends[j] : ends[j + 1]]]
        else:
            rows, end = self._mapped("r+"), 0
            for place in pieces(*rows.shape):
                left = rows[place][kept[place]]
                rows[end : end + len(left)] = left
                end += len(left)
        self._bytes = 8 * int(kept.sum()) * (self.d or 0)

    def rows(self) -> FloatArray:
        """Return all rows (n, d): an array, or a read-only map of the file with them; UserError as `add`."""
        return self._joined() if self._file is None or self.d is None else self._mapped("r")

    def _mapped(self, mode: Literal["r", "r+"]) -> FloatArray:
        assert self._file is not None
        assert self.d is not None
        with _scratch_errors():
            self._file.flush()
        return np.memmap(self._file, np.float64, mode, shape=(self._bytes // (8 * self.d), self.d))

    def close(self) -> None:
        """Forget the rows; a map that `rows` returned stays valid."""
        self._parts.clear()
        if self._file is not None:
            _close(self._file)

    def _write(self) -> None:
        with _scratch_errors():
            if self._file is None:
                self._file = _nameless(self.scratch)
            for part in self._parts:
                self._file.write(part.data)
        self._parts.clear()

    def _joined(self) -> FloatArray:
        if len(self._parts) == 1:
            return self._parts[0]
        rows = np.empty((sum(map(len, self._parts)), self._parts[0].shape[1]))
        end = len(rows)
        while self._parts:  # each part is freed as soon as it is copied
            part = self._parts.pop()
            rows[end - len(part) : end] = part
            end -= len(part)
        return rows


@contextmanager
def on_disk(data: Iterable[bytes], scratch: Path | None) -> Iterator[IO[bytes]]:
    """Give a file without a name, in a folder as for `RowStore`, with this data; UserError where it does not fit. A map of it stays valid."""
    with _scratch_errors():
        file = _nameless(scratch)
    try:
        for part in data:  # what goes wrong with reading it is no matter of the scratch folder
            with _scratch_errors():
                file.write(part)
        with _scratch_errors():
            file.flush()
        yield file
    finally:
        _close(file)


def _nameless(scratch: Path | None) -> IO[bytes]:
    # Without a name from the start, so nothing is left of it even where the process is killed; mode 0600.
    return tempfile.TemporaryFile(dir=scratch)


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # on a full disk it tries once more to write what it still holds
        file.close()


@contextmanager
def _scratch_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the rows need more than `memory` allows, and the scratch folder cannot take them ({error.strerror}); "
            "see `memory` and `scratch` in the site's configuration"
        ) from None
