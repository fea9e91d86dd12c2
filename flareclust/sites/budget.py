"""What a site's rows have spent of their budget of privacy, for the site's own eyes: whose account it is, and each spending."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flareclust._foundation.errors import Refusal, UserError
from flareclust.privacy.policy import Policy
from flareclust.sites.policy_file import policy_of

if TYPE_CHECKING:
    from flareclust.privacy.dp.ledger import Entry
    from flareclust.sites.account import Account


class Line(NamedTuple):
    """A spending: when (UTC), by which job at which site, on what, its epsilon by itself, and that of all until then."""

    at: str
    job: str
    site: str
    what: str
    epsilon: float
    total: float


@dataclass(frozen=True)
class Budget:
    """The account of a site's rows.

    Attributes:
        place: where the rows are, which the account belongs to.
        file: the ledger.
        others: kits and sites beside this one that spend from it, a line each.
        lines: what was spent.
        spent: epsilon of all together.
        budget: the most that may be spent, by the site's policy.
        delta: of all epsilons.
        unit: what they are about: a row, or an id with all of its rows.
        trouble: why no job may spend from it; None where one may.
    """

    place: str
    file: Path
    others: Sequence[str]
    lines: Sequence[Line]
    spent: float
    budget: float
    delta: float
    unit: str
    trouble: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the plain values, as the command line prints them with `--json`."""
        return {
            "table": self.place,
            "ledger": str(self.file),
            "others": list(self.others),
            "spent": self.spent,
            "budget": self.budget,
            "delta": self.delta,
            "unit": self.unit,
            "trouble": self.trouble,
            "spendings": [line._asdict() for line in self.lines],
        }


def budget_of(local: Path, site: str | None = None) -> Budget:
    """Return the account of the rows of the site with the folder `local`; nothing is written.

    Args:
        local: the folder of that name in the site's kit.
        site: the site's name; None for that of the kit's folder.

    Raises:
        UserError: the site's policy has no budget, or the account or the site's configuration cannot be read.
    """
    policy = policy_of(local)
    if policy is None or policy.dp is None:
        raise UserError(
            f"the policy of {local.absolute().parent} has no differential_privacy, so there is no budget: flareclust site policy"
        )
    name = site or local.absolute().parent.name
    try:
        return _budget(local, name, policy)
    except Refusal as reason:
        raise UserError(f"{name} {reason}") from None


def facts(local: Path, policy: Policy, site: str | None = None) -> dict[str, str]:
    """Return whose budget a policy speaks of and what is left of it, a line for each subject; nothing without a budget."""
    if policy.dp is None:
        return {}
    try:
        found = budget_of(local, site)
    except UserError as error:
        return {"spent": f"unknown: {error}"}
    jobs = len({line.job for line in found.lines})
    lines = {
        "spent": f"epsilon {found.spent:.3g} of {found.budget:g} in {jobs} job{'' if jobs == 1 else 's'}, for each {found.unit}",
        "budget of": f"the rows in {found.place}",
        "ledger": str(found.file) if found.file.exists() else f"{found.file} (made by the first job)",
    }
    if found.others:
        lines["shared with"] = "; ".join(found.others)
    return lines


def existing(local: Path) -> str | None:
    """Return whose budget the rows share that a site has just named, in a line; None where they have no account yet."""
    from flareclust.sites.account import LEDGER, Account

    try:
        account = Account.of(local, local.absolute().parent.name)
        users = [f"{user.site} in {user.kit}" for user in account.ledger().users()] if account.begun else []
    except Refusal as reason:
        return f"the account of privacy of these rows cannot be read: it {reason}"
    if not account.begun:
        return None
    return f"these rows have a budget already, in {account.folder.resolve() / LEDGER}; used by {'; '.join(users) or 'nobody yet'}"


def _budget(local: Path, site: str, policy: Policy) -> Budget:
    from flareclust.sites.account import LEDGER, Account, Trouble, check_account

    assert policy.dp is not None
    account = Account.of(local, site)
    trouble = None
    try:
        check_account(account)
    except Trouble as found:
        trouble = found.here
    except OSError as error:
        raise Refusal(
            f"cannot read its privacy account ({error.strerror}); use the account that runs NVFlare"
        ) from None
    lines = _lines(account.ledger().entries() if account.begun else [], policy.dp.delta)
    return Budget(
        place=account.place,
        file=account.folder.resolve() / LEDGER,
        others=_others(account),
        lines=lines,
        spent=lines[-1].total if lines else 0.0,
        budget=policy.dp.budget,
        delta=policy.dp.delta,
        unit=policy.dp.unit,
        trouble=trouble,
    )


def _lines(entries: Sequence["Entry"], delta: float) -> list[Line]:
    from flareclust.privacy.dp.accounting import epsilon_of

    return [
        Line(entry.at, entry.job, entry.site, entry.what, epsilon_of(entry.rho, delta), epsilon_of(until, delta))
        for entry, until in zip(entries, accumulate(entry.rho for entry in entries), strict=True)
    ]


def _others(account: "Account") -> list[str]:
    """Return who else uses the account, in words."""
    users = account.ledger().users() if account.begun else []
    found = []
    for user in users:
        if (user.place, user.site, user.kit) != (account.place, account.site, str(account.kit)):
            rows = "" if user.place == account.place else f" with the rows in {user.place}"
            found.append(f"{user.site} in {user.kit}{rows}")
    return found
