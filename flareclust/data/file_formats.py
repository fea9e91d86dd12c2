"""What the readers of the file formats share. Each opens a file and gives its rows piece by piece, unchecked.

Site processes start often and mostly read npy or npz, so pyarrow is imported only where a format needs it.
Errors of NumPy and Arrow quote cells; they are replaced, not chained, so that no value reaches a log.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flareclust._foundation.display import shown, some
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import Array, FloatArray
from flareclust.data.memory import RowStore

Names = tuple[str, ...]

#: The arrays of an npz file that say how often the same row may be there, where a row counts as several, and the rows' outcomes.
REPEATS, OUTCOMES, OUTCOME_FORM = "row_repeats", "row_outcomes", "row_outcome_form"

#: What decoders raise for bytes that are no such file, beside OSError.
DAMAGED = (
    *(ValueError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, SyntaxError),
    *(struct.error, zlib.error),
)

#: What to do with a table that has more than numbers, with missing cells, and with columns without any value.
TEXT_ADVICE = "read text and dates by a schema (--schema, schema=; flareclust schema draft FILE writes one)"
CHOOSE_ADVICE = "choose other columns by name"
GAPS_ADVICE = "drop these rows or fill them in, as missing=mean does"
EMPTY_ADVICE = "choose the others"


#: Files of spreadsheets, by the end of their names and by their first bytes (zip archives, and the older form of Excel).
_SPREADSHEETS, _FIRST_BYTES = (".xlsx", ".xls", ".xlsm", ".ods"), (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


class Piece(NamedTuple):
    """Rows that follow one another: the chosen columns (c, d), unchecked, and the ids (c,) where there are any; a list is checked."""

    rows: Array
    ids: Array | list[str] | None = None


@dataclass(frozen=True)
class FileFingerprint:
    """A file's size in bytes and the time when it was last changed, in nanoseconds; of files in a folder, sums of these.

    Rows that are used from where they lie must not change under a job.
    """

    path: Path
    size: int
    changed: int

    @classmethod
    def of(cls, path: Path, names: Sequence[str] | None = None) -> "FileFingerprint":
        """Return the stamp that a file has now, OSError where it is gone; or that of these files in a folder, without those gone."""
        found = [path.stat()] if names is None else [at.stat() for name in names if (at := path / name).exists()]
        # Each time has another weight, so that two files that change places are noticed.
        changed = sum(weight * one.st_mtime_ns for weight, one in enumerate(found, 1))
        return cls(path, sum(one.st_size for one in found), changed)

    @classmethod
    @contextmanager
    def kept(cls, path: Path, place: str, names: Sequence[str] | None = None) -> Iterator["FileFingerprint"]:
        """Raise UserError where what `of` looks at is written meanwhile; what is wrong with its rows then has this cause."""
        before = cls.of(path, names)
        try:
            yield before
        except UserError:
            if cls.of(path, names) == before:
                raise
        if cls.of(path, names) != before:
            raise UserError(
                f"{place} changed while it was read, so that rows may be cut or missing; write a table or images to another name, "
                "rename it when it is complete, and read it again"
            )

    def check(self) -> None:
        """Raise Refusal where the file has another stamp by now, or is gone."""
        try:
            same = FileFingerprint.of(self.path) == self
        except OSError:
            same = False
        if not same:
            raise Refusal(
                "cannot use its rows: its file changed while the job ran; write new rows to another file, and run the job "
                "again"
            )


class Selection(NamedTuple):
    """What to read of a file: columns by name (None for all) and the column with ids, of a table of numbers.

    With an encoding, which is that of csv files, its columns may be of any type, and all of them are there.
    """

    columns: Names | None = None
    id_name: str | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class Source:
    """An open file.

    Attributes:
        names: of the columns that may be features, the id not among them; None where there are no names.
        read: gives the rows for a store of rows: all at once if they fit there, else in pieces, and which of these columns, in
            this order (None: all).
        columns: gives the cells of columns of any type by name, an Arrow array for each, a part of the rows at a time; None where
            the format has none.
        mapped: the rows as they lie in the file, where they can be used from there.
        stamp: of the file; None for images.
        n: number of rows, where the file's header states it.
        width: number of columns that may be features, likewise.
        repeats: how often the same row may be there, since it counts as several.
        outcomes: of the rows (n, w), where the file has some.
        outcome_form: what these are, see `Table.outcome_form`.
        shape: height, width and channels of the images in the rows; None for tables.
    """

    names: Names | None
    read: Callable[[Sequence[int] | None, RowStore], Iterator[Piece]]
    columns: Callable[[Sequence[str]], Iterator[Sequence[Any]]] | None = None
    mapped: FloatArray | None = None
    stamp: FileFingerprint | None = None
    n: int | None = None
    width: int | None = None
    shape: tuple[int, int, int] | None = None
    repeats: int = 1
    outcomes: FloatArray | None = None
    outcome_form: tuple[float, ...] | None = None

    def cells(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """Give the cells of columns, of which some may be the same, as `columns` does."""
        assert self.columns is not None
        for found in self.columns(different := list(dict.fromkeys(names))):
            by_name = dict(zip(different, found, strict=True))
            yield [by_name[name] for name in names]


def spreadsheet_advice(path: Path) -> str:
    """Return what to do with the file of a spreadsheet, in words that follow a message; "" for another file."""
    found = path.suffix.lower() in _SPREADSHEETS
    if not found and path.is_file():
        with suppress(OSError), path.open("rb") as stream:
            found = stream.read(4) in _FIRST_BYTES
    return "; save a spreadsheet as csv (UTF-8)" if found else ""


@contextmanager
def system_errors(place: str) -> Iterator[None]:
    """Turn what the system says about a file into a UserError."""
    try:
        yield
    except MemoryError:
        raise UserError(
            f"{place}: there is not enough memory for it; set `memory` in the site's configuration to less"
        ) from None
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror or 'the file is damaged'}") from None


def real_path(file: Path, place: str, root: Path | None, advice: str) -> Path:
    """Return a file's own path, without links, which is what is then opened; UserError where it is not under `root`, if there is one."""
    try:
        real = file.resolve()
    except (OSError, RuntimeError):  # a ring of links
        raise UserError(f"{place} cannot be found; its links lead nowhere") from None
    if root is not None and not real.is_relative_to(root):
        raise UserError(
            f"{place} is not under the root of the site's configuration once links are followed; {advice}, or set `root`"
        )
    return real


def listed(names: Sequence[str]) -> str:
    """Return the names in quotes, the first twelve of them where there are more."""
    return some(list(map(shown, names)), 12)


def called(names: Names | None, j: int) -> str:
    """Return what to call column j in a message: its name, or its number counted from 1."""
    return f"column {j + 1}" if names is None else f"column {shown(names[j])}"


def id_place(names: Names, id_name: str | None, place: str) -> int | None:
    """Return where the id column is, None where none is wanted; UserError where it is not there, or more than once."""
    if id_name is None:
        return None
    if names.count(id_name) > 1:
        raise UserError(f"{place} has the id column more than once; every name must differ")
    if id_name not in names:
        raise no_id(place)
    return names.index(id_name)


def no_id(place: str) -> UserError:
    """Return the error of a file without the id column. Its name stays out: it is nobody's business but the site's."""
    return UserError(f"{place} has no column of the name that `id` in the site's configuration gives")


#: Stands before and after the name of a file that may not leave a site, such as a patient's, until it is known who reads the
#: message; no name of a file can hold it.
_MARK = "\0"


def marked(name: str) -> str:
    """Return a file's name, without marks inside it, between marks."""
    return f"{_MARK}{name.replace(_MARK, '')}{_MARK}"


def unmarked(text: str, instead: str | None = None) -> str:
    """Return a text without marks: with the marked names, or with other words in the place of each."""
    return re.sub(f"{_MARK}(.*?){_MARK}", lambda name: name[1] if instead is None else instead, text, flags=re.DOTALL)
