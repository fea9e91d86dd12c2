"""The command `flareclust site withdraw`."""

from pathlib import Path
from typing import Annotated

import typer

from flareclust._foundation.errors import Refusal, UserError
from flareclust.cli.entry import say


def withdraw(
    kit: Annotated[Path, typer.Argument(help="The site's kit: the folder with startup/ and local/.")] = Path(),
    ids: Annotated[
        Path | None, typer.Option(help="A file with ids, one a line. Without it: say what is withdrawn.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the ids of the file off the list.")] = False,
    site: Annotated[str | None, typer.Option(help="The site's name; that of the kit's folder.")] = None,
) -> None:
    """Leave the rows with the ids of a file out of all later jobs at a site, and say which earlier jobs had some. Nothing is sent."""
    from flareclust.sites import withdrawn
    from flareclust.sites.check import local_of, withdrawn_hints, withdrawn_words
    from flareclust.sites.config import CONFIG_FILE
    from flareclust.sites.policy_file import policy_of
    from flareclust.sites.rows import SiteData

    if undo and ids is None:
        raise UserError("--undo takes ids off the list; name them with --ids FILE")
    local = local_of(kit)
    asked = None if ids is None else withdrawn.ids_in(ids)
    if asked is not None and not (local / CONFIG_FILE).is_file():
        raise UserError(
            f"nothing was written: {kit} names no rows (local/{CONFIG_FILE}); expected the kit of a site whose rows are named "
            "(flareclust site init)"
        )
    if asked is not None:
        changed = withdrawn.withdraw(local, asked, undo=undo)
        what = "taken off the list" if undo else "withdrawn"
        say(f"{len(changed):,} id{'' if len(changed) == 1 else 's'} {what}; {len(set(asked)):,} in {ids}")
    listed = withdrawn.withdrawn_ids(local, reader_owns_them=True)
    if not listed:
        say("nothing is withdrawn at this site")
        return
    try:
        data = SiteData.of(local, site or kit.absolute().name, reader_owns_them=True)
        if data.compute is not None:
            say(f"withdrawn: {len(listed):,} ids; the site's cluster leaves out their rows")
        else:
            table = data.table(reader_owns_them=True, scratch=kit)
            say(f"withdrawn: {withdrawn_words(data, table)} from the next one on")
            for hint in withdrawn_hints(table):
                say(f"hint: {hint}")
        if (policy := policy_of(local)) is not None and policy.dp is None:
            say(f"policy: with each row goes its group, up to {2 * policy.min_count - 2:,} others, not counted above")
    except Refusal as reason:
        raise UserError(f"the list is kept, and no job runs before this is mended: the site {reason}") from None
    _say_held(local.parent, asked if asked is not None and not undo else listed)


def _say_held(kit: Path, ids: "frozenset[str] | list[str]") -> None:
    """Say which jobs had rows of these ids, and which of them may still run."""
    from flareclust.sites.held_rows import held
    from flareclust.sites.job_log import read_log

    jobs = read_log(kit)
    found = held(kit, jobs, ids)
    had = [job for job, number in zip(jobs, found, strict=True) if number]
    unknown = sum(number is None for number in found)
    if had:
        say(
            f"{len(had):,} earlier job{'' if len(had) == 1 else 's'} had rows of the withdrawn ids, the last one {had[-1].job} "
            f"{had[-1].name}: flareclust site log"
        )
    if unknown:
        say(f"of {unknown:,} earlier jobs it is not known which rows they had")
    for job in (job for job in had if job.ended is None):
        say(f"hint: {job.job} has no end yet and keeps the rows that it has read; ask its lead to stop it")
