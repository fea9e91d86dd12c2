"""`flareclust backup`, `flareclust restore` and `flareclust prune`: what is kept, and for how long."""

from pathlib import Path
from typing import Annotated

import typer

from flareclust.cli.entry import say

_Archive = Annotated[Path, typer.Argument(help="The backup, a tar.gz.")]


def backup(
    archive: _Archive,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Kits, results, MLflow's store and its files: what is on this machine.")
    ] = None,
    state: Annotated[
        bool, typer.Option(help="With the state of this account: privacy accounts, results without a folder.")
    ] = True,
) -> None:
    """Write kits, stores and this account's state to one file. It holds private keys, and is readable for this account only."""
    from flareclust.platform.backup import back_up

    for line in back_up(archive, paths or [], state=state):
        say(line)
    say(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB; it holds private keys, keep it as you keep those")


def restore(
    archive: _Archive,
    into: Annotated[
        Path | None,
        typer.Option(help="A folder under which all of it is put, for a look; by default it is put where it was."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Put aside what is there now.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the backup, say what is in it, and write nothing.")
    ] = False,
) -> None:
    """Bring back a backup, after all of it was checked; privacy ledgers wait until you state what was spent since."""
    from flareclust.platform import backup as backups

    for line in backups.restore(archive, into=into, overwrite=overwrite, dry_run=dry_run):
        say(line)


def prune(
    kit: Annotated[
        Path,
        typer.Argument(help="A lead's kit, for its jobs at the server; a site's or the server's, for folders of jobs."),
    ],
    older_than: Annotated[float, typer.Option(metavar="DAYS", help="What is older goes.")] = 365,
    results: Annotated[
        Path, typer.Option(help="With a lead's kit: the folder with your results, which were fetched.")
    ] = Path("flareclust-runs"),
    unfetched: Annotated[
        bool, typer.Option("--unfetched", help="With a lead's kit: also results that are not there.")
    ] = False,
    labels: Annotated[bool, typer.Option("--labels", help="At a site: also folders that hold labels.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove old jobs at the server, or old folders of jobs at a site; never a ledger, nor what nobody has fetched or saved."""
    from flareclust.platform import retention

    old = retention.prune(kit, older_than, results=results, unfetched=unfetched, labels=labels, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    for job, at, kept in old:
        say(f"{verb} {job}, of {at}" if kept is None else f"kept {job}, of {at}: {kept}")
    if not old:
        say(f"nothing is older than {older_than:g} days")
