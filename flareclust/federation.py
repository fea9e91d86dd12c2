"""The course of a federation, the same in every engine: rounds, quorum, assessment.

An engine supplies `ask`, which carries a task to sites and brings their answers; this module decides everything else.

Rules:
- All sites are asked. Those that refuse, fail, send a bad reply or do not answer in time are left out of the following
  clustering rounds and named in the result.
- A round needs the quorum `min_sites`; unless set, more than half of all sites. Below it the job fails with every
  reason in one message.
- Where sites disagree about the number of columns, the number that most of them have counts.
- A site that was lost, with its process, its machine or its network, is not waited for; what it misses it does not get later.
- The assessment asks every site that could still answer, and never makes a job fail.
"""

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np

from flareclust.aggregators.base import ClusteringAggregator, Round, expected_sizes
from flareclust.errors import JobFailed
from flareclust.executors.base import ASSESS, ASSESSMENT
from flareclust.message import Schema, nbytes
from flareclust.outcome import Outcome
from flareclust.replies import SiteReply, accept
from flareclust.typing import Message

#: (step, round, arrays, sites) -> replies by site; sites that did not answer in time are missing.
Ask = Callable[[str, int, Message, Sequence[str]], Mapping[str, SiteReply]]

#: What ends the reason of a site that took part in all rounds.
IN_ASSESSMENT = "(in the assessment)"

#: Called with each record of rounds.jsonl as soon as it is known.
OnRound = Callable[[Mapping[str, object]], None]


def quorum(m: int, min_sites: int | None) -> int:
    """Return how many of m sites a round needs: `min_sites`, or more than half of them."""
    return m // 2 + 1 if min_sites is None else min_sites


def run_federation(
    aggregator: ClusteringAggregator,
    ask: Ask,
    sites: Sequence[str],
    *,
    min_sites: int | None = None,
    assess: bool = True,
    on_round: OnRound = lambda record: None,
) -> Outcome:
    """Run clustering rounds until the aggregator is done, then the assessment.

    Args:
        aggregator: the algorithm's server side.
        ask: how this engine reaches the sites.
        sites: names of all sites of the job.
        min_sites: quorum of a round; None for more than half of the sites.
        assess: whether to ask for the label-free metrics and let the sites write their labels.
        on_round: gets a record per exchange.

    Raises:
        JobFailed: a round stayed below its quorum, or no centroid could be found.
    """
    course = _Course(ask, sorted(sites), quorum(len(sites), min_sites), on_round)
    round_ = aggregator.begin()
    merge_seconds = 0.0
    while not round_.done:
        replies = course.cluster(aggregator.schema(round_.step), round_, aggregator.own_sizes(round_))
        step, index = round_.step, round_.index
        started = perf_counter()
        round_ = aggregator.advance(round_, replies)
        seconds = perf_counter() - started
        merge_seconds += seconds
        course.record(step, replies, index, seconds, round_.diagnostics)
    metrics = course.assess(round_, aggregator) if assess else {}
    return Outcome(
        arrays=aggregator.result(round_),
        metrics=metrics,
        rounds=course.records,
        sites=course.sites,
        refused=course.refused,
        bytes_up=course.bytes_up,
        bytes_down=course.bytes_down,
        seconds_local=course.seconds_local,
        seconds_merge=merge_seconds,
    )


class _Course:
    """What accumulates while a federation runs."""

    def __init__(self, ask: Ask, sites: list[str], needed: int, on_round: OnRound) -> None:
        self.ask, self.sites, self.needed, self.on_round = ask, sites, needed, on_round
        self.active = list(sites)
        self.refused: dict[str, str] = {}
        self.silent: set[str] = set()
        self.records: list[dict[str, object]] = []
        self.bytes_up = self.bytes_down = 0
        self.seconds_local = 0.0
        self._round_bytes = (0, 0)

    def cluster(self, schema: Schema, round_: Round, own_sizes: Mapping[str, Mapping[str, int]]) -> dict[str, Message]:
        replies = self._exchange(schema, round_.step, round_, self.active, expected_sizes(round_), own_sizes)
        self.active = [site for site in self.active if site in replies]
        if len(replies) < self.needed:
            reasons = "; ".join(_told(self.refused))
            raise JobFailed(
                f"round {round_.index}: {len(replies)} of {len(self.sites)} sites took part where at least "
                f"{self.needed} are needed (min_sites). {reasons}"
            )
        return replies

    def assess(self, round_: Round, aggregator: ClusteringAggregator) -> dict[str, float | None]:
        able = [site for site in self.sites if site not in self.silent]
        replies = self._exchange(ASSESSMENT, ASSESS, round_, able, sizes={"k": len(round_.task["centroids"])})
        if not replies:
            return {}
        sums = {name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in ASSESSMENT.fields}
        metrics = aggregator.quality(round_, sums)
        self.record(ASSESS, replies, round_.index, 0.0, {k: v for k, v in metrics.items() if v is not None})
        return metrics

    def _exchange(
        self,
        schema: Schema,
        step: str,
        round_: Round,
        sites: list[str],
        sizes: Mapping[str, int],
        own_sizes: Mapping[str, Mapping[str, int]] | None = None,
    ) -> dict[str, Message]:
        answers = self.ask(step, round_.index, round_.task, sites)
        up = sum(nbytes(answer.arrays) for answer in answers.values())
        down = nbytes(round_.task) * len(sites)
        self.bytes_up, self.bytes_down, self._round_bytes = self.bytes_up + up, self.bytes_down + down, (up, down)
        replies, problems, slowest = accept(schema, answers, sites, sizes, own_sizes)
        self.seconds_local += slowest
        self.silent |= {site for site in sites if site not in answers or answers[site].lost}
        for site, problem in problems.items():
            self.refused.setdefault(site, f"{problem} {IN_ASSESSMENT}" if step == ASSESS else problem)
        return replies

    def record(
        self, step: str, replies: Mapping[str, Message], index: int, seconds: float, numbers: Mapping[str, float]
    ) -> None:
        up, down = self._round_bytes
        entry: dict[str, object] = {
            "round": index,
            "step": step,
            "sites": sorted(replies),
            "refused": dict(self.refused),
        }
        entry |= {"bytes_up": up, "bytes_down": down, "seconds_merge": seconds, "diagnostics": dict(numbers)}
        self.records.append(dict(entry))
        self.on_round(entry)


def _told(refused: Mapping[str, str]) -> list[str]:
    """Return a sentence per site, or one for all where more than ten sites have the same reason."""
    sentences = []
    for reason in sorted(set(refused.values()), key=lambda text: min(s for s, r in refused.items() if r == text)):
        sites = sorted(site for site, own in refused.items() if own == reason)
        if len(sites) > 10:
            sentences.append(f"{sites[0]}, {sites[1]} and {len(sites) - 2} more sites: each {reason}")
        else:
            sentences += [f"{site} {reason}" for site in sites]
    return sentences
