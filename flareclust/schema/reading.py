"""Reading a site's table by the federation's schema: rows of features, or one message with all that is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data.file_formats import Names, Piece, Source, listed
from flareclust.data.tables import File, Table, batches, collect, open_columns
from flareclust.schema.cells import MISSING, ColumnReader, TextReader, WeightReader
from flareclust.schema.columns import TableMapping, TableSchema


def read_typed(
    files: Sequence[File],
    schema: TableSchema,
    mapping: TableMapping | None = None,
    *,
    truth: str | None = None,
    memory: int | None = None,
    scratch: Path | None = None,
    bounded: bool = False,
) -> Table:
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
    cells = _Cells(schema, own, truth)
    parts = [file._replace(part=True) for file in files]  # each may have no rows
    limits: dict[str, Any] = {"memory": memory, "scratch": scratch, "bounded": bounded}
    table = collect(parts, cells.opened, lambda names, place: names, gaps=True, **limits)
    cells.refuse(files[0].place if len(files) == 1 else f"{files[0].place} and {len(files) - 1} more", table)
    assert table is not None
    return replace(table, **cells.found)


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


class _Cells:
    """The cells of a table by a schema: readers of its columns, and what is wrong so far."""

    def __init__(self, schema: TableSchema, own: TableMapping, truth: str | None) -> None:
        schema = without(schema, truth)
        self._fingerprint = schema.fingerprint  # what features mean, whichever of them the site has
        for name in own.lacks:
            schema = without(schema, name)
        spellings = MISSING | set(own.missing)
        self._schema, self._own = schema, own
        self._columns = [
            ColumnReader(name, column, own.of(name), schema.missing_of(name), own.decimal, spellings)
            for name, column in schema.used.items()
        ]
        self._dropping = [schema.missing_of(name) == "drop-rows" for name in schema.used]
        self._id = None if schema.id is None else TextReader(schema.id, spellings)
        self._truth = None if truth is None else TextReader(truth, spellings)
        self._texts: list[TextReader] = [reader for reader in (self._id, self._truth) if reader is not None]
        self._weight = None if schema.weight is None else WeightReader(schema.weight, own, spellings)
        self._most = 1
        self._all: list[ColumnReader | TextReader] = [*self._columns, *self._texts]
        self._all += [] if self._weight is None else [self._weight]
        self._sources = [own.source(reader.name) for reader in self._all]
        self._classes = list[str]()
        self._missing = dict.fromkeys(schema.used, 0)
        self._unread: dict[str, None] = {}
        self._faults: list[str] = []
        self._rows = self._kept = 0

    @contextmanager
    def opened(self, file: File) -> Iterator[Source]:
        """Open a file; its rows are the schema's features, none where columns are missing or a cell is wrong."""
        with open_columns(file, self._own.encoding) as stored:
            names = tuple(stored.schema.names)
            self._unread |= dict.fromkeys(name for name in names if name not in self._sources)
            faults = [f"{fault} ({file.place})" for fault in self._misnamed(names)]
            self._faults += faults
            cells = iter(()) if faults else batches(stored, self._sources)
            yield Source(self._schema.features, lambda positions, size: filter(None, map(self._take, cells)))

    def refuse(self, place: str, table: Table | None) -> None:
        """Raise UserError with all faults, or where there are no rows."""
        faults = [*self._faults, *(fault for reader in self._all for fault in reader.faults())]
        if faults:
            raise TableFaults({place: faults})
        if table is None:
            why = (
                "" if not self._rows else f": all {self._rows} have a missing cell in a column with missing: drop-rows"
            )
            raise UserError(f"{place} has no rows{why}; a table needs at least one")

    @property
    def found(self) -> dict[str, Any]:
        """Return the fields of a `Table` beside its rows and ids."""
        return {
            "schema": self._fingerprint,
            "repeats": self._most,
            "dropped": (self._rows - self._kept, self._rows),
            "missing": {name: number for name, number in self._missing.items() if number},
            "unread": tuple(self._unread),
            "truth": None if self._truth is None else tuple(self._classes),
        }

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

    def _take(self, cells: Sequence[Any]) -> Piece | None:
        """Return the rows of some cells and their ids; None where none is left, or a cell was wrong."""
        n = len(cells[0])
        X, gone = self._features(cells, n)
        kept = np.flatnonzero(~gone)
        self._kept += len(kept)
        if self._weight is not None:
            weights = self._weight.weights(cells[-1], self._rows)[kept]
            self._most = max(self._most, int(weights.max(initial=1)))
            kept = np.repeat(kept, weights)
        ids: list[str] | None = None
        for reader, column in zip(self._texts, cells[len(self._columns) :], strict=False):
            texts = reader.read(column, self._rows)
            if reader is self._id:
                ids = [texts[j] for j in kept]
            else:
                self._classes += [texts[j] for j in kept]
        self._rows += n
        if not len(kept) or any(reader.faulty for reader in self._columns):
            return None
        return Piece(X if len(kept) == n and self._most == 1 else X[kept], ids)

    def _features(self, cells: Sequence[Any], n: int) -> tuple[FloatArray, BoolArray]:
        """Return the features (n, d) of some rows, and which are to be left out (n,)."""
        X, gone, at = np.empty((n, len(self._schema.features))), np.zeros(n, dtype=bool), 0
        for reader, column, dropping in zip(self._columns, cells, self._dropping, strict=False):
            X[:, at : at + reader.width], missing = reader.read(column, self._rows)
            self._missing[reader.name] += int(missing.sum())
            gone |= missing & dropping
            at += reader.width
        return X, gone
