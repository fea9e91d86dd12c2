"""Tables of numbers: from a file or an array to checked rows.

The rows are private, so no message here or in the readers of the formats ever shows a value: it names the file, the column and
the row number, counted from 1 and without the header.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flareclust._foundation.display import shown
from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.core.chunks import pieces
from flareclust.data import file_formats
from flareclust.data.arrow_files import open_arrow, open_parquet
from flareclust.data.cells import FiniteCheck, as_numbers
from flareclust.data.csv_files import open_csv
from flareclust.data.file_formats import (
    FileFingerprint,
    Names,
    Selection,
    Source,
    listed,
    spreadsheet_advice,
    system_errors,
    unmarked,
)
from flareclust.data.ids import Duplicates, Ids, Withdrawn, as_texts
from flareclust.data.image_files import open_images
from flareclust.data.memory import RowStore
from flareclust.data.npy_files import open_numpy

#: Opens a path, which messages call so, to read this of it.
_Opener = Callable[[Path, str, Selection], AbstractContextManager[Source]]

#: The formats that `read_table` knows.
FORMATS: Mapping[str, _Opener] = {
    "npy": open_numpy,
    "npz": open_numpy,
    "csv": open_csv,
    "parquet": open_parquet,
    "arrow": open_arrow,
    "feather": open_arrow,
}

#: The formats whose columns have names and any type, as tables with a schema need them.
COLUMN_FORMATS = ("csv", "parquet", "arrow", "feather")

#: The suffixes that say a file's format.
SUFFIXES: tuple[str, ...] = tuple(f".{name}" for name in FORMATS)


#: What became of rows that repeat an id, in words that follow their number.
_REPEATED: Mapping[Duplicates, str] = {
    "keep": "kept beside an earlier one with the same id; duplicates: first or last in a schema keeps one row of each id",
    "first": "left out, since an earlier one has the same id (duplicates: first)",
    "last": "left out, since a later one has the same id (duplicates: last)",
}


class RowsRead(NamedTuple):
    """What became of the rows of a table's files.

    Attributes:
        of: how many there are; 0 where that was not counted.
        gaps: how many were left out, since a cell is missing (missing: drop-rows).
        repeated: how many of the others have the id of an earlier row; with duplicates: last, of a later one.
        duplicates: whether these are in the table (keep), or were left out (first, last).
        withdrawn: how many of the others take part in no job, since the site has withdrawn their ids.
        withdrawn_gaps: how many of `gaps` have ids that the site has withdrawn.
    """

    of: int = 0
    gaps: int = 0
    repeated: int = 0
    duplicates: Duplicates = "keep"
    withdrawn: int = 0
    withdrawn_gaps: int = 0

    @property
    def left_out(self) -> int:
        """Return how many rows of the files are not in the table."""
        return self.gaps + self.withdrawn + (0 if self.duplicates == "keep" else self.repeated)

    def notes(self, row_name: str = "rows") -> dict[str, str]:
        """Return a sentence for each of `gaps`, `repeated` and `withdrawn` that is not 0, by its name; rows are called so."""
        said = {"gaps": (self.gaps, "left out, since a cell is missing (missing: drop-rows)")}
        said["repeated"] = (self.repeated, _REPEATED.get(self.duplicates, ""))
        said["withdrawn"] = (self.withdrawn, "left out, since their ids are withdrawn (flareclust site withdraw)")
        return {
            name: f"{n:,} of {self.of:,} {row_name} {'was' if n == 1 else 'were'} {what}"
            for name, (n, what) in said.items()
            if n
        }


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, and what their columns are called.

    Attributes:
        X: (n, d) float64, C-contiguous; finite and with at least one row where it was read from a file. A read-only map of
            a file where the rows were too many for the memory that was allowed.
        columns: the d column names, or None where there are none.
        salt: the secret that several sites hash the names of their columns with, "" for none.
        hidden: names that do not leave the site.
        ids: of the rows, where they have any; for the site's own labels file.
        stamp: of the file that is mapped, where it is the site's own.
        scratch: folder for further files of rows, None for the system's temporary folder.
        schema: fingerprint of the schema by which they were read, "" for none.
        repeats: how often the same row may be there, since it counts as several (a column of type weight).
        rows_read: how many rows its files have, how many of them are not there, and how many repeat an id.
        missing: by a schema, how many cells are missing, of the columns that have some.
        unread: the files' columns that the schema does not have.
        truth: the known class of each row (n,), where a column of them was asked for.
        outcomes: of the rows (n, w), NaN where unknown, where a schema names some: time and event, or a value
            (`flareclust.core.outcomes`).
        outcome_form: what these are (`OutcomeForm.numbers`), None without.
        groups: of the rows (n,), where they stand for groups of a policy.
        withdrawn: which rows (n,) only help to divide the others into groups, and are in none that is used; None for no row.
        not_found, dropped: the withdrawn ids that no row has, and those of rows that a schema drops, since a cell is missing.
    """

    X: FloatArray = field(repr=False)
    columns: tuple[str, ...] | None = None
    salt: str = field(default="", repr=False)
    hidden: frozenset[str] = frozenset()
    ids: Ids | None = field(default=None, repr=False)
    stamp: FileFingerprint | None = field(default=None, repr=False)
    scratch: Path | None = field(default=None, repr=False)
    schema: str = ""
    repeats: int = 1
    rows_read: RowsRead = field(default_factory=RowsRead)
    missing: Mapping[str, int] = field(default_factory=dict)
    unread: Names = ()
    truth: tuple[str, ...] | None = field(default=None, repr=False)
    outcomes: FloatArray | None = field(default=None, repr=False)
    outcome_form: tuple[float, ...] | None = None
    groups: IntArray | None = field(default=None, repr=False)
    withdrawn: BoolArray | None = field(default=None, repr=False)
    not_found: frozenset[str] = field(default=frozenset(), repr=False)
    dropped: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        """Keep outcomes from being taken for those of other rows."""
        assert self.outcomes is None or len(self.outcomes) == len(self.X), "as many outcomes as rows"

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.X)

    @property
    def rows_kept(self) -> int:
        """Return how many rows of its files take part: with weights fewer than it has, where a row is as often as it counts."""
        return self.rows_read.of - self.rows_read.left_out if self.rows_read.of else len(self)

    @property
    def ids_used(self) -> Iterable[str] | None:
        """Return the ids of the rows that take part, which are those that get labels; None where rows have none."""
        return self.ids if self.ids is None or self.withdrawn is None else compress(self.ids, ~self.withdrawn)

    def only(self, kept: BoolArray) -> "Table":
        """Return the table with those of its rows that a mask (n,) has; files of rows are read."""
        names = ("X", "outcomes", "groups", "withdrawn")
        parts: dict[str, Any] = {name: value[kept] for name in names if (value := getattr(self, name)) is not None}
        if self.ids is not None:
            parts["ids"] = Ids()
            parts["ids"].extend(compress(self.ids, kept))
        if self.truth is not None:
            parts["truth"] = tuple(compress(self.truth, kept))
        return replace(self, **parts, stamp=None)

    @property
    def says_more(self) -> bool:
        """Return whether it holds more about its rows than their numbers and the names of their columns."""
        return self.ids is not None or self.repeats > 1 or bool(self.schema) or self.outcomes is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        n, d = self.X.shape
        return n, d

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """Return the rows, as numpy.asarray does."""
        return np.array(self.X, dtype=dtype, copy=copy)

    @property
    def outcome_arrays(self) -> dict[str, Array]:
        """Return the arrays that an npz file has of the outcomes; none without."""
        if self.outcomes is None:
            return {}
        return {file_formats.OUTCOMES: self.outcomes, file_formats.OUTCOME_FORM: np.array(self.outcome_form)}

    def check_unchanged(self) -> None:
        """Raise Refusal where the rows lie in a file that has changed since it was opened."""
        if self.stamp is not None:
            self.stamp.check()


#: The rows of one site: an array (n, d), the same with the names of its columns, or the file they are in.
Rows = FloatArray | Table | Path


class File(NamedTuple):
    """A file with a table, or a folder of images, and what messages call it. The format is that of its name unless it is said.

    The images in a folder must lie under `root` once links are followed; None for anywhere. A part of a table may have no
    rows, as long as another part has some. What is no file, such as a data frame, has an `opener` of its own.
    """

    path: Path
    place: str
    format: str | None = None
    root: Path | None = None
    part: bool = False
    opener: _Opener | None = None


class Reader(ABC):
    """Reads one table, from one file or from several with the same columns, one after the other; it is used once.

    Attributes:
        gaps: whether cells may be missing, which is NaN.
        names: of the columns, once a file is open; None where they have none.
        withdrawn: the ids whose rows are left out, or marked.
    """

    gaps: bool
    withdrawn = Withdrawn()
    names: Names | None
    _first = ""

    @abstractmethod
    def _opened(self, file: File) -> AbstractContextManager[Source]:
        """Open a file; what the system says about it becomes a UserError."""

    @abstractmethod
    def _chosen(self, names: Names | None, place: str) -> Names | None:
        """Return which of a file's columns to read; None where they have no names."""

    def _staying(self) -> BoolArray | None:
        """Return which of the rows (n,) that were read stay in the table; None for all."""
        return None

    def _keep(self, rows: BoolArray) -> None:  # noqa: B027 (readers that know no more have nothing to drop)
        """Drop what the reader knows of other rows than these (n,), beside their cells and ids."""

    def _file_rows(self, rows: BoolArray) -> int:
        """Return how many rows of the files some rows (n,) of the table are."""
        return int(rows.sum())

    @abstractmethod
    def _finished(self, table: Table | None, files: Sequence[File]) -> Table:
        """Return the table, None for one without rows; UserError where something was wrong."""

    def read(self, files: Sequence[File], store: RowStore | None = None) -> Table:
        """Return the table in at least one file, by way of a store that is closed then; None for one in memory without limit.

        Raises:
            UserError: a file is not there, is damaged, is in no known format, or has other columns than the first one or other
                cells than expected; there are no rows, or too many.
        """
        store, ids, repeats, outcomes, form = store or RowStore(), Ids(), 1, None, None
        try:
            for file in files:
                with self._opened(file) as source:
                    repeats, positions = max(repeats, source.repeats), self._positions_in(source, file.place)
                    outcomes, form = (source.outcomes, source.outcome_form) if len(files) == 1 else (None, None)
                    mapped = source.mapped if len(files) == 1 else None
                    if (
                        mapped is not None
                        and store.room is not None
                        and mapped.nbytes > store.room
                        and not self.withdrawn
                    ):
                        check = FiniteCheck(None, file.place, gaps=self.gaps)
                        for part in pieces(*mapped.shape):
                            check.look(mapped[part])
                        check.refuse()
                        return Table(mapped, stamp=source.stamp, scratch=store.scratch)
                    self._read_into(store, ids, source, positions, file)
            kept = self._staying()
            if store.d is None:
                return self._finished(None, files)
            kept, about = self._without_withdrawn(ids, kept)
            if kept is not None:
                self._keep(kept)
                store.keep(kept)
                outcomes = None if outcomes is None else outcomes[kept]
                all_ids, ids = ids, Ids()
                ids.extend(compress(all_ids, kept))
            own_ids = ids if len(ids) else None
            about |= {"outcomes": outcomes, "outcome_form": form}
            rows = Table(store.rows(), self.names, ids=own_ids, scratch=store.scratch, repeats=repeats, **about)
            return self._finished(rows, files)
        finally:
            store.close()

    def read_one(self, path: Path, memory: int | None = None) -> Table:
        """Return the table in a file of a user, whose messages may name it, unless it is larger than a run reads."""
        try:
            return self.read([File(path, str(path))], RowStore(memory, bounded=True))
        except TableFaults:
            raise
        except UserError as error:
            raise UserError(unmarked(str(error))) from None

    def _without_withdrawn(self, ids: Ids, kept: BoolArray | None) -> tuple[BoolArray | None, dict[str, Any]]:
        """Return which of the rows with these ids (n,) stay, of those that do otherwise, and what the table says of the others."""
        if not self.withdrawn:
            return kept, {}
        gone = self.withdrawn.look(ids)
        stays = np.ones(len(gone), dtype=np.bool_) if kept is None else kept
        read = RowsRead(withdrawn=self._file_rows(gone & stays), withdrawn_gaps=self.withdrawn.dropped_rows)
        about = {"rows_read": read, "not_found": self.withdrawn.not_found, "dropped": self.withdrawn.dropped}
        if self.withdrawn.marked:
            return kept, about | {"withdrawn": gone[stays] if gone.any() else None}
        return stays & ~gone, about

    def _positions_in(self, source: Source, place: str) -> list[int] | None:
        """Return where a file has the table's columns, None for all in its order; UserError where its columns are others."""
        own = self._chosen(source.names, place)
        if not self._first:
            self._first, self.names = place, own
        if (own is None) != (self.names is None):
            raise UserError(f"{place} and {self._first} must both have names of columns, or neither")
        if odd := sorted(set(own or ()) ^ set(self.names or ())):
            raise UserError(f"{place} has other columns than {self._first}; on one side only: {listed(odd)}")
        if self.names is None or source.names in (None, self.names):
            return None
        at = {name: j for j, name in enumerate(source.names or ())}
        return [at[name] for name in self.names]

    def _read_into(self, store: RowStore, ids: Ids, source: Source, positions: list[int] | None, file: File) -> None:
        """Check the rows of a file and add them to those read before."""
        place, n = file.place, 0
        check = FiniteCheck(self.names, place, gaps=self.gaps)
        width = len(positions) if positions is not None else source.width
        if source.n is not None and width is not None:
            store.check_fits(8 * source.n * width, place)
        for rows, texts in source.read(positions, store):
            X = as_numbers(rows, self.names, place, after=n)
            if store.d not in (None, X.shape[1]):
                raise UserError(f"{place} has {X.shape[1]} columns where {self._first} has {store.d}")
            check.look(X)
            if texts is not None:
                ids.extend(texts if isinstance(texts, list) else as_texts(texts, place, n + 1))
            store.check_fits(X.nbytes, place)
            store.add(X)
            n += len(X)
        check.refuse()
        if n == 0 and not file.part:
            raise UserError(f"{place}: there are no rows (shape {(0, len(self.names or ()))}); expected at least one")


class Numbers(Reader):
    """Reads a table of numbers; a file's suffix says its format.

    - `.npy`: a 2-D array.
    - `.npz`: the array `X`, or else the only 2-D one; an array of strings `columns`, where there is one, names its
      columns.
    - `.csv`: UTF-8, separated by comma, semicolon, tab or |. A first row of numbers is data, a first row of words is the
      header; so is any first row when columns are asked for by name.
    - `.parquet`, `.arrow`, `.feather` (version 2): all columns except a stored pandas index.
    - a folder: of images, one per row (`flareclust.data.image_files`).

    Args:
        columns: the names of the columns to read, in this order; None reads all.
        may_lack: whether the files may lack some of them, but not all, and all files the same.
        id_name: the column (in npz files also the array) with the rows' ids, which is no feature. The ids of images are
            their relative paths.
        gaps: whether cells may be missing, which is NaN.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        may_lack: bool = False,
        id_name: str | None = None,
        gaps: bool = False,
    ) -> None:
        self._columns = (columns,) if isinstance(columns, str) else None if columns is None else tuple(columns)
        self._may_lack, self._id_name, self.gaps = may_lack, id_name, gaps

    def columns_of(self, file: File) -> Names | None:
        """Return the names of a file's columns without that of the ids, None where it has none; no rows are read."""
        with self._opened(file) as source:
            return source.names

    def headers(self, files: Sequence[File]) -> tuple[Names, list[int]]:
        """Return the names of a table's columns, and how many rows each of its parquet files has; UserError as `read`."""
        rows = []
        for file in files:
            with self._opened(file) as source:
                self._positions_in(source, file.place)
                rows.append(source.n or 0)
        if not sum(rows):
            self._finished(None, files)
        return self.names or (), rows

    def _finished(self, table: Table | None, files: Sequence[File]) -> Table:
        if table is None:
            raise UserError(f"{files[0].place}: there are no rows in any of {len(files)} parts; expected at least one")
        if table.ids is None or table.repeats > 1:
            return table
        out = table.rows_read.withdrawn
        of = len(table) + (out if table.withdrawn is None else 0)
        return replace(table, rows_read=RowsRead(of, repeated=table.ids.repeated(), withdrawn=out))

    def _opened(self, file: File) -> AbstractContextManager[Source]:
        if self._columns == ():
            raise UserError(
                f"{file.place}: an empty list of columns was asked for; name at least one, or leave it out for all"
            )
        _refuse_repeats(self._columns or (), f"{file.place}: the columns asked for")
        return _open(file, Selection(self._columns, self._id_name))

    def _chosen(self, names: Names | None, place: str) -> Names | None:
        wanted = self._columns
        if names is None:
            if wanted is not None:
                raise UserError(f"{place} has no column names to choose by; an array `columns` (.npz) can name them")
            return None
        if wanted is None:
            _refuse_repeats(names, f"{place}: the column names")
            return names
        known = set(names)
        missing = [name for name in wanted if name not in known]
        if self._may_lack and len(missing) < len(wanted):
            wanted = tuple(name for name in wanted if name in known)
        elif missing:
            hints = ", ".join(f"{shown(name)}{did_you_mean(name, names)}" for name in missing[:_MOST_HINTS])
            more = f" and {len(missing) - _MOST_HINTS} more" if len(missing) > _MOST_HINTS else ""
            raise UserError(f"{place} has no column {hints}{more}; it has {listed(names)}")
        asked = set(wanted)
        _refuse_repeats([name for name in names if name in asked], f"{place}: the column names")
        return wanted


def read_table(
    path: str | Path,
    columns: Sequence[str] | None = None,
    *,
    may_lack: bool = False,
    id_name: str | None = None,
    gaps: bool = False,
) -> Table:
    """Read a file, or a folder of images, as `Numbers` with these arguments does; UserError where it is larger than a run reads."""
    return Numbers(columns, may_lack=may_lack, id_name=id_name, gaps=gaps).read_one(Path(path))


def open_columns(file: File, encoding: str) -> AbstractContextManager[Source]:
    """Open a table whose columns have names and any type: csv in this encoding, of texts only, parquet, arrow or feather.

    UserError, also from reading, where it is of another format, is not there, is damaged, or is no such text.
    """
    return _open(file, Selection(encoding=encoding))


@contextmanager
def _open(file: File, selection: Selection) -> Iterator[Source]:
    path, place, kind, root, _, own = file
    if own is not None:
        with system_errors(place), own(path, place, selection) as source:
            yield source
        return
    form = (kind or Path(place).suffix.lower()).removeprefix(".")
    if selection.encoding is not None and form not in COLUMN_FORMATS:
        raise UserError(
            f"{place}: a table with a schema is one of {', '.join(COLUMN_FORMATS)}{spreadsheet_advice(path)}"
        )
    with system_errors(place):
        if path.is_dir():
            with open_images(path, place, root, selection.id_name) as source:
                yield source
        elif not path.is_file():
            raise UserError(f"{place}: no such file")
        elif (opener := FORMATS.get(form)) is None:
            raise UserError(
                f"{place}: unknown suffix; a table has one of {', '.join(SUFFIXES)}{spreadsheet_advice(path)}"
            )
        elif path.stat().st_size == 0:
            raise UserError(f"{place} is empty; a table needs at least one row")
        else:
            with (
                _held(path) as held,
                FileFingerprint.kept(held, place) as stamp,
                opener(held, place, selection) as source,
            ):
                yield replace(source, stamp=replace(stamp, path=path))


@contextmanager
def _held(path: Path) -> Iterator[Path]:
    """Give a path that leads to the file that is here now, also once another file has its name; where there is none, its own."""
    with path.open("rb") as stream:
        held = Path(f"/proc/self/fd/{stream.fileno()}")  # Linux; it opens the file anew, from its beginning
        yield held if held.exists() else path


#: So many missing columns are named in a message.
_MOST_HINTS = 12


def _refuse_repeats(names: Sequence[str], subject: str) -> None:
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise UserError(f"{subject} hold {listed(repeated)} more than once; every name must differ")
