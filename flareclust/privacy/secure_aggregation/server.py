"""Secure sums at the server: everybody's keys, and the totals of what sites sent under masks."""

from collections import Counter
from collections.abc import Mapping, Sequence

from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.typing import Message
from flareclust.privacy.secure_aggregation.fixed_point import WORDS
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES, KeyTable, key_of, total
from flareclust.privacy.secure_aggregation.totals import MOST_SITES, Layout
from flareclust.protocol.schema import Schema
from flareclust.protocol.sizes import total_sizes


class ServerSums:
    """The sites whose numbers are added up, from their keys on.

    Args:
        replies: the keys and numbers of columns by site.
    """

    def __init__(self, replies: Mapping[str, Message]) -> None:
        self.columns = int(next(iter(replies.values()))["columns"])
        self.table = KeyTable({site: key_of(replies[site]["key"]) for site in sorted(replies)})
        self.begun = False

    @property
    def sites(self) -> list[str]:
        """Return their names, sorted."""
        return list(self.table.keys)

    def begin(self, active: Sequence[str]) -> None:
        """Fix the sites of all sums of the job, before the first one.

        Raises:
            JobFailed: they are fewer than three, or more than totals have room for.
        """
        if self.begun:
            return
        self.table = self.table.only(active)
        if len(self.sites) < LEAST_SITES:
            raise JobFailed(
                f"secure sums need {LEAST_SITES} sites, and {len(self.sites)} are left: of two, each would know the other's"
            )
        if len(self.sites) > MOST_SITES:
            raise JobFailed(
                f"secure sums have room for the totals of {MOST_SITES} sites, and {len(self.sites)} take part: submit with fewer "
                "sites, or without secure_sums"
            )
        self.begun = True

    def sizes_of(self, arrays: Message) -> dict[str, int]:
        """Return the sizes of what sites answer to a task, before masks."""
        return total_sizes(arrays, self.columns)

    def sizes(self, schema: Schema, arrays: Message) -> dict[str, int]:
        """Return the sizes that the masked answers to a task must have."""
        return {"b": WORDS, "w": self._layout(schema, arrays).width}

    def total(self, schema: Schema, arrays: Message, replies: Mapping[str, Message]) -> Message:
        """Return the one reply that the masked replies of all sites make; JobFailed where they do not add up to one."""
        numbers = total([reply["masked"] for reply in replies.values()])
        try:
            return self._layout(schema, arrays).reply(numbers)
        except BadMessage as error:
            raise JobFailed(
                f"the masked numbers of the sites do not add up to sums over rows ({error}): a site was asked something else "
                "than the others, or sent something else. Which one cannot be seen; submit again"
            ) from error

    def _layout(self, schema: Schema, arrays: Message) -> Layout:
        return Layout(schema, self.sizes_of(arrays))


def unusable(replies: Mapping[str, Message]) -> dict[str, str]:
    """Return what is wrong with each invalid key, by site."""
    problems = {}
    for site, reply in replies.items():
        try:
            key_of(reply["key"])
        except BadMessage as error:
            problems[site] = f"sent a bad reply: {error}"
    return problems


def of_other_width(replies: Mapping[str, Message], wanted: int | None) -> dict[str, str]:
    """Return the problem of each site whose number of columns differs from the wanted one, or from that of most sites."""
    columns = {site: int(reply["columns"]) for site, reply in replies.items()}
    if wanted is not None:
        expected = f"where the federation has {wanted}"
        return {site: f"has rows of {d} columns {expected}" for site, d in columns.items() if d != wanted}
    [(usual, sharing)] = Counter(columns.values()).most_common(1)
    others = f"columns where {sharing} other sites have {usual}"
    return {site: f"has {d} {others}" for site, d in columns.items() if d != usual}
