"""The stages of a site's policy: what it refuses, and groups of similar rows in the place of rows."""

from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.core.disclosure import rounded
from flareclust.privacy.session import SiteSession
from flareclust.protocol.stages import SiteExchange, Stage


@dataclass(frozen=True)
class PolicyStage(Stage):
    """Refuses what the site's policy is against, and passes on to the algorithm what the policy asks of it.

    Attributes:
        session: the job at this site.
        kind: name of the executor's class, for refusals.
        private: whether all that it sends is differentially private.
        sends_rows: whether the job asks for rows as seeds.
    """

    session: SiteSession
    kind: str
    private: bool
    sends_rows: bool

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with the policy's conditions; it does not depend on the values of the rows."""
        policy = self.session.policy
        if policy.dp is not None and not self.private:
            raise Refusal(
                f"lets out differentially private numbers only, which {self.kind} does not make; algorithms that do have "
                "names that begin with dp-"
            )
        if self.sends_rows:
            raise Refusal('lets out no rows, as seeds="rows" would; take seeds="means" (its policy)')
        exchange = exchange.under(
            min_count=max(exchange.rows.context.min_count, policy.min_count),
            round_counts=policy.round_counts,
            grouped=not self.private,
        )
        if policy.dp is None:
            return exchange
        from flareclust.privacy.dp.budget import DPSession  # needs an optional package

        return exchange.under(dp=DPSession.of(self.session, exchange.table, exchange.task.site))


@dataclass(frozen=True)
class GroupingStage(Stage):
    """Puts groups of similar rows in the place of rows, and multiples in the place of numbers of rows.

    An algorithm whose messages are differentially private sees the rows, of each id that it protects a bounded number, and its
    numbers stay.

    Attributes:
        session: the job at this site.
        private: whether all that the executor sends is differentially private.
        most: rows of an id that the algorithm may see; None where no ids are protected.
    """

    session: SiteSession
    private: bool
    most: int | None = None

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange with what the algorithm sees; refuse too few rows, and rows without ids, whatever they hold."""
        table = exchange.table
        out = 0 if table.withdrawn is None else int(table.withdrawn.sum())
        if len(table.X) - out < self.session.policy.least_rows(private=self.private):
            raise Refusal("has fewer rows than it must have to take part (its policy: min_rows, min_count)")
        if not self.private:
            shown = self.session.microaggregated(table)
            return replace(exchange, rows=replace(exchange.rows, table=shown, groups=shown.groups))
        if self.most is None:
            return exchange
        if table.ids is None:
            raise Refusal(
                "has rows without ids, which the job protects (unit=id); name the column with ids in its configuration (id), or the "
                "federation's schema with a column of type id, or submit with unit=row"
            )
        return replace(exchange, rows=replace(exchange.rows, table=self.session.bounded(table, self.most)))

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the reply with its numbers of rows as multiples; weights that are no integers know no floor."""
        context, fields = exchange.rows.context, exchange.step.schema.fields
        if self.private or context.round_counts == 1:
            return reply
        return {
            name: rounded(value, context.round_counts, context.min_count if value.dtype == np.int64 else 1)
            if fields[name].rows
            else value
            for name, value in reply.items()
        }
