"""Which account of privacy a site's rows spend from, and what they have spent. It belongs to the table, not to the kit that reads it.

The account is a folder with a ledger. Without further words it is found by the place of the rows, links followed, among
the state of the operating system's account that runs the site; so a renewed kit, a second kit and a copied kit over the
same table share it. `account` in `local/flareclust.yaml` names another one. The kit remembers what it has spent from, in
its folder `local`, which a renewal keeps: a job is refused where that account is gone, and never gets a fresh one instead.
"""

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.own_files import create, state_folder
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.ledger import GONE, RESTORED, Ledger
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.privacy.session import SiteSession
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.files import matched, place_of
from flareclust.sites.kit import read_json, write_json
from flareclust.sites.policy_file import PRIVACY, policy_of
from flareclust.sites.rows import SiteData

_log = logging.getLogger(__name__)

#: In a kit's folder `local`: the places of tables, each with the account that was spent from.
_MEMORY = "flareclust_account.json"

#: In an account's folder, once it has a ledger: whose it is, for those who look into the folder.
_SIGN = "README.txt"

_LEDGER = "ledger.db"

#: By so much may sums differ that are the same.
_ROUNDING = 1 + 1e-9

#: A folder in the kit that a renewed kit does not have.
_IN_KIT = "privacy"


class _Trouble(Refusal):
    """The account cannot be used.

    Attributes:
        here: the same with places, for the site's own eyes.
    """

    def __init__(self, text: str, here: str) -> None:
        super().__init__(text)
        self.here = here


@dataclass(frozen=True)
class _Account:
    """What a site's configuration says about the account of its rows.

    Attributes:
        place: where the rows are, links followed: a file, or a pattern.
        folder: with the ledger.
        stated: whether the configuration names the folder.
    """

    local: Path
    site: str
    place: str
    folder: Path
    stated: bool

    @classmethod
    def of(cls, local: Path, site: str) -> "_Account":
        """Return the account of a site's rows.

        Raises:
            Refusal: the configuration does not say where its rows are, or names no account that can be.
        """
        data = SiteData.of(local, site)
        place = str(place_of(data.path))
        if data.account is None:
            return cls(local, site, place, accounts() / _key(place), stated=False)
        folder = local / data.account if "/" in data.account else accounts() / data.account
        if folder.resolve() == (local / ".." / _IN_KIT).resolve():
            raise Refusal(
                f"has a local/{CONFIG_FILE} whose account is the kit's own folder privacy, which a renewed kit does not have; "
                "name a folder outside of the kit"
            )
        return cls(local, site, place, folder, stated=True)

    @property
    def kit(self) -> Path:
        """Return the kit's folder."""
        return self.local.resolve().parent

    def ledger(self) -> Ledger:
        """Return the account's ledger, which need not be there; to spend from it does not make it."""
        return Ledger(self.folder / _LEDGER, site=self.site, must_exist=True)

    @property
    def begun(self) -> bool:
        """Return whether there is a ledger."""
        return os.path.lexists(self.folder / _LEDGER)

    def users(self) -> Sequence[Any]:
        """Return who spends from it; nobody where there is no ledger."""
        return self.ledger().users() if self.begun else ()


def accounts() -> Path:
    """Return the folder with the accounts of this machine's account."""
    try:
        return state_folder() / "accounts"
    except RuntimeError:
        raise Refusal(
            f"has no home folder for its privacy account; name one as account in local/{CONFIG_FILE}"
        ) from None


def session_of(local: Path, site: str, job: str, *, private: bool) -> SiteSession | None:
    """Return what a site holds a job to; None where it has no policy.

    An executor of the job that is private makes differentially private messages, and so needs the account.

    Raises:
        Refusal: its policy or its account cannot be read, so nothing may leave.
    """
    try:
        policy = policy_of(local)
    except UserError:
        raise Refusal(
            f"has a {PRIVACY} that does not impose one policy on all jobs; see flareclust site check there"
        ) from None
    if policy is None or policy.dp is None or not private:
        return None if policy is None else SiteSession(policy, job)
    return SiteSession(policy, job, _open_account(local, site))


def _open_account(local: Path, site: str) -> Ledger:
    """Return the ledger that a job spends from.

    Raises:
        Refusal: the account cannot be used, or is not the one that these rows have spent from.
    """
    account = _Account.of(local, site)
    try:
        _check_account(account)
        ledger = account.ledger()
        ledger.make()
        _sign(account)
        _remember(account, ledger)
        ledger.note(account.place, str(account.kit))
        if account.stated:
            _point(account)
    except _Trouble as trouble:
        _log.warning("the privacy account cannot be used: %s", trouble.here)
        raise
    except OSError as error:
        raise Refusal(f"cannot write its privacy account ({error.strerror}); its operator must look at it") from None
    return ledger


def _check_account(account: _Account) -> None:
    """Raise Refusal where no job may spend from an account as things are; nothing is written."""
    remembered = _remembered(account.local)
    if (before := remembered.get(account.place)) is not None:
        if not account.begun:
            raise _gone(account, f"they have spent from {before['folder']}")
        if account.ledger().id != before["ledger"]:
            raise _Trouble(
                "has rows that have spent from another privacy account than the one that it names now; its operator must name "
                "that one (flareclust site budget)",
                f"the rows in {account.place} have spent from the account in {before['folder']}, and {account.folder} has "
                f"another one; name the former as `account` in local/{CONFIG_FILE}, or bring it back",
            )
    if not account.begun:
        _check_may_begin(account, remembered)
    else:
        _check_is_whole(account, remembered)
    if account.place not in {user.place for user in account.users()}:
        _check_is_the_only_one(account)


def _check_is_whole(account: _Account, remembered: Mapping[str, Mapping[str, str]]) -> None:
    """Raise Trouble where the ledger is known to say less than what was spent: it is from a backup, or the kit has seen more."""
    state = f"state it: flareclust site budget {account.kit} --spent-since EPSILON for each job since then, or --spent-since all"
    if account.ledger().restored:
        raise _Trouble(RESTORED, f"the ledger in {account.folder} is from a backup; what was spent since? {state}")
    if account.ledger().spent().total * _ROUNDING < _seen(account, remembered):
        raise _Trouble(
            "has a privacy ledger that is older than what its rows have spent; its operator must bring back a newer one, or state "
            "what is missing (flareclust site budget --spent-since)",
            f"the ledger in {account.folder} says less than this kit has seen in it; bring back a newer copy, or, if there is none, {state}",
        )


def _seen(account: _Account, remembered: Mapping[str, Mapping[str, str]]) -> float:
    """Return the most rho that the kit has seen in an account's ledger, for whatever place of the rows."""
    spent = (float(one["spent"]) for one in remembered.values() if one["ledger"] == account.ledger().id)
    return max(spent, default=0.0)


def _check_may_begin(account: _Account, remembered: Mapping[str, Mapping[str, str]]) -> None:
    """Raise Trouble where a fresh account would take the place of one that was spent from."""
    folders = {one["folder"] for one in remembered.values()}
    if (account.folder / _SIGN).exists() or str(account.folder.resolve()) in folders:
        raise _gone(account, f"{account.folder} had one")
    if account.stated:
        return
    if remembered:
        before = "; ".join(f"on {place} from {one['folder']}" for place, one in remembered.items())
        raise _Trouble(
            "has rows in a place without a privacy account, and has spent from another account before; its operator must "
            "name the account of these rows (flareclust site budget)",
            f"the rows are in {account.place} now, and this kit has spent before, {before}. If these are the same rows, or "
            f"rows of the same people, name that folder as `account` in local/{CONFIG_FILE}. If they are others, write "
            "`account: NAME` with a new name of your choice",
        )


def _check_is_the_only_one(account: _Account) -> None:
    """Raise Trouble where a file of the table belongs to a table with another account."""
    own, others = _files(account.place), set[Path]()
    with suppress(OSError):  # this machine's account may have none
        others = {one.resolve() for one in accounts().iterdir() if (one / _LEDGER).exists()}
    for folder in sorted(others - {account.folder.resolve()}):
        places = []
        with suppress(Refusal):  # what is broken there is that site's affair
            places = [user.place for user in Ledger(folder / _LEDGER, must_exist=True).users()]
        for place in places:
            if place == account.place or own & _files(place):
                raise _Trouble(
                    "has rows that belong to another privacy account as well; its operator must name that one "
                    "(flareclust site budget)",
                    f"files of {account.place} are among those of {place}, whose account is {folder}; name that folder as "
                    f"`account` in local/{CONFIG_FILE}",
                )


def _files(place: str) -> frozenset[tuple[int, int]]:
    """Return what identifies the files of a place, whatever they are called: devices and inodes."""
    found = set()
    for path in matched(Path(place)):
        with suppress(OSError):
            for one in (path, *path.iterdir()) if path.is_dir() else (path,):
                status = one.stat()
                found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _gone(account: _Account, why: str) -> _Trouble:
    return _Trouble(
        GONE,
        f"the rows in {account.place} have no ledger in {account.folder}, and {why}; bring it back from the backup",
    )


def _sign(account: _Account) -> None:
    if not (account.folder / _SIGN).exists():
        with create(account.folder / _SIGN) as file:
            file.write(
                f"The privacy account of the rows in {account.place}: {_LEDGER} has what jobs have spent.\n"
                "Keep this folder in the backups. Without it the site takes part in no job with differential privacy.\n"
            )


def _point(account: _Account) -> None:
    """Have other kits find a named account by the place of its rows."""
    link = accounts() / _key(account.place)
    if link.resolve() != account.folder.resolve() and not os.path.lexists(link):
        with suppress(OSError):  # this machine's account may have no home
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            link.symlink_to(account.folder.resolve())


def _remembered(local: Path) -> dict[str, dict[str, str]]:
    """Return the accounts that the kit has spent from, by the places of their tables."""
    file = local / _MEMORY
    try:
        found = read_json(file) if file.exists() else {}
        return {
            str(place): {key: str(one[key]) for key in ("folder", "ledger")}
            | {"spent": str(float(one.get("spent", 0)))}
            for place, one in found.items()
        }
    except (UserError, KeyError, TypeError, AttributeError, ValueError):
        raise _Trouble(
            f"has a local/{_MEMORY} that cannot be read, so that it does not know which privacy account is its own; its operator "
            "must look at it",
            f"{file} cannot be read; bring it back from the backup",
        ) from None


def _remember(account: _Account, ledger: Ledger) -> None:
    """Write down the account, and how much is in its ledger, by which an older copy is known."""
    found = _remembered(account.local)
    spent = max(ledger.spent().total, _seen(account, found))
    new = {"folder": str(account.folder.resolve()), "ledger": ledger.id, "spent": str(spent)}
    if found.get(account.place) == new:
        return
    try:
        write_json(account.local / _MEMORY, {**found, account.place: new}, mode=0o600)
    except UserError as error:
        if account.stated:  # a folder `local` that nobody can write, in a container; the account has its sign
            return
        raise _Trouble(
            "cannot remember which privacy account its rows spend from, as its folder local/ is not writable; its operator "
            f"must name one as account in local/{CONFIG_FILE}",
            str(error),
        ) from None


def _key(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:32]


class _Line(NamedTuple):
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
    lines: Sequence[_Line]
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
            **{name: getattr(self, name) for name in ("spent", "budget", "delta", "unit", "trouble")},
            "spendings": [line._asdict() for line in self.lines],
        }


def _limits(local: Path, site: str | None) -> tuple[DifferentialPrivacy, str]:
    """Return the limits of the policy in a folder `local`, and the site's name; UserError where it has none."""
    policy, kit = policy_of(local), local.absolute().parent
    if policy is None or policy.dp is None:
        raise UserError(f"the policy of {kit} has no differential_privacy, so no budget: flareclust site policy")
    return policy.dp, site or kit.name


def budget_of(local: Path, site: str | None = None) -> Budget:
    """Return the account of the rows of the site with the folder `local`, named like its kit's by default; nothing is written.

    Raises:
        UserError: the site's policy has no budget, or the account or the site's configuration cannot be read.
    """
    (dp, name), trouble = _limits(local, site), None
    try:
        account = _Account.of(local, name)
        try:
            _check_account(account)
        except _Trouble as found:
            trouble = found.here
        entries = account.ledger().entries() if account.begun else []
        others = _users_beside(account)
    except OSError as error:
        why = error.strerror
        raise UserError(f"{name} cannot read its privacy account ({why}); use the account that runs NVFlare") from None
    except Refusal as reason:
        raise UserError(f"{name} {reason}") from None
    totals = accumulate(entry.rho for entry in entries)
    lines = [
        _Line(one.at, one.job, one.site, one.what, *(accounting.epsilon_of(rho, dp.delta) for rho in (one.rho, total)))
        for one, total in zip(entries, totals, strict=True)
    ]
    return Budget(
        place=account.place,
        file=account.folder.resolve() / _LEDGER,
        others=others,
        lines=lines,
        spent=lines[-1].total if lines else 0.0,
        budget=dp.budget,
        delta=dp.delta,
        unit=dp.unit,
        trouble=trouble,
    )


def state_spent(local: Path, epsilons: Sequence[float] | None, site: str | None = None) -> None:
    """Write into a site's ledger what was spent without being in it, and let jobs spend again that waited for this.

    Args:
        local: the folder of the site's kit.
        epsilons: what each job has spent, at the delta of the site's policy; None for all of the budget.
        site: its name, like its kit's by default.

    Raises:
        UserError: an amount is none, or there is no ledger.
    """
    dp, name = _limits(local, site)
    rhos = [accounting.rho_of(epsilon, dp.delta) for epsilon in epsilons or () if epsilon]
    try:
        account = _Account.of(local, name)
        seen = _seen(account, _remembered(local))
        least = seen if epsilons is not None else max(seen, accounting.rho_of(dp.budget, dp.delta))
        account.ledger().state(rhos, least)
    except Refusal as reason:
        raise UserError(f"{name} {reason}") from None


def folders_of(local: Path) -> list[Path]:
    """Return the folders of the accounts that a kit has spent from; UserError where its record of them cannot be read.

    A folder `local` that nobody can write holds no such record: so the account that its configuration names is one of them.
    """
    try:
        found = [Path(one["folder"]) for one in _remembered(local).values()]
    except _Trouble as trouble:
        raise UserError(trouble.here) from None
    with suppress(Refusal):  # no job has rows without a configuration that can be read
        account = _Account.of(local, local.absolute().parent.name)
        found += [account.folder.resolve()] if account.begun else []
    return found


def jobs_of(local: Path) -> set[str]:
    """Return the jobs in the ledgers of the accounts that a kit has spent from; UserError where one cannot be read."""
    try:
        return {one.job for folder in folders_of(local) for one in Ledger(folder / _LEDGER, must_exist=True).entries()}
    except Refusal as reason:
        raise UserError(f"{local.absolute().parent.name} {reason}") from None


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
    try:
        account = _Account.of(local, local.absolute().parent.name)
        users = [f"{user.site} in {user.kit}" for user in account.users()]
    except Refusal as reason:
        return f"the account of privacy of these rows cannot be read: it {reason}"
    if not account.begun:
        return None
    return f"these rows have a budget already, in {account.folder.resolve() / _LEDGER}; used by {'; '.join(users) or 'nobody yet'}"


def _users_beside(account: _Account) -> list[str]:
    """Return who else uses the account, in words."""
    found = []
    for user in account.users():
        if (user.place, user.site, user.kit) != (account.place, account.site, str(account.kit)):
            rows = "" if user.place == account.place else f" with the rows in {user.place}"
            found.append(f"{user.site} in {user.kit}{rows}")
    return found
