"""Files and folders that only the account which made them can read: labels, rows, pictures of rows, ledgers."""

import csv
import hashlib
import os
import re
import tempfile
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from flareclust._foundation.errors import UserError

#: Bytes that must fit on the disk before work is done whose result goes there.
_PROBE = 2**16


def state_folder() -> Path:
    """Return the folder for what this account's programs keep: `$XDG_STATE_HOME/flareclust`, or under the home folder.

    Raises RuntimeError where there is no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "flareclust"


def fallbacks(name: str) -> list[Path]:
    """Return new folders for what cannot be written where it should: in the state folder, then in the temporary one."""
    fresh = f"{name}-{uuid.uuid4().hex[:6]}"
    temporary = Path(tempfile.gettempdir()) / "flareclust-results" / fresh
    try:
        return [state_folder() / "results" / fresh, temporary]
    except RuntimeError:
        return [temporary]


def _check_writable(folder: Path) -> None:
    """Raise OSError unless a file of some size can be written to an existing folder, as on a disk that is full."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0" * _PROBE)
        file.flush()
        os.fsync(file.fileno())


def check_target(folder: Path, names: Collection[str] = ()) -> None:
    """Raise UserError unless a result may be written to `folder`: a new one, or one that holds files of these names only."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is a file; --out must name a folder")
    try:
        _check_writable(existing)
    except OSError as error:
        raise UserError(f"{existing} cannot be written to ({error.strerror}); choose another folder") from error
    if folder.is_dir() and (others := {path.name for path in folder.iterdir()} - set(names)):
        raise UserError(f"{folder} holds other files, such as {min(others)}; choose a new folder")


@contextmanager
def reserved(folder: Path | None) -> Iterator[None]:
    """Keep other runs of this account from `folder` while its result is on the way; None for a run without one.

    The lock is the system's, on a file in the state folder, and ends with the process. Where that folder cannot be written, or there are
    no such locks, nobody is kept out.

    Raises:
        UserError: another run is on the way to this folder.
    """
    lock = None if folder is None else _lock_of(folder)
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):  # it is gone, or its folder
                lock[0].unlink()
            os.close(lock[1])


def _lock_of(folder: Path) -> tuple[Path, int] | None:
    """Return the locked file for a folder, with its open handle; None where there can be none."""
    try:
        import fcntl  # not on Windows

        file = state_folder() / "running" / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
        make_folder(file.parent)
        while True:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), os.stat(file)):  # else another run has just ended and removed it
                    return file, handle
            except FileNotFoundError:
                pass
            except BlockingIOError:
                os.close(handle)
                raise UserError(
                    f"another run is on the way to {folder}; wait for its end, or name another folder with --out"
                ) from None
            os.close(handle)
    except (ImportError, OSError, RuntimeError):
        return None


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for this account only; those that are there stay as they are."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def create(path: Path, kind: Literal["text", "bytes"] = "text", mode: int = 0o600) -> IO[Any]:
    """Open a new file for writing, with its mode from the first byte; an older file of that name is removed."""
    path.unlink(missing_ok=True)  # an older file would keep its own mode, and a link would be followed
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    return os.fdopen(opened, "wb") if kind == "bytes" else os.fdopen(opened, "w", encoding="utf-8", newline="")


@contextmanager
def write_atomically(
    path: Path, kind: Literal["text", "bytes"] = "text", *, mode: int | None = 0o600, shared: bool = False
) -> Iterator[IO[Any]]:
    """Give a new file to write, which takes the place of `path` in one step when all of it is on the disk.

    Where that fails, what was there stays, and nothing else is left.

    Args:
        path: of the file; its folder is there.
        kind: what is written.
        mode: of the file; None for the account's usual one.
        shared: whether another process may be writing the same file now. The unfinished file has a name of its own then, else
            `NAME.part`, and replaces one that a killed process has left.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}" if shared else f"{path.name}.part")
    try:
        with create(part, kind, 0o666 if mode is None else 0o600) as file:
            if mode is not None:
                part.chmod(mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def append(path: Path, text: str, *, durable: bool = True) -> None:
    """Add a text to a file that only this account can read; it is on the disk when this returns, unless it need not be."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def close_files(folder: Path) -> None:
    """Make the files that lie in a folder readable for their owner only, and the folder as well."""
    folder.chmod(0o700)
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)


#: What a spreadsheet begins a formula with, after any number of the quotes that we put in front.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _plain_text(text: str) -> str:
    """Return a text that a spreadsheet shows as it is: with a `'` in front where it would be a formula.

    Numbers stay as they are, so `-5` does. A reader removes one `'` from the front of a text that goes on, after
    it or after further ones, with one of `= + - @`, a tab or a carriage return.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def write_rows(file: IO[str], rows: Iterable[Iterable[object]]) -> None:
    """Write rows as comma-separated lines that end with a line feed, with `_plain_text` for all text."""
    plain = ([_plain_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(_LineFeeds(file), lineterminator="\r\n").writerows(plain)


class _LineFeeds:
    """Takes lines that end with CR LF. Only for such lines Python before 3.13 puts a carriage return within quotes."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> None:
        """Write one line."""
        self._file.write(line.removesuffix("\r\n") + "\n")
