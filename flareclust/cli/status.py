"""The command `flareclust status`: what a federation's server knows of its sites and jobs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.errors import UserError
from flareclust._foundation.options import split_names
from flareclust.cli.settings import AsJson


def status(
    kit: Annotated[Path, typer.Option(help="Folder of the lead's or the admin's kit.")],
    expect_sites: Annotated[
        str | None,
        typer.Option(
            help="Names of the sites that should be there, by commas; those of your last ten jobs by default."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=200, help="How many of the last jobs to list.")] = 10,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics in Prometheus' text format and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which sites are connected or missing, how the last jobs ended and what to look at; 1 if a site is missing."""
    from flareclust.experiment.reports import terminal
    from flareclust.platform.status import federation_status, prometheus_text

    if prometheus and as_json:
        raise UserError("say either --prometheus or --json")
    found = federation_status(kit, None if expect_sites is None else split_names(expect_sites), jobs)
    if prometheus:
        typer.echo(prometheus_text(found), nl=False)
    elif as_json:
        typer.echo(json.dumps(asdict(found) | {"missing": found.missing}))
    else:
        terminal.print_status(found)
    if found.missing:
        raise typer.Exit(1)
