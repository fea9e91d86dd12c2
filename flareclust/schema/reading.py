"""Reading a site's table by the federation's schema: rows of features, or one message with all that is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data.file_formats import Names, listed
from flareclust.data.ids import Ids
from flareclust.data.memory import RowStore
from flareclust.data.tables import File, Table, batches, open_columns
from flareclust.schema.cells import MISSING, ColumnReader, TextReader, WeightReader
from flareclust.schema.columns import TableMapping, TableSchema


@dataclass(frozen=True, eq=False)
class TypedTable:
    """A site's rows, read by a schema.

    Attributes:
        table: rows (n, d) with the schema's features, and ids where the schema has a column of them.
        rows_read: in the files.
        rows_kept: of these; with weights fewer than the table has, where a row is as often as it counts.
        missing: how many cells are missing, of the columns that have some.
        unread: the files' columns that the schema does not have.
        truth: the known class of each row (n,), where a column of them was asked for.
    """

    table: Table
    rows_read: int
    rows_kept: int
    missing: dict[str, int]
    unread: Names
    truth: tuple[str, ...] | None = None


def read_typed(
    files: Sequence[File],
    schema: TableSchema,
    mapping: TableMapping | None = None,
    *,
    truth: str | None = None,
    memory: int | None = None,
    scratch: Path | None = None,
    bounded: bool = False,
) -> TypedTable:
    """Read a table by a schema, from one file or from several one after the other.

    Args:
        files: csv, parquet, arrow or feather; at least one.
        schema: the federation's.
        mapping: the site's; None where the files are as the schema says.
        truth: a further column of the files, with known classes; no feature, even where the schema says that it is one.
        memory: most bytes of rows to hold in memory; more are written to a file and mapped. None for no limit.
        scratch: folder for that file.
        bounded: whether a table is refused that is larger than a run reads.

    Raises:
        UserError: the mapping does not go with the schema, or the files do not fit it: one message with all faults, counted
            by column, without any value.
    """
    own = mapping or TableMapping()
    own.check(schema)
    store = RowStore(memory, scratch, bounded=bounded)
    reader = _TableReader(schema, own, truth, store)
    try:
        for file in files:
            reader.read(file)
        return reader.finished(_listed_files(files))
    finally:
        store.close()


def without(schema: TableSchema, column: str | None) -> TableSchema:
    """Return a schema where a column is no feature; as it is for None, or a column that it does not have."""
    if column is None or column not in (*schema.used, schema.weight):
        return schema
    return TableSchema(
        missing=schema.missing, columns={name: one for name, one in schema.columns.items() if name != column}
    )


def check_read_by(schemas: Mapping[str, str], wanted: str) -> None:
    """Raise UserError where tables were read by another schema than that of their run.

    Args:
        schemas: fingerprint of the schema by which each table was read, "" for none.
        wanted: that of the run.
    """
    if other := [name for name, schema in schemas.items() if schema != wanted]:
        raise UserError(
            f"{', '.join(other)}: read by another schema than that of the run, or by none; read it with "
            "flareclust.read_table(file, schema) by the schema of the run"
        )


def _listed_files(files: Sequence[File]) -> str:
    """Return what messages call the files of one table."""
    return files[0].place if len(files) == 1 else f"{files[0].place} and {len(files) - 1} more"


def _weight_reader(name: str, own: TableMapping, spellings: frozenset[str]) -> WeightReader:
    return WeightReader(name, own.of(name), own.decimal, spellings)


class _TableReader:
    """The state of reading a table: readers of its columns, the rows so far, and what is wrong."""

    def __init__(self, schema: TableSchema, own: TableMapping, truth: str | None, store: RowStore) -> None:
        schema = without(schema, truth)
        self._fingerprint = schema.fingerprint  # what features mean, whichever of them the site has
        for name in own.lacks:
            schema = without(schema, name)
        spellings = MISSING | set(own.missing)
        self._schema, self._own, self._store = schema, own, store
        self._columns = [
            ColumnReader(name, column, own.of(name), schema.missing_of(name), own.decimal, spellings)
            for name, column in schema.used.items()
        ]
        self._dropping = [schema.missing_of(name) == "drop-rows" for name in schema.used]
        self._id = None if schema.id is None else TextReader(schema.id, spellings)
        self._truth = None if truth is None else TextReader(truth, spellings)
        self._texts: list[TextReader] = [reader for reader in (self._id, self._truth) if reader is not None]
        self._weight = None if schema.weight is None else _weight_reader(schema.weight, own, spellings)
        self._most = 1
        self._all: list[ColumnReader | TextReader] = [*self._columns, *self._texts]
        self._all += [] if self._weight is None else [self._weight]
        self._sources = [own.source(reader.name) for reader in self._all]
        self._ids, self._classes = Ids(), list[str]()
        self._missing = dict.fromkeys(schema.used, 0)
        self._unread: dict[str, None] = {}
        self._faults: list[str] = []
        self._rows = self._kept = 0

    def read(self, file: File) -> None:
        """Read a file's rows, unless columns are missing."""
        with open_columns(file, self._own.encoding) as stored:
            names = tuple(stored.schema.names)
            self._unread |= dict.fromkeys(name for name in names if name not in self._sources)
            if faults := self._misnamed(names):
                self._faults += [f"{fault} ({file.place})" for fault in faults]
                return
            for cells in batches(stored, self._sources):
                self._take(cells, file.place)

    def finished(self, place: str) -> TypedTable:
        """Return the table; raise UserError with all faults."""
        faults = [*self._faults, *(fault for reader in self._all for fault in reader.faults())]
        if faults:
            raise TableFaults({place: faults})
        if not self._kept:
            why = (
                "" if not self._rows else f": all {self._rows} have a missing cell in a column with missing: drop-rows"
            )
            raise UserError(f"{place} has no rows{why}; a table needs at least one")
        ids = None if self._id is None else self._ids
        rows, names = self._store.rows(), self._schema.features
        dropped = self._rows - self._kept, self._rows
        table = Table(rows, names, ids=ids, schema=self._fingerprint, repeats=self._most, dropped=dropped)
        missing = {name: number for name, number in self._missing.items() if number}
        classes = None if self._truth is None else tuple(self._classes)
        return TypedTable(table, self._rows, self._kept, missing, tuple(self._unread), classes)

    def _misnamed(self, names: Names) -> list[str]:
        """Return what is wrong with the names of a file's columns, a clause each."""
        faults = []
        for reader, source in zip(self._all, self._sources, strict=True):
            if source not in names:
                others = [name for name in names if name not in self._sources]
                own = "" if source == reader.name else f", in the file {source!r},"
                # Known classes are named once for all sites, so by the schema where it has them.
                agreed = did_you_mean(source, list(self._schema.columns)) if reader is self._truth else ""
                faults.append(f"{reader.name}:{own} no such column{agreed or did_you_mean(source, others)}")
            elif names.count(source) > 1:
                faults.append(f"{reader.name}: {names.count(source)} columns of this name")
        if faults and (others := [name for name in names if name not in self._sources]):
            faults[-1] += f"; columns without a place in the schema: {listed(others)}"
        return faults

    def _take(self, cells: Sequence[Any], place: str) -> None:
        n = len(cells[0])
        X, gone = self._features(cells, n)
        kept = np.flatnonzero(~gone)
        self._kept += len(kept)
        if self._weight is not None:
            weights = self._weight.weights(cells[-1], self._rows)[kept]
            self._most = max(self._most, int(weights.max(initial=1)))
            kept = np.repeat(kept, weights)
        texts_at = len(self._columns)
        for reader, column in zip(self._texts, cells[texts_at : texts_at + len(self._texts)], strict=True):
            texts = reader.read(column, self._rows)
            if reader is self._id:
                self._ids.extend(texts[j] for j in kept)
            else:
                self._classes += [texts[j] for j in kept]
        self._rows += n
        if not any(reader.faulty for reader in self._columns):
            self._store.check_fits(X.itemsize * len(kept) * X.shape[1], place)
            self._store.add(X if len(kept) == n and self._most == 1 else X[kept])

    def _features(self, cells: Sequence[Any], n: int) -> tuple[FloatArray, BoolArray]:
        """Return the features (n, d) of some rows, and which are to be left out (n,)."""
        X, gone, at = np.empty((n, len(self._schema.features))), np.zeros(n, dtype=bool), 0
        for reader, column, dropping in zip(self._columns, cells, self._dropping, strict=False):
            X[:, at : at + reader.width], missing = reader.read(column, self._rows)
            self._missing[reader.name] += int(missing.sum())
            gone |= missing & dropping
            at += reader.width
        return X, gone
