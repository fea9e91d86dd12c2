"""The command `flareclust status`: what a federation's server knows of its sites and jobs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.options import split_names
from flareclust._foundation.own_files import write_atomically
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
    html: Annotated[
        Path | None,
        typer.Option(help="Write it as a page to this file, in one step, and print nothing else.", dir_okay=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say which sites are connected or missing, how the last jobs ended and what to look at; 1 if a site is missing."""
    from flareclust.experiment.reports import terminal
    from flareclust.experiment.reports.federation import status_page
    from flareclust.platform.status import federation_status, prometheus_text

    if prometheus + as_json + (html is not None) > 1:
        raise UserError("say either --html, --prometheus or --json")
    try:
        found = federation_status(kit, None if expect_sites is None else split_names(expect_sites), jobs)
    except (JobFailed, UserError) as error:
        if html is not None:
            _write(html, status_page(None, str(error).replace(str(kit), "KIT")))
        raise
    if html is not None:
        _write(html, status_page(found))
    elif prometheus:
        typer.echo(prometheus_text(found), nl=False)
    elif as_json:
        typer.echo(json.dumps(asdict(found) | {"missing": found.missing}))
    else:
        terminal.print_status(found)
    if found.missing:
        raise typer.Exit(1)


def _write(file: Path, page: str) -> None:
    """Replace a page as a whole, with the rights that the account gives to new files: a web server may read it."""
    try:
        with write_atomically(file, mode=None, shared=True) as out:
            out.write(page)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
