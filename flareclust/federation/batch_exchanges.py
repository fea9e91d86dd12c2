"""Exchanges with many small sites, whose replies come many at a time (`flareclust.protocol.batch`).

Each part of the replies is checked as it comes. Those of a round are joined, one array for each field, and those of the
assessment are added up at once: nothing is kept of each site that the server does not need.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from flareclust._foundation.errors import BadMessage
from flareclust._foundation.typing import Array, Message
from flareclust.federation.exchanges import Ask, ExchangeRequest, Exchanges, OnRound
from flareclust.federation.server import ServerJob
from flareclust.protocol import batch as batches
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import nbytes

#: Of more sites, no single replies to the assessment are kept, so that nothing can be warned of that takes them.
_MOST_ASSESSED = 1000

#: Parts of the replies, each with the problems of sites that have none, by their numbers.
_Answers = Iterator[tuple[batches.Part | None, Mapping[int, str]]]

#: (step, round, arrays, sites) -> answers; None where the replies of the step come one by one.
_AskMany = Callable[[str, int, Message, Sequence[str]], _Answers | None]


class BatchExchanges(Exchanges):
    """Exchanges of one run with sites that answer many at a time."""

    def __init__(self, ask_many: _AskMany, ask: Ask, sites: list[str], needed: int, on_round: OnRound) -> None:
        super().__init__(ask, sites, needed, on_round)
        self.ask_many = ask_many
        self._named = 0

    def assess(self, round_: Round[Any], job: ServerJob) -> dict[str, float | None]:
        """Return the metrics from what the sites say in the assessment, which is added up part by part."""
        asked = self._assessment(round_, job)
        parts = self._parts(asked)
        if parts is None:
            return super().assess(round_, job)
        each: dict[str, list[Array]] = {name: [] for name in asked.schema.fields}
        places, kept = [np.zeros(0, np.int64)], []
        for part in parts:
            places.append(part.places)
            kept += [part] if len(asked.sites) <= _MOST_ASSESSED else []
            for name, found in each.items():
                found.append(part.each(name))
                # The order in which NumPy adds up rows; single numbers it adds up in another one, when all are there.
                if found[0].shape[1:] > (1,):
                    found[:] = [np.concatenate(found).sum(axis=0, keepdims=True)]
        if len(places) == 1:
            return {}
        sums: Message = {name: np.sum(np.concatenate(found), axis=0) for name, found in each.items()}
        numbers = np.concatenate(places).tolist()
        answered = batches.Batch([asked.sites[i] for i in numbers], {}, {}, np.zeros(len(numbers) + 1, np.int64))
        self.assessed = batches.joined(asked.sites, kept) if kept else {}
        return self._quality(round_, job, answered, sums)

    def _sites_of(self, replies: Mapping[str, Message]) -> dict[str, object]:
        """Return numbers of sites, and those that were not refused before: the names of all would fill files and memory."""
        newly_refused = dict(islice(self.refused.items(), self._named, None))
        self._named = len(self.refused)
        return {"sites": len(replies), "refused": len(self.refused), "newly_refused": newly_refused}

    def _exchange(self, asked: ExchangeRequest) -> Mapping[str, Message]:
        parts = None if asked.own_sizes else self._parts(asked)
        if parts is None:
            return super()._exchange(asked)
        usable = list(parts)
        return batches.joined(asked.sites, usable) if usable else {}

    def _parts(self, asked: ExchangeRequest) -> Iterator[batches.Part] | None:
        """Return the parts of the replies that can be used; None where the replies of the step come one by one."""
        sent = asked.round_.sent
        answers = self.ask_many(asked.step, asked.round_.index, sent, asked.sites)
        if answers is None:
            return None
        self._round_bytes = 0, 0
        self._count(0, nbytes(sent) * len(asked.sites))
        return self._usable(asked, answers)

    def _usable(self, asked: ExchangeRequest, answers: _Answers) -> Iterator[batches.Part]:
        slowest = 0.0
        for part, problems in answers:
            if part is not None:
                self._count(part.nbytes, 0)
                slowest = max(slowest, part.seconds)
                part, bad = _checked(part, asked)
                problems = {**problems, **bad}
            for place, problem in problems.items():
                self._refuse(asked.sites[place], problem, asked.step)
            if part is not None:
                yield part
        self.seconds_local += slowest


def _checked(part: batches.Part, asked: ExchangeRequest) -> tuple[batches.Part | None, dict[int, str]]:
    """Return the part, or where it has bad replies those that are not, and what is wrong with the bad ones by their number."""
    try:
        batches.check_part(asked.schema, part, asked.sizes, asked.limits or {})
        return part, {}
    except BadMessage:
        single = batches.Batch([str(place) for place in part.places], part.fields, part.totals, part.starts)
    answers = {place: SiteReply(message) for place, message in zip(single.names, single.values(), strict=True)}
    replies, problems, _ = accept(asked.schema, answers, list(answers), asked.sizes, None, asked.limits)
    bad, good = {int(place): problem for place, problem in problems.items()}, sorted(map(int, replies))
    if not good:
        return None, bad
    return batches.part_of(asked.schema, good, [replies[str(place)] for place in good], part.seconds), bad
