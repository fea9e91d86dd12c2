"""Rows that come in pieces: in memory while they fit, else in a file that has no name and goes with the process."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import PIECE
from flareclust.data.memory import check_fits


class RowStore:
    """Collects rows (n, d).

    Args:
        memory: most bytes to hold in memory; None for no limit.
        scratch: folder for the rows that do not fit; None for the system's temporary folder.
        bounded: whether rows that are more than a run reads are refused (`flareclust.data.memory`).
    """

    #: The number of columns, None before the first rows.
    d: int | None

    def __init__(self, memory: int | None = None, scratch: Path | None = None, *, bounded: bool = False) -> None:
        self._memory, self.scratch, self._bounded = memory, scratch, bounded
        self._parts: list[FloatArray] = []
        self._file: IO[bytes] | None = None
        self._bytes = 0
        self.d = None

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

    def check_fits(self, size: int, place: str) -> None:
        """Raise UserError where so many bytes of a file, with what is there already, are more than a run reads."""
        if self._bounded:
            check_fits(self._bytes + size, place)

    def add(self, rows: FloatArray) -> None:
        """Add rows (c, d), C-contiguous.

        Raises:
            UserError: they do not fit in the scratch folder.
        """
        self.d = rows.shape[1]
        self._bytes += rows.nbytes
        self._parts.append(rows)
        if self._memory is not None and self._bytes > self._memory:
            self._write()

    def rows(self) -> FloatArray:
        """Return all rows (n, d): an array, or a read-only map of the file with them; UserError as `add`."""
        if self._file is None or self.d is None:
            return self._joined()
        with _scratch_errors():
            self._file.flush()
        return np.memmap(self._file, np.float64, "r", shape=(self._bytes // (8 * self.d), self.d))

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
    """Give a file without a name, in a folder as for `RowStore`, with this data; a map of it stays valid.

    Raises:
        UserError: it does not fit there.
    """
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
