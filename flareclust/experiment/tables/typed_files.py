"""The tables that an experiment reads by a schema, or by the names of ids and classes: files, each with the mapping beside it, and data frames.

And `flareclust.read_table`: one site's table, as a run reads it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import TableFaults, UserError
from flareclust._foundation.validation import beside_schema, check_path, did_you_mean
from flareclust.data.frames import file_of, is_frame, names_of
from flareclust.data.memory import RowStore, site_limit
from flareclust.data.schema.columns import ColumnSchema, TableSchema, read_schema
from flareclust.data.schema.mapping import TableMapping, read_mapping
from flareclust.data.schema.reading import Typed, check_read_by
from flareclust.data.tables import COLUMN_FORMATS, File, Table, open_columns
from flareclust.data.tables import read_table as read_numbers
from flareclust.experiment.config import RowsAsked
from flareclust.experiment.tables.site_rows import site_files

#: Columns of a table without a schema.
_NUMBER, _ID = ColumnSchema(type="number"), ColumnSchema(type="id")


def typed_sites(
    sites: Mapping[str, Any], schema: TableSchema, truth: str | None, *, agreed: bool = True
) -> dict[str, Table]:
    """Return the tables of sites by name: of files, each read with the mapping beside it, data frames, and tables that were read before.

    Where the schema is not `agreed`, but consists of the tables' columns, a table need not have all of them.

    Raises:
        TableFaults: tables do not fit the schema, or cannot be read at all; all faults of all tables are in it.
    """
    found: dict[str, Table] = {}
    faults: dict[str, Sequence[str]] = {}
    for site, rows in sites.items():
        place = str(rows) if isinstance(rows, Path) else site
        try:
            own = None if agreed else _with_lacks(rows, schema)
            found[site] = typed_table(site, rows, schema, truth, site_limit(len(sites)), own)
        except TableFaults as error:
            faults |= error.faults
        except UserError as error:
            faults[place] = [str(error).removeprefix(place).lstrip(": ")]
    if faults:
        raise TableFaults(faults)
    return found


def typed_table(
    name: str,
    rows: Any,
    schema: TableSchema,
    truth: str | None,
    memory: int | None = None,
    mapping: TableMapping | None = None,
) -> Table:
    """Return the table of a file, as `typed_file`, of a query, or of a data frame, which messages call `name`; others are returned as they
    are."""
    if isinstance(rows, Path):
        return typed_file(rows, schema, truth, memory, mapping)
    if isinstance(rows, File):
        return Typed(schema, mapping, truth).read([rows], RowStore(memory, bounded=True))
    if isinstance(rows, Table):
        check_read_by({name: rows.schema}, schema.fingerprint)
        return rows
    return Typed(schema, mapping, truth).read([file_of(name, rows)])


def typed_file(
    path: Path,
    schema: TableSchema,
    truth: str | None,
    memory: int | None = None,
    mapping: TableMapping | None = None,
    *,
    outcome: bool = True,
) -> Table:
    """Return the table of a file, with its `outcome` or without; by default it is read with the mapping beside it, where there is one."""
    return Typed(schema, mapping or mapping_of(path), truth, outcome=outcome).read_one(path, memory)


def mapping_file(path: Path) -> Path:
    """Return the file beside a table that says how it differs from the schema: north.mapping.yaml; there may be none."""
    return path.with_name(f"{path.stem}.mapping.yaml")


def mapping_of(path: Path) -> TableMapping | None:
    """Return the mapping in the file beside a table; None where there is none."""
    beside = mapping_file(path)
    return read_mapping(beside) if beside.is_file() else None


def _with_lacks(rows: Any, schema: TableSchema) -> TableMapping:
    """Return the mapping of a file or data frame that says which columns of the schema it lacks."""
    own, names = (mapping_of(rows) if isinstance(rows, Path) else None) or TableMapping(), _names(rows)
    lacks = [name for name in schema.used if name not in own.columns and name not in names]
    return own if len(lacks) == len(schema.used) else own.model_copy(update={"lacks": (*own.lacks, *lacks)})


def schema_of(asked: RowsAsked, tables: Mapping[str, Any] | None = None) -> TableSchema:
    """Return the schema that is asked for; without one, all columns are numbers but those of ids and of classes.

    These are the columns of the first of the tables, and of all where sites may have different columns. The tables are files or data
    frames by name; by default those that are asked for.
    """
    if asked.table_schema is not None:
        return read_schema(asked.table_schema)
    if tables is None:
        table = asked.table
        if isinstance(table, Path) and table.is_dir():
            tables = {str(one): one for one in site_files(table).values()}
        else:
            tables = {asked.data: table}
    first, names = next((name, _names(rows)) for name, rows in tables.items())
    for name in (asked.id_column, asked.truth):
        if name is not None and name not in names:
            raise UserError(f"{first} has no column {name!r}{did_you_mean(name, names)}")
    if asked.by_name:
        names = tuple(dict.fromkeys(name for rows in tables.values() for name in _names(rows)))
    columns = {name: _ID if name == asked.id_column else _NUMBER for name in names if name != asked.truth}
    return TableSchema(columns=columns)


def _names(rows: Any) -> tuple[str, ...]:
    """Return the names of the columns of a table that no schema describes, as its mapping has them; raise UserError without any."""
    if isinstance(rows, File):
        with open_columns(rows, "utf-8") as source:
            return tuple(source.names or ())
    if not isinstance(rows, Path):
        return names_of(rows)
    path = rows
    form = path.suffix.lower().removeprefix(".")
    if form not in COLUMN_FORMATS or not path.is_file():
        raise UserError(f"{path}: --id and --truth (id_column=, truth=) are for {', '.join(COLUMN_FORMATS)} files")
    mapping = mapping_of(path) or TableMapping()
    agreed = {own.from_: name for name, own in mapping.columns.items() if own.from_ is not None}
    with open_columns(File(path, str(path)), mapping.encoding) as source:
        return tuple(agreed.get(name, name) for name in source.names or ())


#: What to do with a table that is no file.
_IN_MEMORY = (
    "; run, predict and placements take data frames and arrays as they are; a schema reads files and data frames"
)


def read_table(
    file: Any,
    schema: str | Path | None = None,
    *,
    mapping: str | Path | Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
) -> Table:
    """Read one site's table as `run` reads it: by the schema of the federation, or as numbers.

    What it returns has the rows `X` (n, d) with NaN for missing cells, the names of their `columns`, and `ids` where there are
    some. `run` takes it in the place of a data frame, and so do `predict` and `placements` of a result; `numpy.asarray` gives
    its rows.

    Args:
        file: path of a csv, parquet, arrow or feather file; with a schema also a data frame of pandas, polars or pyarrow, and
            without one npy and npz.
        schema: file with the federation's schema; None for a table of numbers.
        mapping: how the table differs from the schema, a file or its keys; None for NAME.mapping.yaml beside it, if there is one.
        columns: without a schema, names of the columns to read, in this order; None for all.
        id_column: without a schema, the column with ids.

    Raises:
        UserError: the table does not fit the schema, or cannot be read; one message with all faults, without any value.

    Example:
        >>> north = flareclust.read_table("data/north.csv", "schema.yaml")  # doctest: +SKIP
        >>> flareclust.run("portfolio", {"north": north, "south": south}, k=3, schema="schema.yaml")  # doctest: +SKIP
    """
    rows = file if schema is not None and is_frame(file) else check_path("file", file, _IN_MEMORY)
    if schema is not None:
        if problem := beside_schema(columns=columns, id_column=id_column):
            raise UserError(problem)
        agreed, own = read_schema(check_path("schema", schema)), None
        if mapping is not None:
            own = (
                TableMapping(**mapping)
                if isinstance(mapping, Mapping)
                else read_mapping(check_path("mapping", mapping))
            )
        return typed_table("data", rows, agreed, None, mapping=own)
    if mapping is not None:
        raise UserError("a mapping says how a table differs from a schema; give the schema, too")
    return read_numbers(rows, columns, id_name=id_column, gaps=True)
