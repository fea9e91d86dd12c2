"""Reading a site's table by the federation's schema: rows of features, or one message with all that is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from itertools import compress
from numbers import Real
from typing import Any

import numpy as np

from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import did_you_mean
from flareclust.data import file_formats
from flareclust.data.cells import takes_numbers, without_age, without_log
from flareclust.data.frames import cells_of, names_of, table_of
from flareclust.data.ids import hashes_of, repeats
from flareclust.data.memory import RowStore
from flareclust.data.schema.cells import ColumnReader, OddCell, OutcomeReader, TextReader, WeightReader
from flareclust.data.schema.columns import ColumnSchema, Missing, TableSchema
from flareclust.data.schema.mapping import ColumnMapping, TableMapping
from flareclust.data.tables import File, Reader, Table, open_columns

#: How the feature of a category ends that says that its cell is missing.
_MISSING = "=missing"


class Typed(Reader):
    """Reads a table by a schema. All that is wrong with it is in one error, counted by column, without any value.

    Args:
        schema: the federation's.
        mapping: the site's; None where the files are as the schema says.
        truth: a further column of the files, with known classes; no feature, even where the schema says that it is one.
        outcome: whether to read the outcome that the schema names; rows that are new have none yet.

    Raises:
        UserError: the mapping does not go with the schema.
    """

    gaps = True

    def __init__(
        self,
        schema: TableSchema,
        mapping: TableMapping | None = None,
        truth: str | None = None,
        *,
        outcome: bool = True,
    ) -> None:
        own = mapping or TableMapping()
        own.check(schema)
        self._placed = {own.source(name) for name in schema.columns}
        schema = without(schema, truth)
        self._fingerprint = schema.fingerprint  # what features mean, whichever of them the site has
        for name in own.lacks:
            schema = without(schema, name)
        self._schema, self._own = schema, own
        self._columns = [
            ColumnReader(name, column, own.of(name), schema.missing_of(name), own.decimal, own.spellings(name))
            for name, column in schema.used.items()
        ]
        self._dropping = [schema.missing_of(name) == "drop-rows" for name in schema.used]
        self._id = None if schema.id is None else TextReader(schema.id, own.spellings(schema.id))
        self._truth = None if truth is None else TextReader(truth, own.spellings(truth))
        self._texts: list[TextReader] = [reader for reader in (self._id, self._truth) if reader is not None]
        named = None if schema.outcome is None else schema.outcome.columns
        has_outcome = outcome and named is not None and not set(named) & set(own.lacks)
        self._outcome = OutcomeReader(schema, own) if has_outcome else None
        self._outcomes = list[FloatArray]()
        form = schema.outcome_form
        self._outcome_form = None if form is None else tuple(form.numbers.tolist())
        self._weight = None if schema.weight is None else WeightReader(schema.weight, own)
        self._most = 1
        self._all: list[ColumnReader | TextReader] = [*self._columns, *self._texts]
        self._all += [] if self._outcome is None else self._outcome.readers
        self._all += [] if self._weight is None else [self._weight]
        self._sources = [own.source(reader.name) for reader in self._all]
        self._classes = list[str]()
        self._missing = dict.fromkeys(schema.used, 0)
        self._unread: dict[str, None] = {}
        self._faults, self._refused = list[str](), list[str]()
        # Of each row: its id, and how often it is in the table.
        self._hashes, self._times = list[Array](), list[IntArray]()
        self._rows = self._kept = self._repeated = 0

    def read(self, files: Sequence[File], store: RowStore | None = None) -> Table:
        """Return the table in csv, parquet, arrow or feather files; as `Reader`, and a file may have no rows."""
        return super().read([file._replace(part=True) for file in files], store)

    @contextmanager
    def _opened(self, file: File) -> Iterator[file_formats.Source]:
        with open_columns(file, self._own.encoding) as source:
            names = source.names or ()
            self._unread |= dict.fromkeys(name for name in names if name not in self._sources)
            faults = [f"{fault} ({file.place})" for fault in self._misnamed(names)]
            self._faults += faults
            found = map(self._piece, () if faults else source.cells(self._sources))
            yield file_formats.Source(self._schema.features, lambda positions, store: filter(None, found))

    def _chosen(self, names: file_formats.Names | None, place: str) -> file_formats.Names | None:
        return names

    def _staying(self) -> BoolArray | None:
        """Return which rows (n,) of the table stay: all, or one of each id. Those with a missing cell are gone already."""
        if self._id is None or self._id.faulty or not self._hashes:
            return None
        times, keep = np.concatenate(self._times), self._schema.duplicates
        left = np.flatnonzero(times)
        again = repeats(np.concatenate(self._hashes)[left], later=keep == "last")
        self._repeated = int(again.sum())
        if keep == "refuse" and self._repeated:
            rows = "1 row has" if self._repeated == 1 else f"{self._repeated} rows have"
            self._refused.append(
                f"{self._id.name}: {rows} the id of an earlier row, first in row {left[again.argmax()] + 1} (duplicates: first, last "
                "or keep in the schema; or correct the ids)"
            )
        if keep not in ("first", "last") or not self._repeated or any(reader.faulty for reader in self._columns):
            return None
        return np.asarray(~np.repeat(again, times[left]))

    def _keep(self, rows: BoolArray) -> None:
        self._classes = list(compress(self._classes, rows))
        self._outcomes = [np.concatenate(self._outcomes)[rows]] if self._outcomes else []

    def _file_rows(self, rows: BoolArray) -> int:
        times = np.concatenate(self._times)
        return len(np.unique(np.repeat(np.arange(len(times)), times)[rows]))

    def _finished(self, table: Table | None, files: Sequence[File]) -> Table:
        place = files[0].place if len(files) == 1 else f"{files[0].place} and {len(files) - 1} more"
        faults = [*self._faults, *(fault for reader in self._all for fault in reader.faults()), *self._refused]
        if faults:
            raise TableFaults({place: faults})
        if table is None:
            dropped = f": all {self._rows} have a missing cell in a column with missing: drop-rows"
            why = dropped if self._rows else ""
            raise UserError(f"{place} has no rows{why}; a table needs at least one")
        return replace(
            table,
            schema=self._fingerprint,
            repeats=self._most,
            rows_read=table.rows_read._replace(
                of=self._rows, gaps=self._rows - self._kept, repeated=self._repeated, duplicates=self._schema.duplicates
            ),
            missing={name: number for name, number in self._missing.items() if number},
            unread=tuple(self._unread),
            truth=None if self._truth is None else tuple(self._classes),
            outcomes=np.concatenate(self._outcomes) if self._outcomes else None,
            outcome_form=self._outcome_form if self._outcomes else None,
        )

    def _misnamed(self, names: file_formats.Names) -> list[str]:
        """Return what is wrong with the names of a file's columns, a clause each."""
        faults, others = [], [name for name in names if name not in {*self._placed, *self._sources}]
        for reader, source in zip(self._all, self._sources, strict=True):
            if source not in names:
                own = "" if source == reader.name else f", in the file {source!r},"
                # Known classes are named once for all sites, so by the schema where it has them.
                agreed = did_you_mean(source, list(self._schema.columns)) if reader is self._truth else ""
                faults.append(f"{reader.name}:{own} no such column{agreed or did_you_mean(source, others)}")
            elif names.count(source) > 1:
                faults.append(f"{reader.name}: {names.count(source)} columns of this name")
        if faults and others:
            faults[-1] += f"; columns without a place in the schema: {file_formats.listed(others)}"
        return faults

    def _piece(self, cells: Sequence[Any]) -> file_formats.Piece | None:
        """Return the rows of the columns' cells, and their ids; None where none is left, or a cell was wrong."""
        n = len(cells[0])
        for one, column in zip(self._all, cells, strict=True):
            one.look_at(column)
        X, gone = self._features(cells, n)
        kept = np.flatnonzero(~gone)
        self._kept += len(kept)
        times = (~gone).astype(np.int64)
        if self._weight is not None:
            times *= self._weight.weights(cells[-1], self._rows)
            self._most = max(self._most, int(times.max(initial=1)))
            kept = np.repeat(np.arange(n), times)
        ids: list[str] | None = None
        for reader, column in zip(self._texts, cells[len(self._columns) :], strict=False):
            texts = reader.read(column, self._rows)
            if reader is self._id:
                ids = [texts[j] for j in kept]
                self.withdrawn.drop(compress(texts, gone))
                self._hashes.append(hashes_of(texts))
                self._times.append(times)
            else:
                self._classes += [texts[j] for j in kept]
        if self._outcome is not None:
            others = cells[len(self._columns) + len(self._texts) :]
            self._outcomes.append(self._outcome.read(others, self._rows)[kept])
        self._rows += n
        if not len(kept) or any(reader.faulty for reader in self._columns):
            return None
        return file_formats.Piece(X if len(kept) == n and self._most == 1 else X[kept], ids)

    def _features(self, cells: Sequence[Any], n: int) -> tuple[FloatArray, BoolArray]:
        """Return the features (n, d) of some rows, and which are to be left out (n,)."""
        X, gone, at = np.empty((n, len(self._schema.features))), np.zeros(n, dtype=bool), 0
        for reader, column, dropping in zip(self._columns, cells, self._dropping, strict=False):
            X[:, at : at + reader.width], missing = reader.read(column, self._rows)
            self._missing[reader.name] += int(missing.sum())
            gone |= missing & dropping
            at += reader.width
        return X, gone


def odd_cells(
    files: Sequence[File], schema: TableSchema, mapping: TableMapping | None = None, most: int = 20
) -> list[OddCell]:
    """Return cells of a table's files that do not fit a schema, of each column and kind of fault the first ones.

    They hold values of rows: show them to the owner of the rows, and write them nowhere.
    """
    reader = Typed(schema, mapping)
    for one in reader._all:
        one.most = most
    with suppress(UserError):
        reader.read(files)
    return [cell for one in reader._all for cell in one.odd]


def rows_of(frame: Any, columns: Sequence[str], words: Mapping[str, Sequence[str]] | None = None) -> FloatArray:
    """Return the rows (n, d) of a data frame in these columns; NaN where a cell is missing.

    Args:
        frame: of pandas, polars or pyarrow, or a table with names, which holds features. A category may be one column of its
            values, and a column of words may hold its features, as numbers; an age may be a column of dates.
        columns: of the result (d,), a category's called like `sex=f`.
        words: which of them may hold words, with the values of an ordered column, none for dates.

    Raises:
        UserError: a column is missing, or holds something else than numbers, words or the values of the category.
    """
    if isinstance(frame, Table):
        return table_of("X", frame, columns, may_be_empty=True).X
    present, words = names_of(frame), words or {}
    plain, places = list[int](), dict[str, list[int]]()
    for j, column in enumerate(columns):
        name = (without_age(column) or (without_log(column),))[0] or column.partition("=")[0]
        if column in present and column in words:
            places[column] = [j]
        elif column not in present and name in present and name not in columns:
            places.setdefault(name, []).append(j)
        else:
            plain.append(j)
    parts = [(plain, table_of("X", frame, [columns[j] for j in plain], may_be_empty=True).X)] if plain else []
    for name, own in places.items():
        if name in words:
            values = tuple(words[name])
            read_as = ColumnSchema(type="ordered" if values else "date", values=values or None)
        elif without_log(columns[own[0]]) is not None:
            read_as = ColumnSchema(type="number", transform="log")
        elif (age := without_age(columns[own[0]])) is not None:
            read_as = ColumnSchema.model_validate({"type": "date", "as": "age", "reference": age[1]})
        else:
            own.sort(key=lambda j: columns[j].endswith(_MISSING))
            values = tuple(columns[j].partition("=")[2] for j in own if not columns[j].endswith(_MISSING))
            missing: Missing | None = "as-category" if len(values) < len(own) else None
            read_as = ColumnSchema(type="category", values=values, missing=missing)
        parts.append((own, _features(frame, name, read_as)))
    X = np.empty((len(parts[0][1]), len(columns)))
    for own, part in parts:
        X[:, own] = part
    return X


def _features(frame: Any, name: str, column: ColumnSchema) -> FloatArray:
    """Return the features (n, f) of a data frame's column as from a file; cells of an ordered column or date may be features."""
    import pyarrow as pa

    cells, gone = cells_of(frame, name)
    plain = column.type in ("ordered", "date") and column.as_ is None
    is_number = [plain and isinstance(cell, Real) and not left for cell, left in zip(cells, gone, strict=True)]
    if any(is_number) and not takes_numbers(column.values or ()):
        raise UserError(
            f"X: numbers in the ordered column {name!r} may be values or their places; give values as texts, or read the file by the "
            "schema (flareclust.read_table)"
        )
    texts = [
        None if left else cell.isoformat() if isinstance(cell, date) else str(cell)
        for cell, left in zip(cells, np.logical_or(gone, is_number), strict=True)
    ]
    reader = ColumnReader(name, column, ColumnMapping(), column.missing or "partial", ".", frozenset(("",)))
    X = reader.read(pa.array(texts, pa.string()), 0)[0]
    if reader.faulty:
        what = (
            "cells that are no numbers of 0 and more"
            if column.transform
            else f"values that are no dates such as 2024-12-31{f', or after {column.reference}' if column.reference else ''}"
        )
        if column.values:
            what = f"values other than {', '.join(column.values)}, which the run did not have"
        raise UserError(f"X: column {name!r} holds {what}")
    at = np.flatnonzero(is_number)
    X[at, 0] = [cells[i] for i in at]
    return X


def without(schema: TableSchema, column: str | None) -> TableSchema:
    """Return a schema where a column is no feature; as it is for None, or a column that it does not have."""
    if column is None or column not in (*schema.used, schema.weight):
        return schema
    columns = {name: one for name, one in schema.columns.items() if name != column}
    return schema.model_copy(update={"columns": columns})


def check_read_by(schemas: Mapping[str, str], wanted: str) -> None:
    """Raise UserError where tables were read by a schema with another fingerprint, "" for none, than that of their run."""
    if other := [name for name, schema in schemas.items() if schema != wanted]:
        raise UserError(
            f"{', '.join(other)}: read by another schema than that of the run, or by none; read it with "
            "flareclust.read_table(file, schema) by the schema of the run"
        )
