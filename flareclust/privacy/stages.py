"""What happens at a site before and after an algorithm computes a reply, stage by stage.

A stage looks at the exchange before the computation, in the order of their list, and at the reply after it, in the reverse
order. This module has the stages of the site's policy; those of rows and schemas are in `flareclust.executors.stages`, that of
masks in `flareclust.privacy.secure_aggregation.client`.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Message
from flareclust.core.disclosure import rounded
from flareclust.data.tables import Table
from flareclust.privacy.context import SiteContext
from flareclust.privacy.secure_aggregation.masking import KeyTable
from flareclust.privacy.session import SiteSession
from flareclust.protocol.steps import Step
from flareclust.protocol.task import Task


@dataclass(frozen=True)
class SiteExchange:
    """One task at one site, on its way to the algorithm and back.

    Attributes:
        task: what the server asks for.
        step: its line in the algorithm's table.
        table: the site's rows.
        seen: the rows that the algorithm sees, where a policy puts others in their place.
        context: the site's conditions, as the algorithm gets them.
        keys: the keys of the sites whose masked sums are added to this site's; None for none.
    """

    task: Task
    step: Step
    table: Table
    seen: Table
    context: SiteContext = field(default_factory=SiteContext)
    keys: KeyTable | None = None


class Stage:
    """One stage; it raises `Refusal` where the site cannot take part."""

    def before(self, exchange: SiteExchange) -> SiteExchange:
        """Return the exchange as the next stage, and at last the algorithm, gets it."""
        return exchange

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the reply as it goes on to the next stage, and at last to the server."""
        return reply


@dataclass(frozen=True)
class PolicyStage(Stage):
    """Refuses what the site's policy is against, and passes on to the algorithm what the policy asks of it.

    Attributes:
        session: the job at this site.
        kind: name of the executor's class, for refusals.
        private: whether all that the executor sends is differentially private.
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
        context = exchange.context.under(policy, private=self.private)
        if policy.dp is not None:
            from flareclust.privacy.dp.budget import DPSession  # needs an optional package

            context = replace(context, dp=DPSession.of(self.session, exchange.table, exchange.task.site))
        return replace(exchange, context=context)


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
        if len(table.X) < self.session.policy.least_rows(private=self.private):
            raise Refusal("has fewer rows than it must have to take part (its policy: min_rows, min_count)")
        if not self.private:
            return replace(exchange, seen=self.session.microaggregated(table))
        if self.most is None:
            return exchange
        if table.ids is None:
            raise Refusal(
                "has rows without ids, which the job protects (unit=id); name the column with ids in its configuration (id), or the "
                "federation's schema with a column of type id, or submit with unit=row"
            )
        return replace(exchange, seen=self.session.bounded(table, self.most))

    def after(self, exchange: SiteExchange, reply: Message) -> Message:
        """Return the reply with its numbers of rows as multiples; weights that are no integers know no floor."""
        context, fields = exchange.context, exchange.step.schema.fields
        if self.private or context.round_counts == 1:
            return reply
        return {
            name: rounded(value, context.round_counts, context.min_count if value.dtype == np.int64 else 1)
            if fields[name].rows
            else value
            for name, value in reply.items()
        }
