"""The command `flareclust doctor`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from flareclust.cli.entry import say
from flareclust.cli.settings import AsJson


def doctor(
    kit: Annotated[Path | None, typer.Option(help="A kit whose allow-list and rights are checked, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check versions, disk, ports, leftovers, plugins and servers, and say what to do; 1 if something will fail."""
    from flareclust.doctor import examine

    found = examine(kit)
    if as_json:
        typer.echo(json.dumps([finding.to_json() for finding in found]))
    else:
        for finding in found:
            say(f"{finding.state:<5}{finding.check}: {finding.found}")
            if finding.advice:
                say(f"     to do: {finding.advice}")
    if any(finding.state == "fail" for finding in found):
        raise typer.Exit(1)
