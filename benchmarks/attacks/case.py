"""What an attack is, and what it found."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.attacks.differencing import CLOSE
from flareclust._foundation.typing import FloatArray
from flareclust.privacy.policy import Policy

#: How an attack is run.
PROCESSES, IN_PROCESS = "processes", "in-process"

#: Servers that keep to the protocol, and those that do not.
CURIOUS, MALICIOUS = "server, curious", "server, malicious"


@dataclass(frozen=True)
class Found:
    """What an attack found, on one data set.

    Attributes:
        sites: what was attacked: the data and the number of rows.
        recovered: rows that are among the claims.
        rows: rows of the sites, of which these are so many.
        asked: how often the sites were asked, in words.
        control: rows that the same attack recovers at sites without a policy; None where there is no such attack any more.
        changed: files of a kit that changed.
        ran: times that code of the opponent ran.
        unit: what is recovered.
    """

    sites: str
    recovered: int
    rows: int
    asked: str
    control: int | None = None
    changed: int = 0
    ran: int = 0
    unit: str = "rows"

    @property
    def stopped(self) -> bool:
        """Return whether the attack got nothing."""
        return not (self.recovered or self.changed or self.ran)


#: An attack on a site with this policy and these rows: the claims, and how often it asked, in words.
Attack = Callable[[Policy | None, FloatArray], tuple[Sequence[FloatArray], str]]

#: Makes an attack, quick or in full.
Run = Callable[[bool], Sequence[Found]]


@dataclass(frozen=True)
class Case:
    """A known attack.

    Attributes:
        name: as the command takes it.
        attack: in words.
        opponent: who it is of.
        form: whether it is against provisioned sites with real processes, or in this process.
        before: what it took at commit 931e3ff.
        stops: what stops it.
        run: makes it, with fewer questions and on data that every installation has if it is to be quick.
        remains: whether it is known to recover something still; docs/attacks.md then has it under what remains.
    """

    name: str
    attack: str
    opponent: str
    form: str
    before: str
    stops: str
    run: Run
    remains: bool = False

    def records(self, quick: bool) -> list[dict[str, Any]]:
        """Run it; return a record for each data set."""
        own = {key: getattr(self, key) for key in ("name", "attack", "opponent", "form", "before", "stops", "remains")}
        return [{**own, **asdict(found), "stopped": found.stopped} for found in self.run(quick)]


def recovered(claims: Sequence[FloatArray], rows: FloatArray) -> int:
    """Return how many of the rows (n, d) are among the claims, each (d,), as `differencing.number_recovered` does; for many claims."""
    if not len(claims):
        return 0
    deviation = rows.std(axis=0)
    unit = np.where(deviation > 0, deviation, 1.0)
    finite = np.asarray(claims)[np.isfinite(claims).all(axis=1)]
    if not len(finite):
        return 0
    gaps, _ = cKDTree(finite / unit).query(rows / unit, p=np.inf, distance_upper_bound=2 * CLOSE)
    return int((gaps <= CLOSE).sum())


def against(sites: str, rows: FloatArray, attack: Attack, policy: Policy | None = None) -> Found:
    """Return what an attack recovers of a site's rows under a policy, the default one unless given, and without one."""
    claims, asked = attack(policy or Policy(), rows)
    free, _ = attack(None, rows)
    return Found(sites, recovered(claims, rows), len(rows), asked, recovered(free, rows))


def number(n: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{n:,} {what}{'s' if n != 1 else ''}"
