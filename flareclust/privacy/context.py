"""What a site requires of the reply to one step; algorithms get it as the argument `context`."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.core.disclosure import LEAST_ROWS
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
