"""What `--dry-run` and `flareclust schema` show of tables: how many rows, which cells are missing, what is not read."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from flareclust._foundation.display import in_unit
from flareclust._foundation.errors import Refusal, UserError
from flareclust.data.partition_specs import parse
from flareclust.data.schema.columns import TableSchema
from flareclust.data.tables import Table as Rows
from flareclust.evaluation.agreement import coded_cells, unlike_tables
from flareclust.evaluation.bounds_fit import beside_ranges
from flareclust.experiment.config import Experiment
from flareclust.experiment.prepare import prepare
from flareclust.experiment.prepared import tables_of
from flareclust.experiment.reports.terminal import numbers, say, table_of
from flareclust.experiment.tables.site_rows import site_files
from flareclust.experiment.tables.typed_files import schema_of, typed_sites, typed_table
from flareclust.privacy.dp.budget import bounds_of, misfitting
from flareclust.privacy.policy import Policy


def print_tables(experiment: Experiment) -> None:
    """Read the tables of an experiment and print what they hold; nothing is trained.

    Raises:
        UserError: a table cannot be used, or the sites have rows of their own; of tables that do not fit their schema all faults.
    """
    if experiment.engine in ("poc", "production"):
        raise UserError("the sites have rows of their own; read them there: flareclust site check KIT")
    if not experiment.rows.typed:
        gaps, prepared = experiment.rows.gaps, prepare(experiment)
        tables = tables_of(prepared, gaps=gaps)
        heads = ["missing cells"] if gaps else []
        rows = [
            (site, f"{len(one):,}", one.X.shape[1], *([_gaps_of(one)] if gaps else [])) for site, one in tables.items()
        ]
        Console().print(table_of("", *numbers(experiment.row_name, "columns"), *heads, rows=rows))
        _print_coded(tables, experiment.row_name)
        _print_hints(experiment, tables, own_units=not prepared.parted)
        return
    table, schema = experiment.rows.table, schema_of(experiment.rows)
    if parse(experiment.partition).name == "none":
        typed = typed_sites(
            site_files(Path(experiment.data)), schema, experiment.truth, agreed=experiment.table_schema is not None
        )
    else:
        typed = {Path(experiment.data).name: typed_table("data", table, schema, experiment.truth)}
    print_typed(typed, schema, experiment.row_name)
    _print_hints(experiment, typed, schema)
    prepare(experiment)  # so that a wrong k, or a split that cannot be, is found as well


def _print_hints(
    experiment: Experiment, tables: Mapping[str, Rows], schema: TableSchema | None = None, *, own_units: bool = True
) -> None:
    """Print what is odd about the query that gives them, and which columns seem to be in another unit than the schema's ranges, the bounds of
    the policy, or at the other sites.

    These are compared where the tables are sites' own (`own_units`), and not parts of one that was split.
    """
    row_name = experiment.row_name
    if (query := experiment.rows.in_database) is not None:
        for hint in query.hints(has_ids=all(table.ids is not None for table in tables.values())):
            say(in_unit(hint, row_name), "hint")
    policy = None if experiment.policy is None else Policy.of(experiment.policy)
    said: list[str] = []
    for site, table in tables.items():
        hints = beside_ranges(schema, table)
        if policy is not None and policy.dp is not None:
            try:
                hints += misfitting(bounds_of(policy.dp.bounds, table.columns, table.X.shape[1]), table)
            except Refusal as reason:
                hints.append(str(reason))
        said += hints
        for hint in hints:
            say(f"{site}: {in_unit(hint, row_name)}", "hint")
    named = {
        name
        for table in tables.values()
        for name in table.columns or ()
        if any(hint.startswith(repr(name)) for hint in said)
    }
    units = {} if schema is None else dict(zip(schema.features, schema.feature_units, strict=True))
    shares = [] if schema is None else [schema.features[j] for group in schema.categories for j in group]
    for hint in unlike_tables(tables, units, {*shares, *named}) if own_units else ():
        say(in_unit(hint, row_name), "hint")


def _gaps_of(table: Rows) -> str:
    names = table.columns or tuple(f"column {j + 1}" for j in range(table.X.shape[1]))
    missing = np.isnan(table.X).sum(axis=0)
    return ", ".join(f"{name} {number:,}" for name, number in zip(names, missing, strict=True) if number) or "none"


def print_typed(tables: Mapping[str, Rows], schema: TableSchema, row_name: str = "rows") -> None:
    """Print what tables hold that were read by a schema, its outcome, and which columns may have a code for missing cells; rows are called
    so."""
    lines = []
    for site, table in tables.items():
        gaps, kept = ", ".join(f"{name} {number:,}" for name, number in table.missing.items()), table.rows_kept
        rows = f"{kept:,} (count as {len(table):,})" if len(table) > kept else f"{kept:,}"
        unread = ", ".join(table.unread) or "none"
        lines.append((site, rows, f"{table.rows_read.left_out:,}", table.X.shape[1], gaps or "none", unread))
    heads = numbers(row_name, "dropped", "features")
    Console().print(table_of("", *heads, "missing cells", "columns not read", rows=lines))
    for site, table in tables.items():
        if schema.outcome is not None:
            say(f"{site}: outcome: {in_unit(schema.outcome.words(schema.columns, table.outcomes), row_name)}")
        if table.rows_read.repeated:
            say(f"{site}: {table.rows_read.notes(row_name)['repeated']}", "hint")
    if schema.outcome_hint:
        say(in_unit(schema.outcome_hint, row_name), "hint")
    _print_coded(tables, row_name)


def _print_coded(tables: Mapping[str, Rows], row_name: str) -> None:
    for hint in coded_cells(tables):
        say(in_unit(hint, row_name), "hint")
