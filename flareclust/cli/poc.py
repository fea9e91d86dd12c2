"""`flareclust poc`: a federation of separate processes on one machine."""

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from flareclust.cli.entry import say
from flareclust.cli.settings import AsJson
from flareclust.platform.poc import state as poc_state

poc_app = typer.Typer(no_args_is_help=True, help="A federation on this machine: a server and sites, with certificates.")

_Folder = Annotated[Path, typer.Option("--dir", help="The POC's folder.")]


@poc_app.command("up")
def _poc_up(
    sites: Annotated[int, typer.Option("--n-sites", "--sites", help="Number of sites, at least 2.")] = 3,
    data: Annotated[str, typer.Option(help="As for `flareclust run`: a name, a file, a folder.")] = "digits",
    partition: Annotated[str, typer.Option(help="As for `flareclust run`: how the rows are assigned.")] = "iid",
    seed: Annotated[int, typer.Option(help="Of the partition.")] = 0,
    schema: Annotated[Path | None, typer.Option(help="As for `flareclust run`: the schema of the tables.")] = None,
    port: Annotated[int | None, typer.Option(help="The server's port; a free one by default.")] = None,
    folder: _Folder = poc_state.DEFAULT,
    wait: Annotated[float, typer.Option(help="Seconds that the sites may take to connect.")] = 90,
) -> None:
    """Make kits, give each site its rows, start server and sites, and wait until all are connected."""
    from flareclust.experiment import poc

    with redirect_stdout(sys.stderr):
        named = None if schema is None else str(schema.absolute())
        found = poc.up(folder, data, partition, sites, seed, port, wait, named)
    where = "" if folder == poc_state.DEFAULT else f" --dir {folder}"
    say(f"{len(found.sites)} sites are connected to the server on port {found.port}: {', '.join(found.sites)}")
    say(f"kits and logs: {found.server_kit.parent}")
    k = " --k K" if found.partition == "none" else ""
    say(f"next: flareclust run feca --engine poc{k}{' --kit ' + str(folder) if where else ''}")
    say(f"in the end: flareclust poc down{where}")


@poc_app.command("status")
def _poc_status(folder: _Folder = poc_state.DEFAULT, as_json: AsJson = False) -> None:
    """Say how the server and the sites are; exit with 1 if one of them is not well."""
    from rich.console import Console

    from flareclust.experiment.reports import terminal
    from flareclust.platform import job_monitor
    from flareclust.platform.poc import federation as poc

    with redirect_stdout(sys.stderr):
        found = poc.status(folder)
        lost = poc.lost(folder) if any(one.name == poc_state.SERVER and one.well for one in found) else []
    if as_json:
        shown = {one.name: {"running": one.running, "connected": one.connected, "rows": one.rows} for one in found}
        typer.echo(json.dumps({one.name: {**shown[one.name], "log": str(one.log)} for one in found}))
    else:
        rows = []
        for one in found:
            states = ("yes" if yes else "no" for yes in (one.running, one.connected))
            rows.append((one.name, *states, "" if one.rows is None else f"{one.rows:,}"))
        Console().print(terminal.table_of("", "running", "connected", "rows", rows=rows))
        for job in lost:
            terminal.say(job_monitor.lost_words(job))
        terminal.say(f"logs: {folder / poc_state.KITS}/NAME/log.txt")
    if not all(one.well for one in found):
        raise typer.Exit(1)


@poc_app.command("down")
def _poc_down(
    folder: _Folder = poc_state.DEFAULT,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the folder, too.")] = False,
) -> None:
    """End server, sites and their jobs, whatever their state; kits and logs are kept."""
    from flareclust.platform.poc import federation as poc

    count = poc.down(folder, remove=remove)
    say(f"{count} processes ended" if count else "nothing was running")
