"""The stage of a site's policy against saturation: so many numbers, or categories, for so few rows that they determine the rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.core.disclosure import rounded
from flareclust.evaluation.profiles import categories_among
from flareclust.privacy.policy import Policy
from flareclust.protocol.stages import SiteExchange, Stage


@dataclass(frozen=True)
class SaturationStage(Stage):
    """Refuses columns with too many categories, and messages with too many numbers, for the rows that the algorithm sees.

    Both are compared with the number of rows of the groups, as multiples, which a job may know: so a refusal discloses no more.

    Attributes:
        policy: the site's.
    """

    policy: Policy

    @classmethod
    def of(cls, policy: Policy, *, private: bool) -> "list[SaturationStage]":
        """Return the stage where the policy has a limit, else none; differentially private messages have noise, and need none."""
        limited = policy.max_numbers_per_row is not None or policy.max_levels_per_row is not None
        return [cls(policy)] if limited and not private else []

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange; refuse columns with too many categories for the rows."""
        most, table = self.policy.max_levels_per_row, exchange.rows.table
        if most is not None and most_levels(table.columns or ()) > most * self._rows(exchange):
            raise Refusal("has a column with too many categories for its rows (its policy: max_levels_per_row)")
        return exchange

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the reply; refuse one with too many numbers for the rows. Numbers of rows have their floor, and do not count."""
        most = self.policy.max_numbers_per_row
        if most is None:
            return reply
        numbers = sum(int(np.isfinite(value).sum()) for value in reply.values() if value.dtype == np.float64)
        if numbers > most * self._rows(exchange):
            raise Refusal(
                "lets out fewer numbers in a message, for as many rows as it has; take fewer clusters, or fewer columns (its policy: "
                "max_numbers_per_row)"
            )
        return reply

    def _rows(self, exchange: SiteExchange) -> int:
        n = np.array(len(exchange.rows.table), dtype=np.int64)
        return int(rounded(n, self.policy.round_counts, self.policy.min_count))


def most_levels(columns: Sequence[str]) -> int:
    """Return the most categories of one column, among names such as `sex=f` and `sex=m`; 0 where there is none."""
    return max(map(len, categories_among(columns, range(len(columns))).values()), default=0)
