"""The replies of one exchange: which can be used, what is wrong with the others, and what came in all."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import Array, IntArray, Message
from flareclust.core.chunks import pieces
from flareclust.protocol.batch import Batch, Messages
from flareclust.protocol.schema import SECONDS, Schema, plain

#: Stands in the place of a site's name for the one reply that the totals of secure sums make.
ALL = "all sites"


@dataclass(frozen=True)
class SiteReply:
    """What came back from one site: arrays, or a problem in words that follow the site's name.

    Attributes:
        arrays: what it sent.
        problem: what is wrong.
        lost: whether there is nobody left to ask for anything more.
    """

    arrays: Message = field(default_factory=dict)
    problem: str | None = None
    lost: bool = False


def accept(
    schema: Schema,
    answers: Mapping[str, SiteReply],
    sites: Sequence[str],
    sizes: Mapping[str, int] | None = None,
    own_sizes: Mapping[str, Mapping[str, int]] | None = None,
    limits: Mapping[str, int] | None = None,
) -> tuple[dict[str, Message], dict[str, str], dict[str, float]]:
    """Check the answers of one exchange.

    Args:
        schema, answers, sites: what was to be sent, what came, and who was asked.
        sizes: of axis symbols, the same for all.
        own_sizes: further sizes by site; where they say d, sites need not agree about it.
        limits: the most entries that axes whose size is not known may have.

    Returns:
        The usable replies by site in the order of names, the problem of every other site in short plain words that
        follow its name, and how many seconds each usable site computed.
    """
    replies: dict[str, Message] = {}
    problems: dict[str, str] = {}
    columns: dict[str, int] = {}
    took: dict[str, float] = {}
    for site in sorted(sites):
        answer = answers.get(site)
        if answer is None:
            problems[site] = "did not answer in time"
        elif answer.problem is not None:
            problems[site] = plain(answer.problem)
        else:
            message = dict(answer.arrays)
            seconds = message.pop(SECONDS, None)
            try:
                known = (own_sizes or {}).get(site, {})
                found = schema.check(message, {**(sizes or {}), **known}, limits)
            except BadMessage as error:
                problems[site] = plain(f"sent a bad reply: {error}")
                continue
            if found.get("d") == 0 or (0 in found.values() and not schema.may_be_empty):
                problems[site] = "sent an empty reply"
                continue
            columns[site] = 0 if "d" in known else found.get("d", 0)
            replies[site] = message
            took[site] = _seconds(seconds)
    if len(set(columns.values())) > 1:
        [(usual, sharing)] = Counter(columns.values()).most_common(1)
        for site, d in columns.items():
            if d != usual:
                del replies[site]
                problems[site] = f"has {d} columns where {sharing} other sites have {usual}"
    for site, problem in schema.at_odds(replies).items():
        del replies[site]
        problems[site] = problem
    return replies, problems, {site: took[site] for site in replies}


def gathered(replies: Iterable[Message], only: Collection[str] = ()) -> tuple[Message, IntArray]:
    """Return what the sites sent in one exchange: every array with an axis end to end, in the order of the replies.

    With `only`, these arrays at least.

    Returns:
        The arrays by name, of c entries each, and for each entry the number of the reply that it came with (c,).
    """
    if isinstance(replies, Messages):
        batch = replies.batch
        return dict(batch.fields), np.repeat(np.arange(len(batch)), np.diff(batch.starts))
    sent = list(replies)
    names = [name for name, value in sent[0].items() if value.ndim and (not only or name in only)]
    arrays = {name: np.concatenate([reply[name] for reply in sent]) for name in names}
    return arrays, np.repeat(np.arange(len(sent)), [len(reply[names[0]]) for reply in sent])


def piecewise(replies: Iterable[Message], name: str) -> Iterator[Array]:
    """Give an array of `gathered` in pieces, (p, ...) each, without a copy of it: one of each reply, or slices of a batch's."""
    if isinstance(replies, Messages):
        value = replies.batch.fields[name]
        return (value[part] for part in pieces(len(value), value[:1].size))
    return (reply[name] for reply in replies)


def stacked(replies: Iterable[Message], name: str) -> Array:
    """Return one array of every reply, which has the same shape in all of them, (m, ...), in the order of the replies."""
    if isinstance(replies, Messages):
        batch = replies.batch
        return batch.totals[name] if name in batch.totals else batch.fields[name].reshape(len(batch), -1)
    return np.array([reply[name] for reply in replies])


def by_name(replies: Mapping[str, Message]) -> Mapping[str, Message]:
    """Return the replies in the order of the sites' names."""
    return replies if isinstance(replies, Batch) else {site: replies[site] for site in sorted(replies)}


def _seconds(value: object) -> float:
    """Return a reply's own account of its time, which is information only: anything odd counts as 0."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != ():
        return 0.0
    return float(value) if 0.0 <= value < 1e9 else 0.0
