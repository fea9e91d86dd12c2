"""`flareclust.read_table`: one site's table, as a run reads it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.validation import check_path
from flareclust.data.file_names import unmarked
from flareclust.data.tables import File, Table, read_files
from flareclust.experiment.tables.typed_files import typed_file
from flareclust.schema.columns import read_schema
from flareclust.schema.mapping import TableMapping, read_mapping

#: What to do with a table that is no file.
_IN_MEMORY = (
    "; run, predict and placements take data frames and arrays as they are; to read a data frame by a schema, write it to a "
    'file first, as with to_csv("north.csv", index=False)'
)


def read_table(
    file: str | Path,
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
        file: csv, parquet, arrow or feather; without a schema also npy and npz.
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
    path = check_path("file", file, _IN_MEMORY)
    if schema is not None:
        if columns is not None or id_column is not None:
            raise UserError(
                "the schema says which columns are features and which one has ids; leave out columns and id_column"
            )
        agreed = read_schema(check_path("schema", schema))
        return typed_file(path, agreed, None, mapping=_as_mapping(mapping)).table
    if mapping is not None:
        raise UserError("a mapping says how a table differs from a schema; give the schema, too")
    try:
        return read_files([File(path, str(path))], columns, id_name=id_column, bounded=True, gaps=True)
    except UserError as error:
        raise UserError(unmarked(str(error))) from None


def _as_mapping(given: str | Path | Mapping[str, Any] | None) -> TableMapping | None:
    if given is None:
        return None
    return TableMapping(**given) if isinstance(given, Mapping) else read_mapping(check_path("mapping", given))
