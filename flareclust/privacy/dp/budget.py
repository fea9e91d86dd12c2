"""What a site grants a job under differential privacy: bounds of its columns, and noise that is paid for.

Neighbouring tables differ by one row of one site, added or removed. The rows of different sites are different rows, so
that what one site spends does not add to what another does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.display import shown
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import IntArray
from flareclust.core.dp.box import Box
from flareclust.data.tables import Table
from flareclust.evaluation.bounds_fit import misfits
from flareclust.preparation import alignment
from flareclust.privacy.dp import mechanism
from flareclust.privacy.dp.accounting import epsilon_of, rho_of
from flareclust.privacy.dp.ledger import Ledger, Overspent
from flareclust.privacy.dp.mechanism import SharedNoise
from flareclust.privacy.policy import Ball, Bounds, DifferentialPrivacy
from flareclust.privacy.session import SiteSession


@dataclass(frozen=True)
class DPSession:
    """A site's terms for one job: the policy's limits, and the ledger with the job's name in it.

    Attributes:
        box: bounds of the columns, by the site's policy and never from its rows.
        rho: the most that the job may spend on what it asks now: the clustering, or outcomes.
        named: how many sites the policy names as those of masked sums; None where it names none.
        shared: the sites whose masked sums hold one noise together; None where the site adds all of it.
        columns: names of the columns, for the site's own log; None where they have none.
        beside: what the job may spend on the other of the two.
    """

    box: Box
    dp: DifferentialPrivacy
    job: str
    ledger: Ledger
    rho: float
    named: int | None = None
    shared: SharedNoise | None = None
    columns: tuple[str, ...] | None = None
    beside: float = 0.0

    @property
    def limit(self) -> float:
        """Return the most that the job may spend in all."""
        return self.rho + self.beside

    @classmethod
    def of(cls, site: SiteSession, table: Table, name: str) -> "DPSession":
        """Return the terms of a site's policy for its rows, of which only the number and the names of their columns count.

        Refusal where the bounds do not fit the columns, the policy's limits make no sense, or OpenDP is missing.
        """
        dp = site.policy.dp
        if dp is None or site.ledger is None:
            raise Refusal(NO_TERMS)
        mechanism.check_installed()
        box = bounds_of(dp.bounds, table.columns, table.X.shape[1], table.hidden)
        named = None if site.policy.secure_sites is None else len(site.policy.secure_sites)
        return cls(box, dp, site.job, site.ledger, _rho_of(dp, dp.epsilon), named, columns=table.columns)

    def granted(self, epsilon: float, delta: float, outcome_epsilon: float | None = None) -> "DPSession":
        """Return the terms for a job that asks for (epsilon, delta), and for (outcome_epsilon, delta) beside it: no more in all.

        Raises:
            Refusal: the site grants a job less, or has not as much left; nothing is spent then.
        """
        rho = _rho("the job", epsilon, delta)
        outcomes = 0.0 if outcome_epsilon is None else _rho("the job", outcome_epsilon, delta)
        if rho + outcomes > self.limit:
            maximum = self.dp.epsilon if delta == self.dp.delta else _down(epsilon_of(self.limit, delta))
            other = "" if delta == self.dp.delta else f", or for delta={self.dp.delta:g}"
            beside = "" if outcome_epsilon is None else f" and outcome_epsilon={outcome_epsilon:g}"
            both = "" if outcome_epsilon is None else ", both together,"
            raise Refusal(
                f"grants a job no more than epsilon={self.dp.epsilon:g} at delta={self.dp.delta:g}, where this one asks for "
                f"epsilon={epsilon:g}{beside} at delta={delta:g}; ask for epsilon={maximum:g}{both} or less{other}"
            )
        spent = self.ledger.spent()
        if (
            rho + outcomes - spent.jobs.get(self.job, 0.0)
            > (_rho_of(self.dp, self.dp.budget) - spent.total) * _ROUNDING
        ):
            raise Refusal(self._beyond_budget(spent.total))
        return replace(self, rho=rho, beside=outcomes)

    def for_outcomes(self) -> "DPSession":
        """Return the granted terms with what the job may spend on outcomes."""
        return replace(self, rho=self.beside, beside=self.rho)

    def gaussian(self, values: IntArray, sensitivity: float, rho: float, what: str) -> IntArray:
        """Return integers with Gaussian noise that makes them rho-zCDP; what they cost is in the ledger before it is drawn.

        Args:
            values: sums over rows, any shape, int64.
            sensitivity: most that one row more or less changes all of them together, in L2 norm.
            rho: what they may cost.
            what: a description for readers of the ledger.

        Raises:
            Refusal: the job, or all jobs together, would spend more than the site grants.
        """
        self._spend(what, rho)
        return mechanism.gaussian(values, sensitivity, rho)

    def sharing(self, sites: int, colluding: int | None) -> "DPSession":
        """Return the terms for a sum that leaves masked, added to those of other sites.

        Args:
            sites: of the sum; 0 for none, where the site adds all of the noise.
            colluding: how many of them may tell the server their shares, by the job; None for a third.

        Raises:
            Refusal: the site's policy asks for more, or names no sites.
        """
        if not sites:
            return self
        return replace(self, shared=SharedNoise.of(sites, colluding, self.dp.colluding, self.named))

    def summed(self, values: IntArray, sensitivity: float, rho: float, what: str) -> IntArray:
        """Return integers with this site's share of the noise that makes their total over sites rho-zCDP.

        All of it goes into the ledger: so much is spent toward the server if as many sites tell it their shares as may. Where
        the sum does not leave masked, this is `gaussian`.
        """
        if self.shared is None:
            return self.gaussian(values, sensitivity, rho, what)
        scale = self.shared.scale(sensitivity, rho, values.size)
        self._spend(f"{what}, with the noise of {self.shared.honest} of {self.shared.sites} sites", rho)
        return mechanism.share(values, scale)

    def _spend(self, what: str, rho: float) -> None:
        try:
            self.ledger.spend(self.job, what, rho, self.limit, _rho_of(self.dp, self.dp.budget))
        except Overspent as over:
            words = self._beyond_job if over.of_job else self._beyond_budget
            raise Refusal(words(over.spent)) from None

    def _beyond_job(self, spent: float) -> str:
        delta = self.dp.delta
        return (
            f"has spent epsilon={epsilon_of(spent, delta):.4g} of at most {epsilon_of(self.limit, delta):.4g} on this job "
            f"(delta={delta:g}), and answers nothing more in it; start a new job, with fewer rounds or a smaller epsilon"
        )

    def _beyond_budget(self, spent: float) -> str:
        return (
            f"has spent epsilon={epsilon_of(spent, self.dp.delta):.4g} of its budget of {self.dp.budget:g} for all jobs (delta={self.dp.delta:g}), too "
            "much for this one; ask for a smaller epsilon, or ask the site's operator whether the budget may grow"
        )


#: What is left of a budget may be less by the rounding of sums.
_ROUNDING = 1 + 1e-9

#: So many columns are named that have no bounds.
_MOST_NAMED = 5

_NO_BOX = "has bounds that are not low < high, or too far apart; correct them in the site's policy"

#: What a site without terms answers to a job that needs them.
NO_TERMS = (
    "has no terms for differential privacy, which this algorithm needs; its operator states bounds of the columns and a "
    "budget under differential_privacy in a policy (flareclust site policy)"
)


def bounds_of(bounds: Bounds, columns: tuple[str, ...] | None, d: int, hidden: frozenset[str] = frozenset()) -> Box:
    """Return the bounds of a table's columns.

    Raises:
        Refusal: there are bounds for other columns, in words that name none of those that are `hidden`.
    """
    if isinstance(bounds, Ball):
        return _around(bounds, columns, d)
    if isinstance(bounds, Mapping):
        if columns is None:
            raise Refusal(
                f"has bounds by the names of columns and rows without such names; give the bounds as a list of {d} pairs"
            )
        if missing := [column for column in columns if column not in bounds]:
            raise Refusal(
                f"has no bounds for {len(missing)} of its {d} columns{_named(missing, hidden)}; add them to the site's policy "
                "by their names"
            )
        pairs = np.array([bounds[column] for column in columns], dtype=np.float64)
    else:
        pairs = np.array(bounds, dtype=np.float64)
        if pairs.ndim == 1:
            pairs = np.tile(pairs, (d, 1))
        if len(pairs) != d:
            raise Refusal(f"has bounds for {len(pairs)} columns and rows of {d}; give a pair for each, or one for all")
    low, high = pairs[:, 0].copy(), pairs[:, 1].copy()
    with np.errstate(over="ignore"):
        diagonal = ((high - low) ** 2).sum()
    if not (np.isfinite(pairs).all() and (low < high).all() and np.isfinite(diagonal)):
        raise Refusal(_NO_BOX)
    return Box(low, high)


def misfitting(box: Box, table: Table) -> list[str]:
    """Return which of a site's columns seem to be in another unit than its bounds, a sentence each; for the site's own eyes."""
    if math.isfinite(box.radius):  # a ball bounds whole rows
        return []
    return misfits(table.X, box.low, box.high, alignment.names_of(table), "bounds")


def _named(columns: Sequence[str], hidden: frozenset[str]) -> str:
    """Return the first of some columns in brackets, without names that do not leave the site; "" where all are such."""
    names = [shown(name) for name in columns if name not in hidden]
    more = " and more" if len(names) < len(columns) or len(names) > _MOST_NAMED else ""
    return f" ({', '.join(names[:_MOST_NAMED])}{more})" if names else ""


def _around(ball: Ball, columns: tuple[str, ...] | None, d: int) -> Box:
    """Return the bounds that a ball is: the box around it, and its radius."""
    center = ball.center
    if isinstance(center, Mapping):
        if columns is None or any(column not in center for column in columns):
            raise Refusal(f"has a center of its bounds that does not name each of its {d} columns; correct its policy")
        center = tuple(center[column] for column in columns)
    middle = np.array(center, dtype=np.float64)
    if middle.ndim and len(middle) != d:
        raise Refusal(f"has a center of its bounds for {len(middle)} columns and rows of {d}; correct its policy")
    middle = np.broadcast_to(middle, (d,))
    low, high = middle - ball.norm, middle + ball.norm
    if not (low < high).all():  # the radius is below the last digit of the center
        raise Refusal(_NO_BOX)
    return Box(low, high, ball.norm)


def _rho(who: str, epsilon: float, delta: float) -> float:
    try:
        return rho_of(epsilon, delta)
    except UserError as error:
        raise Refusal(f"cannot use the limits of {who}: {error}") from None


def _rho_of(dp: DifferentialPrivacy, epsilon: float) -> float:
    """Return the rho of an epsilon at a policy's delta."""
    return _rho("the site's policy", epsilon, dp.delta)


def _down(value: float) -> float:
    """Return a number rounded down to three digits, so that a job that requests it stays within the budget."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / unit) * unit
