"""The server's side of comparing columns: names first, and a site whose columns are not those of most sites takes no part."""

from collections.abc import Mapping

from flareclust._foundation.typing import Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.protocol.task import NAMES


class ComparedAggregator(ClusteringAggregator):
    """A server that compares the sites' columns before the first round where the job says so."""

    def first(self) -> Round:
        """Return the first exchange: the columns' names, or what comes after them."""
        compare = NAMES in self.steps and getattr(self.params, "compare", "none") != "none"
        return Round(step=NAMES) if compare else self.after_names()

    def after_names(self) -> Round:
        """Return the first exchange about rows: that of the algorithm, unless overridden."""
        return super().first()

    def advance(self, round_: Round, replies: Mapping[str, Message]) -> Round:
        """Merge a round; the schema of the names has refused the sites at odds before."""
        return self.after_names() if round_.step == NAMES else super().advance(round_, replies)
