"""One job at a site with a policy: the policy, the rows that the job sees, and the site's account of privacy."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.chunks import is_mapped, pieces
from flareclust.core.microaggregation import CHUNK, microaggregate_with_sources
from flareclust.data.memory import RowStore
from flareclust.data.tables import Table
from flareclust.privacy.policy import Policy

if TYPE_CHECKING:
    from flareclust.privacy.dp.ledger import Ledger

#: The header of a reply with what `SiteSession.statement` returns; it does not leave the site.
MADE_UNDER = "flareclust_made_under"

#: What the filter of tasks leaves in the context of one task: the question as it was let in, or why it was not.
QUESTION = "flareclust_question"


@dataclass
class SiteSession:
    """One job at a site with a policy.

    Attributes:
        policy: what may leave.
        job: the job's name at this site; what it spends is written down under it.
        ledger: where spendings are written down; None without differential privacy.
    """

    policy: Policy
    job: str
    ledger: "Ledger | None" = None
    _aggregated: tuple[Table, Table] | None = field(default=None, init=False, repr=False, compare=False)
    _bounded: tuple[Table, int, Table] | None = field(default=None, init=False, repr=False, compare=False)

    def microaggregated(self, table: Table) -> Table:
        """Return the table that algorithms without differential privacy see in the place of the site's rows.

        Groups have at least the policy's `min_count` rows, whatever the job's is, so that all jobs see the same groups. Those with a row
        that is withdrawn are left out.
        Made once for each table; on disk where the rows are. Refusal where no group can be made.
        """
        if self._aggregated is None or self._aggregated[0].X is not table.X:
            shown = _microaggregated(table, self.policy.min_count)
            if not len(shown.X):
                raise Refusal(
                    f"has no group of at least {self.policy.min_count} rows that are alike and yet differ, so nothing it may "
                    "send (its policy: min_count)"
                )
            self._aggregated = table, shown
        return self._aggregated[1]

    def bounded(self, table: Table, most: int) -> Table:
        """Return the table with the first rows of each id, so many at most; made once, on disk where the rows are.

        Which rows of an id these are depends on its own rows only, so an id more or less changes no rows of others.
        """
        made = self._bounded
        if made is None or made[0].X is not table.X or made[1] != most:
            used = np.ones(len(table), dtype=np.bool_) if table.ids is None else table.ids.first(most)
            chosen = (np.ascontiguousarray(table.X[part][used[part]]) for part in pieces(*table.X.shape))
            outcomes, found = None if table.outcomes is None else table.outcomes[used], table
            if not used.all():
                found = replace(table, X=_stored(table, chosen), ids=None, stamp=None, outcomes=outcomes)
            made = self._bounded = table, most, found
        return made[2]

    def statement(self, algorithm: str | None, *, private: bool) -> str:
        """Return what an executor states beside its reply, for the site's own filter: its algorithm, and the policy it kept to.

        Args:
            algorithm: the executor's name in the registry; None where it is not registered.
            private: whether the executor's messages are differentially private; they are where the policy asks for it.
        """
        stated = {"policy": self.policy.stated, "private": private and self.policy.dp is not None}
        return json.dumps({"algorithm": algorithm, **stated})


def _microaggregated(table: Table, floor: int) -> Table:
    """Return a table with rows that stand for groups of the table's; with outcomes, each has that of a row of its group."""
    sources, groups, number = list[IntArray](), list[IntArray](), 0

    def shown() -> Iterator[FloatArray]:
        for rows, places, own in microaggregate_with_sources(table.X, floor, table.withdrawn):
            nonlocal number
            groups.append(own + number)
            number += int(own.max(initial=-1)) + 1
            if table.outcomes is not None:
                sources.append(places)
            yield rows

    X = _stored(table, shown())
    outcomes = None if table.outcomes is None else table.outcomes[np.concatenate(sources)]
    return replace(table, X=X, ids=None, stamp=None, outcomes=outcomes, groups=np.concatenate(groups), withdrawn=None)


def _stored(table: Table, parts: Iterable[FloatArray]) -> FloatArray:
    """Return rows (m, d) that come in parts, in memory or on disk as the table is."""
    store = RowStore(CHUNK if is_mapped(table.X) else None, table.scratch)
    for part in parts:
        store.add(part)
    return store.rows()
