"""What `--dry-run` and `flareclust schema` show of tables: how many rows, which cells are missing, what is not read."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flareclust._foundation.display import printable
from flareclust._foundation.errors import UserError
from flareclust.data.partition_specs import parse
from flareclust.data.tables import Table as Rows
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.prepared import tables_of
from flareclust.experiment.typed_rows import schema_of, typed_file, typed_sites
from flareclust.schema.reading import TypedTable


def print_tables(experiment: Experiment) -> None:
    """Read the tables of an experiment and print what they hold; nothing is trained.

    Raises:
        UserError: a table cannot be used, or the sites have rows of their own; of tables that do not fit their schema all faults.
    """
    if experiment.engine in ("poc", "production"):
        raise UserError("the sites have rows of their own; read them there: flareclust site check KIT")
    if not experiment.typed:
        tables = tables_of(prepare(experiment), gaps=experiment.gaps)
        gaps = experiment.gaps
        table = _table("rows", "columns", *(["missing cells"] if gaps else []))
        for site, one in tables.items():
            cells = [_gaps_of(one)] if gaps else []
            table.add_row(_shown(site), f"{len(one):,}", str(one.X.shape[1]), *cells)
        Console().print(table)
        return
    path, schema = Path(experiment.data), schema_of(experiment)
    if parse(experiment.partition).name == "none":
        print_typed(typed_sites(path, schema, experiment.truth))
    else:
        print_typed({path.name: typed_file(path, schema, experiment.truth)})
    prepare(experiment)  # so that a wrong k, or a split that cannot be, is found as well


def _gaps_of(table: Rows) -> str:
    names = table.columns or tuple(f"column {j + 1}" for j in range(table.X.shape[1]))
    missing = np.isnan(table.X).sum(axis=0)
    return _shown(
        ", ".join(f"{name} {number:,}" for name, number in zip(names, missing, strict=True) if number) or "none"
    )


def print_typed(tables: Mapping[str, TypedTable]) -> None:
    """Print what tables hold that were read by a schema."""
    table = _table("rows", "dropped", "features", "missing cells", "columns not read")
    for site, typed in tables.items():
        gaps = ", ".join(f"{name} {number:,}" for name, number in typed.missing.items())
        dropped = typed.rows_read - typed.rows_kept
        rows = f"{typed.rows_kept:,}" + (
            f" (count as {len(typed.table):,})" if len(typed.table) > typed.rows_kept else ""
        )
        width = typed.table.X.shape[1]
        table.add_row(
            _shown(site), rows, f"{dropped:,}", str(width), _shown(gaps or "none"),
            _shown(", ".join(typed.unread) or "none"),
        )  # fmt: skip
    Console().print(table)


def _table(*headings: str) -> Table:
    table = Table(box=None)
    for heading in ("", *headings):
        table.add_column(heading, justify="right" if heading in ("rows", "dropped", "features", "columns") else "left")
    return table


def _shown(text: object) -> str:
    return escape(printable(text))
