"""Rows that a caller of `flareclust.run` has in memory: one table to split over sites, or the rows of each site."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust.data.cells import check_rows
from flareclust.data.datasets import Dataset
from flareclust.data.frames import is_frame, table_of
from flareclust.data.tables import Table
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare, prepare_sites
from flareclust.experiment.prepared import Prepared
from flareclust.experiment.tables.typed_rows import fingerprint_of, schema_facts, settled_settings
from flareclust.schema.reading import check_read_by


def of_named_sites(data: Mapping[str, Any], partition: str | None, n_sites: int | None) -> tuple[str, int]:
    """Return partition and number of sites of rows by site; raise UserError where something else was asked for."""
    if not data:
        raise UserError("no sites: expected a mapping of site names to rows")
    if n_sites not in (None, len(data)):
        raise UserError(f"n_sites is {n_sites}, and data has {len(data)} sites by name; leave n_sites out")
    if partition not in (None, "none"):
        raise UserError(
            f"partition is {partition!r}, and data has the rows of each site; leave it out, or pass one table"
        )
    return "none", len(data)


def in_memory(experiment: Experiment, data: Any) -> Prepared | None:
    """Return the federation of rows that are arrays, frames or tables; None for a data set's name and for files."""
    if isinstance(data, str | Path):
        return None
    if experiment.engine in ("poc", "production"):
        raise UserError(f"the sites of the engine {experiment.engine} have rows of their own; leave out data")
    if experiment.typed:
        return _typed_in_memory(experiment, data)
    if isinstance(data, Mapping):
        return prepare_sites(experiment, data)
    table = table_of("data", data) if is_frame(data) else None
    if table is not None and table.repeats > 1:
        raise UserError("a table with weights is one site's; give it as such: data={name: table, ...}")
    X = check_rows(data if table is None else table.X, where="data", gaps=experiment.gaps)
    if table is None:
        return prepare(experiment, Dataset(name="own data", X=X))
    whole = Dataset(name="own data", X=X, columns=table.columns, dropped=table.dropped)
    return replace(prepare(experiment, whole), schema=table.schema)


def _typed_in_memory(experiment: Experiment, data: Any) -> Prepared:
    """Return the federation of tables that `read_table` has read by the experiment's schema."""
    tables = list(data.values()) if isinstance(data, Mapping) else []
    read = bool(tables) and all(isinstance(table, Table) for table in tables)
    if not read or experiment.table_schema is None:
        raise UserError(
            "schema, id_column and truth need the path of one file, or of a folder with a file for each site; or give a "
            "schema and a table of flareclust.read_table for each site"
        )
    if experiment.truth or experiment.id_column:
        raise UserError(
            "tables of flareclust.read_table hold features, and ids where the schema names them; leave out truth and "
            "id_column, or give the folder with the files"
        )
    wanted = fingerprint_of(experiment)
    check_read_by({site: table.schema for site, table in data.items()}, wanted)
    prepared = prepare_sites(experiment, data)
    params = {**prepared.params, **settled_settings(experiment)}
    return replace(prepared, params=params, **schema_facts(experiment))
