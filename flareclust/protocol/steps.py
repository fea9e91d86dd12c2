"""The table of an algorithm's steps: what sites are asked for, what a reply holds, and which method computes it."""

from dataclasses import dataclass
from typing import Literal

from flareclust.protocol.schema import Schema


@dataclass(frozen=True)
class Step:
    """One line of the table, which both sides of an algorithm share: `steps = {UPDATE: Step(...)}`.

    Attributes:
        schema: the arrays of a reply; exactly these leave a site.
        method: name of the executor's method (task, data, rng, aborted, context) -> arrays. Of `named` steps the data are the
            site's table with the names of its columns, of others the rows (n, d).
        summed: whether replies are sums over rows, which secure aggregation can mask.
        jobs: which jobs ask for it: all of them, those with secure sums only (it then leaves masked only), or those without.
        named: see `method`.
    """

    schema: Schema
    method: str = "local"
    summed: bool = False
    jobs: Literal["all", "secure", "plain"] = "all"
    named: bool = False

    @property
    def maskable(self) -> bool:
        """Return whether the reply can leave a site masked."""
        return self.summed or self.jobs == "secure"
