"""`flareclust site`: what an operator does at a site."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from flareclust._foundation.display import shown
from flareclust._foundation.errors import Refusal, UserError
from flareclust.cli.entry import say
from flareclust.cli.settings import AsJson, answer, takes
from flareclust.cli.withdraw import withdraw

site_app = typer.Typer(no_args_is_help=True, help="Prepare a provisioned site: its rows, its permission.")

_Kit = Annotated[Path, typer.Argument(help="The site's kit: the folder with startup/ and local/.")]


#: For what is done in relays' and users' kits as well.
_EveryKit = Annotated[
    Path, typer.Argument(help="A kit of a site, the server, a relay or a user: the folder with startup/ and local/.")
]


@site_app.command("init")
@takes("site init")
def _site_init(
    *, kit: _Kit, rows: str, mapping: Path | None, query: str | None, password: str | None, **asked: Any
) -> None:
    """Write local/flareclust.yaml, which says where the site's rows are, with the mapping beside them."""
    from flareclust.cli.site_rows import mapping_of_rows, seen_from_kit
    from flareclust.sites.account import existing
    from flareclust.sites.check import local_of
    from flareclust.sites.config import write_site

    local = local_of(kit)
    own, said = mapping_of_rows(rows, asked["schema"], mapping)
    say(write_site(local, **seen_from_kit(rows, query, password), mapping=own, **asked))
    for line in (said, existing(local)):
        if line:
            say(line)


@site_app.command("check")
def _site_check(
    kit: _EveryKit,
    site: Annotated[str | None, typer.Option(help="The site's name; that of the kit's folder.")] = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="Show cells that do not fit, with their rows, on this terminal.")
    ] = False,
    sure: Annotated[
        bool, typer.Option("--yes", help="With --show-values: also where the output is no terminal, such as a file.")
    ] = False,
) -> None:
    """Say what the kit lets jobs do, read a site's rows as a job would, and name what is wrong or odd. Nothing is sent."""
    from flareclust.experiment.reports import terminal
    from flareclust.sites.check import check, local_of
    from flareclust.sites.rows import SiteData

    if show_values and not sure and not sys.stdout.isatty():
        raise UserError(
            "--show-values shows values of rows, and the output is no terminal: files and logs may be read by others; give "
            "--yes to print them all the same"
        )
    checked = check(kit, site)
    terminal.print_checked(checked)
    if show_values and checked.without_rows is None:
        try:
            data = SiteData.of(local_of(kit), checked.name, reader_owns_them=True)
            terminal.print_odd_cells(data.odd_cells())
        except Refusal as reason:
            terminal.say(f"no values: {checked.name} {reason}")
    if checked.errors:
        raise typer.Exit(2)


@site_app.command("budget")
def _site_budget(
    kit: _Kit,
    site: Annotated[str | None, typer.Option(help="The site's name; that of the kit's folder.")] = None,
    spent_since: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EPSILON",
            help="What a job has spent that an older ledger does not know; again for each job, `all` for all of the budget, 0 for none.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List what jobs have spent of the budget of the site's rows. Nothing leaves the site."""
    from flareclust.experiment.reports import terminal
    from flareclust.sites.account import budget_of, state_spent
    from flareclust.sites.check import local_of

    if spent_since:
        state_spent(local_of(kit), _epsilons(spent_since), site)
    found = budget_of(local_of(kit), site)
    answer(found.to_json(), as_json, terminal.print_budget, found)


@site_app.command("log")
def _site_log(
    kit: _Kit,
    ids: Annotated[
        Path | None,
        typer.Option(help="A file with ids, one a line: say which jobs had rows of them; those withdrawn by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each job.")] = False,
) -> None:
    """List the jobs that came to a site: who submitted them, how many bytes left in how many answers, or why it refused, and which had rows
    that are withdrawn since. Nothing is sent."""
    from flareclust.experiment.reports import terminal
    from flareclust.sites.check import local_of
    from flareclust.sites.held_rows import held
    from flareclust.sites.job_log import read_log
    from flareclust.sites.withdrawn import ids_in, withdrawn_ids

    local = local_of(kit)
    jobs, asked = read_log(local.parent), withdrawn_ids(local, reader_owns_them=True) if ids is None else ids_in(ids)
    found = held(local.parent, jobs, asked) if asked else None
    if as_json:
        for job, had in zip(jobs, found or [0] * len(jobs), strict=True):
            typer.echo(json.dumps({**asdict(job), "held": had}))
    else:
        terminal.print_site_log(jobs, found)


@site_app.command("rules")
def _site_rules(
    kit: Annotated[Path, typer.Option(help="Folder of the lead's or the admin's kit.")], as_json: AsJson = False
) -> None:
    """Show a lead what the policies of the connected sites say, of those sites that share it. No job runs."""
    from flareclust.experiment.reports import terminal
    from flareclust.platform.status import federation_rules

    rules = federation_rules(kit)
    answer(rules, as_json, terminal.print_rules, rules)


def _epsilons(words: list[str]) -> list[float] | None:
    """Return the amounts that an operator states; None for all of the budget."""
    if words == ["all"]:
        return None
    try:
        return [float(word) for word in words]
    except ValueError:
        raise UserError(
            f"--spent-since expects an epsilon for each job, or `all` once; got {shown(', '.join(words))}"
        ) from None


@site_app.command("allow")
def _site_allow(
    kit: _EveryKit,
    log_streaming: Annotated[
        bool, typer.Option("--log-streaming", help="Let the site's error texts go to the server.")
    ] = False,
    byoc: Annotated[
        bool, typer.Option("--byoc", help="Let those who submit jobs bring code in them, whatever classes are allowed.")
    ] = False,
    nvflare_classes: Annotated[
        bool, typer.Option("--nvflare-classes", help="Let jobs name the classes of NVFlare's own list, too.")
    ] = False,
    plugin: Annotated[
        list[str] | None, typer.Option(help="An algorithm of another package, installed here; may be repeated.")
    ] = None,
) -> None:
    """List the classes of flareclust's jobs in a kit of a site or a server, no code in jobs, and what makes jobs end well.

    A site gets an identity of its own for secure sums, unless it has one. In a kit of a relay or a user: start NVFlare's programs with messages that hold no files.
    """
    from flareclust.platform.kit import Settings, prepare_site
    from flareclust.privacy.secure_aggregation.own_identity import described, make_identity
    from flareclust.sites.check import local_of
    from flareclust.sites.permissions import KitFiles
    from flareclust.sites.running import guard_scripts, owner_without_jobs

    local = local_of(kit)
    if owner_without_jobs(kit) is not None:
        for change in guard_scripts(kit) or ["nothing to change"]:
            say(change)
        return
    classes = {"byoc": byoc, "nvflare_classes": nvflare_classes}
    wanted = Settings(allow_log_streaming=log_streaming, plugins=tuple(plugin or ()), **classes)
    file, changes = prepare_site(local, wanted)
    say(file)
    for change in changes or ["nothing to change"]:
        say(f"  {change}")
    files = KitFiles(local)
    for choice in files.chosen():
        say(f"  kept: {choice}")
    if not files.of_server:
        say(f"  identity for secure sums: {described(make_identity(local))}")


@site_app.command("identity")
def _site_identity(
    kit: _Kit,
    renew: Annotated[bool, typer.Option("--renew", help="Make the next key, which signs beside the old one.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Remove the old key, once all sites pin the next.")] = False,
) -> None:
    """Print the fingerprint of the site's own identity, which other sites pin in their policies for secure sums."""
    from flareclust._foundation.errors import UserError
    from flareclust.privacy.secure_aggregation.own_identity import (
        described,
        read_identity,
        renew_identity,
        retire_identity,
    )
    from flareclust.sites.check import local_of

    if renew and retire:
        raise UserError("--renew and --retire stand alone: between the two all other sites pin the next fingerprint")
    take = renew_identity if renew else retire_identity if retire else read_identity
    say(described(take(local_of(kit))))


@site_app.command("policy")
@takes("site policy")
def _site_policy(
    *,
    kit: _Kit,
    file: Annotated[Path | None, typer.Argument(help="YAML or JSON with the policy's settings.")] = None,
    show: bool,
    remove: bool,
    sure: bool,
    **asked: Any,
) -> None:
    """Hold all jobs to a policy of the site, from the next job on. Without settings it shows what holds, and writes the recommended
    policy where there is none; FILE replaces the whole policy, options change single settings."""
    from flareclust.cli.site_policy import change, print_policy
    from flareclust.sites.check import local_of

    local, settings = local_of(kit), {name: value for name, value in asked.items() if value is not None}
    change(local, file, settings, show=show, remove=remove, sure=sure)
    print_policy(local)


site_app.command("withdraw")(withdraw)
