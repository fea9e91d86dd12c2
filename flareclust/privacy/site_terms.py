"""What a site holds a job to: its policy and, where it has one, its account of privacy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flareclust.privacy.policy import Policy

if TYPE_CHECKING:
    from flareclust.privacy.ledger import Ledger


@dataclass(frozen=True)
class SiteTerms:
    """A site's conditions for one job.

    Attributes:
        policy: what may leave.
        job: the job's name at this site; what it spends is written down under it.
        ledger: where spendings are written down; None without differential privacy.
    """

    policy: Policy
    job: str
    ledger: "Ledger | None" = None
