"""What the method of a step gets beside its task: the site's rows, and what the site requires of the reply."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, never_abort
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.data.tables import Table
from flareclust.privacy.policy import Policy

if TYPE_CHECKING:
    from flareclust.privacy.dp.budget import DPSession


@dataclass(frozen=True)
class SiteContext:
    """What holds for one reply of one site.

    Attributes:
        min_count: clusters with fewer rows are not sent: the job's parameter, or what the site's policy states if that is more.
        round_counts: numbers of rows leave as multiples of it; sums over these rows are scaled with them.
        grouped: whether the rows are groups of similar rows that a policy has put in the place of the site's.
        secure: whether the site's sums leave it masked in this job.
        reported: groups of a masked sum that have enough rows over all sites (K,); rows of the others go to the nearest
            of these. None where no total decides.
        ones: what 1 is in each column (d,), where all are of 0 and 1 (`flareclust.core.disclosure.describable`).
        sum_sites: over how many sites the reply is added up, masked, as the job says of itself; 0 where it leaves as it is.
        repeats: how often the same row may be there, since it counts as several; `min_count` is of so many more rows then.
        dp: what the site grants the job under differential privacy; None where it grants nothing.
    """

    min_count: int = 2
    round_counts: int = 1
    grouped: bool = False
    secure: bool = False
    reported: BoolArray | None = None
    ones: FloatArray | None = None
    sum_sites: int = 0
    repeats: int = 1
    dp: "DPSession | None" = None

    def of_repeated(self, repeats: int) -> "SiteContext":
        """Return what holds for rows duplicated by weights: a cluster needs `repeats` times as many rows for enough of them to differ.

        Three at least, since sums over two rows can be solved for them.
        """
        return (
            replace(self, min_count=max(self.min_count, LEAST_ROWS) * repeats, repeats=repeats) if repeats > 1 else self
        )

    @property
    def least_rows(self) -> int:
        """Return the smallest number of the site's rows in a group that is reported; 0 where the total decides."""
        return 0 if self.reported is not None and not self.grouped else self.min_count

    def under(self, policy: Policy, *, private: bool = False) -> "SiteContext":
        """Return what holds at a site with a policy, of an algorithm whose replies are differentially private or not."""
        min_count = max(self.min_count, policy.min_count)
        return replace(self, min_count=min_count, round_counts=policy.round_counts, grouped=not private)


@dataclass(frozen=True)
class SiteRows:
    """The rows of one site for one step, with what computing from them takes: the argument of every step's method.

    Attributes:
        table: the rows as the algorithm sees them; of a `named` step the site's own table, with the names of its columns.
        rng: a generator of the job, the round and the site. For labels it is that of round 0, so that a local clustering can
            be repeated.
        aborted: whether to stop, which raises `Aborted`.
        context: what the site asks of the reply, such as the smallest cluster that may be sent.
        computed: for labels, the rows (m, d) that replies were computed from: at a site with a policy groups, with
            missing=drop-rows those without gaps.
        known: which cells (n, d) were not filled in; None for all.
    """

    table: Table
    rng: np.random.Generator
    aborted: AbortCheck = never_abort
    context: SiteContext = SiteContext()
    computed: FloatArray | None = None
    known: BoolArray | None = None

    @property
    def X(self) -> FloatArray:  # noqa: N802
        """Return the rows (n, d)."""
        return self.table.X

    @property
    def seen(self) -> FloatArray:
        """Return the rows (m, d) that replies were computed from."""
        return self.X if self.computed is None else self.computed

    def of(self, X: FloatArray, known: BoolArray | None = None) -> "SiteRows":
        """Return other rows (n, d) with the same conditions."""
        return replace(self, table=Table(X), computed=None, known=known)
