"""`flareclust schema`: the schema of a federation's tables, drafted at one site and checked at the others."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust._foundation.errors import UserError
from flareclust._foundation.options import COMMANDS
from flareclust.cli.entry import say

_RUN = COMMANDS["run"]

schema_app = typer.Typer(no_args_is_help=True, help="The schema of the sites' tables: types, units, values.")

_Source = Annotated[
    str,
    typer.Argument(metavar="FILE", help="A csv, parquet, arrow or feather file, or a database sql+... with --query."),
]
_Query = Annotated[str | None, typer.Option(help=_RUN["query"].help)]
_Password = Annotated[str | None, typer.Option(help=_RUN["password"].help)]
_Mapped = Annotated[
    Path | None, typer.Option(help="How the file differs from the schema; by default NAME.mapping.yaml beside it.")
]


@schema_app.command("draft")
def _schema_draft(
    source: _Source,
    out: Annotated[Path | None, typer.Option(help="The schema to write; by default it is printed.")] = None,
    mapping: _Mapped = None,
    encoding: Annotated[
        str | None, typer.Option(help="Of a csv file: utf-8 (the default), latin-1, cp1252, ...")
    ] = None,
    decimal: Annotated[str | None, typer.Option(help='What stands before fractions in a csv file: "." or ",".')] = None,
    query: _Query = None,
    password: _Password = None,
) -> None:
    """Write a first schema from one site's table, to be corrected by hand and agreed by all sites."""
    from flareclust._foundation.own_files import create
    from flareclust.data.schema.draft import draft
    from flareclust.data.schema.mapping import TableMapping, read_mapping
    from flareclust.experiment.config import query_of
    from flareclust.experiment.tables import typed_files

    file, asked_of = Path(source), query_of(source, query, password)
    options = ("encoding", encoding), ("decimal", decimal)
    given: dict[str, Any] = {name: value for name, value in options if value is not None}
    if given and mapping is not None:
        raise UserError("the mapping says encoding and decimal; leave out --encoding and --decimal")
    beside = typed_files.mapping_of(file) if mapping is None else read_mapping(mapping)
    own = TableMapping(**given) if given else beside
    drafted = draft(file if asked_of is None else asked_of.file(), own)
    if out is None:
        typer.echo(drafted.text, nl=False)
        return
    if out.exists():
        raise UserError(f"{out} is there already; name another file with --out, or remove it first")
    try:
        with create(out) as stream:
            stream.write(drafted.text)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
    if given:
        settings = ", ".join(f'{name}: "{value}"' for name, value in given.items())
        say(f"{typed_files.mapping_file(file)}: put {settings} there, by which runs read the file")
    again = f", {drafted.repeated:,} of them with the id of an earlier one" if drafted.repeated else ""
    say(f"{out}: from {drafted.rows:,} rows{again}; correct types, units and ranges, then give it to all sites")


@schema_app.command("check")
def _schema_check(
    source: _Source,
    schema: Annotated[Path, typer.Option(help="The schema that all sites have agreed on.")],
    mapping: _Mapped = None,
    query: _Query = None,
    password: _Password = None,
) -> None:
    """Read a table by a schema; say what it holds, or all that is wrong with it. No value of a cell is shown."""
    from flareclust.data.schema.columns import read_schema
    from flareclust.data.schema.mapping import read_mapping
    from flareclust.experiment.config import query_of
    from flareclust.experiment.reports.tables import print_typed
    from flareclust.experiment.tables import typed_files

    known, file, asked_of = read_schema(schema), Path(source), query_of(source, query, password)
    beside, table = typed_files.mapping_file(file), file if asked_of is None else asked_of.file()
    used = mapping or (beside if beside.is_file() else None)
    own, none = read_mapping(used) if used else None, "none" if asked_of else f"none, as there is no {beside}"
    say(f"mapping: {used or none}")
    print_typed({file.name: typed_files.typed_table(file.name, table, known, None, mapping=own)}, known)
    say(f"schema {known.fingerprint}; sites with the same one agree")
