"""What `flareclust site policy` does: settings of a command line become the site's policy, and what holds is printed."""

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from flareclust._foundation.errors import UserError
from flareclust.cli.entry import say
from flareclust.core.microaggregation import SMALLEST_GROUP
from flareclust.privacy.policy import DP, DifferentialPrivacy, Policy, read_policy, summary
from flareclust.sites.account import facts
from flareclust.sites.policy_file import PRIVACY, policy_of, remove_policy, write_policy

#: Printed before a floor is changed; the figures are those of `python -m benchmarks.two_floors`.
_OTHER_GROUPS = """\
min_count changes from {before} to {now}, so jobs will see other groups of the same rows. A server or user with results of
jobs from before and after it can subtract them, and learn single rows: with floors 10 and 11, 42 of 1,797 rows of the digits
are the difference of groups; with 10 and 20, 3. It costs nothing if no job has run over these rows."""


def change(
    local: Path, file: Path | None, given: Mapping[str, Any], *, show: bool, remove: bool, sure: bool = False
) -> None:
    """Write, change or remove the policy of the site with the folder `local`.

    A file replaces the policy that is there, settings change single ones of it; with neither a policy that is there
    stays, and a site without one gets the recommended one. Unless `sure`, a change of `min_count` is asked about.

    Raises:
        UserError: the request contradicts itself, a setting has a value that it cannot have, or nobody can be asked.
    """
    if (show or remove) and (given or file is not None or show == remove):
        raise UserError("--show and --remove stand alone")
    if show:
        return
    if remove:
        remove_policy(local)
        return
    try:
        found = policy_of(local)
    except UserError:
        if file is None:
            raise
        found = None  # it does not hold, and is replaced
    if found is not None and file is None and not given:
        return
    base = read_policy(file) if file is not None else found or Policy()
    new = read_policy(_with(base.to_json(), given))
    if found is not None and not sure:
        _ask_about_groups(found.min_count, new.min_count)
    write_policy(local, new)
    if found is not None:
        now = summary(new)
        for subject, words in summary(found).items():
            if now[subject] != words:
                say(f"changed: {subject}: {now[subject]} (before: {words})")


def print_policy(local: Path) -> None:
    """Print what holds at the site with the folder `local`, and what was spent."""
    policy = policy_of(local)
    if policy is None:
        say("no policy: each job says what leaves the site")
        return
    say(local / PRIVACY)
    for subject, words in (summary(policy) | facts(local, policy)).items():
        say(f"  {subject}: {words}")


def _ask_about_groups(before: int, now: int) -> None:
    """Say what other groups of the same rows give away, and ask whether to go on; UserError where nobody can be asked."""
    if max(before, SMALLEST_GROUP) == max(now, SMALLEST_GROUP):
        return
    words = _OTHER_GROUPS.format(before=before, now=now)
    if not sys.stdin.isatty():
        nobody = "Nobody can be asked here: give --yes to change it, or keep min_count"
        raise UserError(f"{' '.join(words.split())} {nobody}")
    say(words)
    typer.confirm("Change it?", abort=True)


def _with(current: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a policy's mapping with those of the command line."""
    own = {field.name for field in fields(DifferentialPrivacy)}
    changed = current | {name: value for name, value in given.items() if name not in own}
    private = {name: value for name, value in given.items() if name in own}
    if "bounds" in private:
        private["bounds"] = _pair(private["bounds"])
    if "secure_identities" in given:
        changed["secure_identities"] = _pins(given["secure_identities"], current.get("secure_identities") or {})
    return changed | ({DP: (current.get(DP) or {}) | private} if private else {})


def _pair(text: str) -> list[float] | dict[str, float]:
    try:
        if "=" in text:
            return {name.strip(): float(value) for name, _, value in (part.partition("=") for part in text.split(","))}
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"--bounds: expected two numbers with a comma, such as 0,100, or norm=1,center=0; got {text!r}"
        ) from None
    return [low, high]


def _pins(text: str, current: Mapping[str, list[str]]) -> dict[str, list[str]] | None:
    """Return the pins of all sites, those of the sites in `text` in the place of their own; None where none are left."""
    given: dict[str, list[str]] = {}
    for part in text.split(","):
        site, equals, pin = (word.strip() for word in part.partition("="))
        if not equals or not site or not (pin or site in current):
            raise UserError(
                f"--secure-identities: expected SITE=FINGERPRINT, with commas, or SITE= for a site that is pinned; got {part!r}"
            )
        given.setdefault(site, []).extend([pin] if pin else [])
    return {site: pins for site, pins in {**current, **given}.items() if pins} or None
