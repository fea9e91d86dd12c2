"""What a site holds a job to: its policy and, where it has one, its account of privacy."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flareclust.privacy.policy import Policy

if TYPE_CHECKING:
    from flareclust.privacy.ledger import Ledger

#: The header of a reply with what `SiteTerms.statement` returns; it does not leave the site.
MADE_UNDER = "flareclust_made_under"

#: What the filter of tasks leaves in the context of one task: the question as it was let in, or why it was not.
QUESTION = "flareclust_question"


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

    def statement(self, *, private: bool) -> str:
        """Return what an executor states beside its reply, for the site's own filter: the policy that it kept to.

        Args:
            private: whether the executor's messages are differentially private; they are where the policy asks for it.
        """
        return json.dumps({"policy": self.policy.to_json(), "private": private and self.policy.dp is not None})
