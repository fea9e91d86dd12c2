"""The table of an algorithm's steps: what sites are asked for, what a reply holds, and which method computes it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flareclust.protocol.schema import Schema, counts, index


@dataclass(frozen=True)
class Step:
    """One line of the table, which both sides of an algorithm share: `steps = {UPDATE: Step(...)}`.

    Attributes:
        schema: the arrays of a reply; exactly these leave a site.
        method: name of the site's method (task, rows) -> arrays, of the executor or of the phase that has the step.
        merge: name of the server's method (round, replies, rng) -> next round, of the aggregator or of the phase; by default that of
            the site's, and `merge` for `local`.
        summed: whether replies are sums over rows, which secure aggregation can mask.
        jobs: which jobs ask for it: all of them, those with secure sums only (it then leaves masked only), or those without.
        as_is: whether it is about the columns as they are: rows are not prepared for the algorithm.
        counted: whether replies are about groups of rows that, with secure sums, must be large enough in total, not at each
            site. Sites are asked for the numbers of rows first, by the step `counts_of(name)`.
        public: whether a reply holds nothing that is computed from rows.
        counts: whether the exchange is a round of its own, by whose number sites draw; not where it is a part of one.
    """

    schema: Schema
    method: str = "local"
    merge: str = ""
    summed: bool = False
    jobs: Literal["all", "secure", "plain"] = "all"
    as_is: bool = False
    counted: bool = False
    public: bool = False
    counts: bool = True

    def __post_init__(self) -> None:
        if not self.merge:
            object.__setattr__(self, "merge", "merge" if self.method == "local" else self.method)

    @property
    def maskable(self) -> bool:
        """Return whether the reply can leave a site masked."""
        return self.summed or self.jobs == "secure"


#: The numbers of rows in the groups of a step that is `counted`.
COUNTED = Schema(may_be_empty=True, cluster=index("k", less_than="K"), counts=counts("k", minimum=1))

#: Name of the array in which a server says which groups' totals are large enough to be reported: 1 for these, else 0.
REPORTED = "reported"


def counts_of(name: str) -> str:
    """Return the name of the step that asks for the numbers of rows of a step's groups."""
    return f"{name}_counts"


def with_counts(steps: Mapping[str, Step]) -> dict[str, Step]:
    """Return steps and, for those that are `counted`, the steps that ask for numbers of rows."""
    counting = {
        counts_of(name): replace(step, schema=COUNTED, summed=False, jobs="secure", counted=False)
        for name, step in steps.items()
        if step.counted
    }
    return {**counting, **steps}
