"""`flareclust site`: what an operator does at a site before the first job."""

from pathlib import Path
from typing import Annotated

import typer

site_app = typer.Typer(no_args_is_help=True, help="Prepare a provisioned site: its rows, its permission.")

Kit = Annotated[Path, typer.Argument(help="The site's kit: the folder with startup/ and local/.")]


@site_app.command("init")
def site_init(
    kit: Kit,
    rows: Annotated[
        str,
        typer.Option("--rows", help="The file with the rows, as seen from here; {site} stands for the site's name."),
    ],
    columns: Annotated[str | None, typer.Option(help="Columns to use, with commas; all by default.")] = None,
) -> None:
    """Write local/flareclust.yaml, which says where the site's rows are."""
    from flareclust.cli import split_names
    from flareclust.site_check import init

    typer.echo(init(kit, str(Path(rows).absolute()), split_names(columns)))


@site_app.command("check")
def site_check(
    kit: Kit, site: Annotated[str | None, typer.Option(help="The site's name; that of the kit's folder.")] = None
) -> None:
    """Read the site's rows as a job would, and say what is odd about them. Nothing leaves the site."""
    from flareclust import report
    from flareclust.site_check import check

    report.print_checked(check(kit, site))


@site_app.command("allow")
def site_allow(kit: Kit) -> None:
    """Add flareclust to the classes that jobs may load at the site."""
    from flareclust.engines.workspace import allow_classes
    from flareclust.site_check import local_of

    typer.echo(allow_classes(local_of(kit)))
