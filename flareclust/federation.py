"""The course of a federation, the same in every engine: rounds, quorum, assessment.

An engine supplies `ask`, which carries a task to sites and brings their answers; this module decides everything else.

Rules:
- All sites are asked. Those that refuse, fail, send a bad reply or do not answer in time are left out of the following
  clustering rounds and named in the result.
- A round needs the quorum `min_sites`; unless set, more than half of all sites. Below it the job fails with every
  reason in one message, unless the aggregator has a result by then (`kept`), which it was to improve.
- Where sites disagree about the number of columns, the number that most of them have counts.
- A site that was lost, with its process, its machine or its network, is not waited for; what it misses it does not get later.
- The assessment asks every site that could still answer, and never makes a job fail.

With secure sums (docs/secure-sums.md) all sites are asked for a key first. Where a step's replies are sums, sites mask them,
and their total takes the place of their replies. From the first of these sums on the sites are the same until the end: one
that drops out ends the job, or costs it the metrics where only the assessment is left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import BoolArray, IntArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round, expected_sizes
from flareclust.privacy.secure_aggregation.masking import KEY, LEAST_SITES, LONGEST_KEY, MASKED
from flareclust.privacy.secure_aggregation.server import ALL, ServerSums, of_other_width, unusable
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.schema import Schema, nbytes, plain
from flareclust.protocol.steps import COUNTED, TOLD, counts_of
from flareclust.protocol.task import ASSESS, ASSESSMENT, DESCRIBE, KEYS

#: (step, round, arrays, sites) -> replies by site; sites that did not answer in time are missing.
Ask = Callable[[str, int, Message, Sequence[str]], Mapping[str, SiteReply]]

#: How many rows the sums of the assessment are of, in its record: sites with a policy leave out small cells.
ASSESSED = "assessed_rows"

#: What ends the reason of a site that took part in all rounds.
IN_ASSESSMENT = "(in the assessment)"

#: So many reasons are told in one message.
_MOST_SENTENCES = 20

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
    secure_sums: bool = False,
    secure_min_sites: int | None = None,
    on_round: OnRound = lambda record: None,
) -> Outcome:
    """Run clustering rounds until the aggregator is done, then the assessment.

    Args:
        aggregator: the algorithm's server side.
        ask: how this engine reaches the sites.
        sites: names of all sites of the job.
        min_sites: quorum of a round; None for more than half of the sites.
        assess: whether to ask for the label-free metrics and let the sites write their labels.
        secure_sums: whether sites send sums masked, so that only their total is known here.
        secure_min_sites: these sums are of at least so many sites, which hold the server to it; None for three.
        on_round: gets a record per exchange.

    Raises:
        UserError: secure sums with fewer than three sites, or with settings that need single sites' sums.
        JobFailed: a round stayed below its quorum, or no centroid could be found.
    """
    if secure_sums:
        aggregator = aggregator.secured()
    course = _Course(ask, sorted(sites), quorum(len(sites), min_sites), on_round)
    if secure_sums:
        course = _SecureCourse(ask, course.sites, course.needed, on_round, secure_min_sites or LEAST_SITES)
    course.agree(aggregator)
    round_ = aggregator.begin()
    merge_seconds = 0.0
    while not round_.done:
        own_sizes, limits = aggregator.own_sizes(round_), aggregator.limits(round_)
        try:
            replies = course.cluster(aggregator.schema(round_.step), round_, own_sizes, limits)
        except JobFailed as failure:
            if (kept := aggregator.kept(round_)) is None:
                raise
            round_, course.cut_short = kept, str(failure)
            break
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
        warnings=[*course.cut(), *course.warnings(), *aggregator.warnings(round_, course.assessed)],
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
        self.assessed: Mapping[str, Message] = {}
        self.cut_short = ""
        self._round_bytes = (0, 0)

    def agree(self, aggregator: ClusteringAggregator) -> None:
        """Do what comes before the first exchange: nothing."""

    def cluster(
        self, schema: Schema, round_: Round, own_sizes: Mapping[str, Mapping[str, int]], limits: Mapping[str, int]
    ) -> dict[str, Message]:
        replies = self._exchange(schema, round_.step, round_, self.active, expected_sizes(round_), own_sizes, limits)
        self.active = [site for site in self.active if site in replies]
        self.check_quorum(len(replies), round_.index)
        return replies

    def check_quorum(self, taking_part: int, index: int) -> None:
        """Raise JobFailed with all reasons where too few sites take part."""
        if taking_part < self.needed:
            reasons = "; ".join(_told(self.refused))
            raise JobFailed(
                f"round {index}: {taking_part} of {len(self.sites)} sites took part where at least "
                f"{self.needed} are needed (min_sites). {reasons}"
            )

    def assess(self, round_: Round, aggregator: ClusteringAggregator) -> dict[str, float | None]:
        able = [site for site in self.sites if site not in self.silent]
        replies = self._exchange(ASSESSMENT, ASSESS, round_, able, sizes={"k": len(round_.task["centroids"])})
        if not replies:
            return {}
        sums = {name: np.sum([reply[name] for reply in replies.values()], axis=0) for name in ASSESSMENT.fields}
        metrics, self.assessed = aggregator.quality(round_, sums), replies
        self.record(ASSESS, replies, round_.index, 0.0, _told_of(metrics, sums))
        return metrics

    def _exchange(
        self,
        schema: Schema,
        step: str,
        round_: Round,
        sites: list[str],
        sizes: Mapping[str, int],
        own_sizes: Mapping[str, Mapping[str, int]] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> dict[str, Message]:
        answers = self.ask(step, round_.index, round_.task, sites)
        up = sum(nbytes(answer.arrays) for answer in answers.values())
        down = nbytes(round_.task) * len(sites)
        self.bytes_up, self.bytes_down, self._round_bytes = self.bytes_up + up, self.bytes_down + down, (up, down)
        replies, problems, slowest = accept(schema, answers, sites, sizes, own_sizes, limits)
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

    def cut(self) -> list[str]:
        """Return why the clustering ended before its time with the result that it had, if it did."""
        return [f"the result is that of the last round before this: {self.cut_short}"] if self.cut_short else []

    def warnings(self) -> list[str]:
        """Return what a user should know of a federation that has come to its end, a sentence each."""
        return []


class _SecureCourse(_Course):
    """The same where sums arrive masked: one reply, their total, in place of those of the sites."""

    def __init__(self, ask: Ask, sites: list[str], needed: int, on_round: OnRound, minimum: int) -> None:
        super().__init__(ask, sites, needed, on_round)
        self.minimum = minimum

    def agree(self, aggregator: ClusteringAggregator) -> None:
        """Ask all sites for their keys, and say no to those whose rows have other columns than most."""
        if len(self.sites) < LEAST_SITES:
            raise UserError(
                f"secure_sums needs at least {LEAST_SITES} sites, got {len(self.sites)}: of two, each would know the other's sums"
            )
        self.needed = max(self.needed, LEAST_SITES)
        self.summed = {name for name, step in aggregator.steps.items() if step.maskable}
        self.counted = {name: aggregator.least_rows(name) for name, step in aggregator.steps.items() if step.counted}
        self.unmasked: list[str] = []
        self.unassessed = ""
        first = aggregator.begin()
        replies = super().cluster(KEY, Round(step=KEYS), {}, {"b": LONGEST_KEY})
        problems = unusable(replies)
        if first.step != DESCRIBE:
            columns = first.task["centroids"].shape[1] if "centroids" in first.task else None
            problems = {**of_other_width(replies, columns), **problems}
        self.refused |= problems
        self.active = [site for site in self.active if site not in problems]
        self.check_quorum(len(self.active), 0)
        self.sums = ServerSums({site: replies[site] for site in self.active})
        self.record(KEYS, replies, 0, 0.0, {})

    def cluster(
        self, schema: Schema, round_: Round, own_sizes: Mapping[str, Mapping[str, int]], limits: Mapping[str, int]
    ) -> dict[str, Message]:
        if round_.step in self.summed:
            if round_.step in self.counted:
                round_ = self._with_groups_told(round_)
            return {ALL: self._required_total(schema, round_)}
        if round_.step != DESCRIBE and round_.step not in self.unmasked:
            self.unmasked.append(round_.step)
        return super().cluster(schema, round_, own_sizes, limits)

    def _with_groups_told(self, round_: Round) -> Round:
        """Return the round with the groups to tell of, those that have enough rows at all sites together."""
        counting = replace(round_, step=counts_of(round_.step))
        total = self._required_total(COUNTED, counting)
        self.record(counting.step, {ALL: total}, round_.index, 0.0, {})
        counts = np.zeros(self.sums.sizes_of(round_.task)["K"], dtype=np.int64)
        counts[total["cluster"]] = total["counts"]
        told = large_enough(counts, self.counted[round_.step])
        return replace(round_, task={**round_.task, TOLD: told.astype(np.int64)})

    def _required_total(self, schema: Schema, round_: Round) -> Message:
        total, missing = self._total(schema, round_.step, round_)
        if total is None:
            raise JobFailed(
                f"round {round_.index}: {missing}. With secure sums a job ends where a site drops out, for the masks of the "
                "others do not cancel without its own; submit it again when the site is back, or without the site"
            )
        return total

    def assess(self, round_: Round, aggregator: ClusteringAggregator) -> dict[str, float | None]:
        try:
            total, self.unassessed = self._total(ASSESSMENT, ASSESS, round_)
        except JobFailed as error:
            total, self.unassessed = None, str(error)
        if total is None:
            return {}
        metrics = aggregator.quality(round_, total)
        self.record(ASSESS, {ALL: total}, round_.index, 0.0, _told_of(metrics, total))
        return metrics

    def _total(self, schema: Schema, step: str, round_: Round) -> tuple[Message | None, str]:
        """Return the total of all sites' masked replies; None and who is missing where it cannot be known."""
        if not self.sums.begun and len(self.active) < self.minimum:
            raise JobFailed(
                f"secure sums of this job are of at least {self.minimum} sites (min_sites; all sites unless it is given), and "
                f"{len(self.active)} are left. {'; '.join(_told(self.refused))}"
            )
        self.sums.begin(self.active)
        with_keys = replace(round_, task={**round_.task, **self.sums.table.sent()})
        sizes = self.sums.sizes(schema, round_.task)
        replies = self._exchange(MASKED, step, with_keys, self.sums.sites, sizes)
        if missing := [site for site in self.sums.sites if site not in replies]:
            return None, "; ".join(_told({site: self.refused[site] for site in missing}))
        return self.sums.total(schema, round_.task, replies), ""

    def record(
        self, step: str, replies: Mapping[str, Message], index: int, seconds: float, numbers: Mapping[str, float]
    ) -> None:
        by_site: Mapping[str, Message] = {site: {} for site in self.sums.sites} if ALL in replies else replies
        super().record(step, by_site, index, seconds, numbers)

    def warnings(self) -> list[str]:
        """Say what was not masked, and why there are no metrics."""
        found = []
        if self.unmasked:
            found.append(
                f"secure_sums masked what adds up over sites; what they sent in the steps {', '.join(self.unmasked)} does not, and "
                "reached the server as it is, site by site"
            )
        if self.unassessed:
            found.append(
                f"there are no metrics, since the masked sums of all sites are needed for them: {self.unassessed}"
            )
        return found


def large_enough(counts: IntArray, minimum: int) -> BoolArray:
    """Return which groups (k,) are told of by their total: those with `minimum` rows, of which so many or none are left out.

    Else what is known of all rows, less what is told, would tell of the few that are left out.
    """
    told = counts >= minimum
    for r in np.argsort(counts, kind="stable"):
        left_out = int(counts[~told].sum())
        if left_out == 0 or left_out >= minimum:
            break
        told[r] = False
    return told


def _told_of(metrics: Mapping[str, float | None], sums: Message) -> dict[str, float]:
    """Return what the record of the assessment holds: the metrics, and over how many rows they are."""
    return {
        ASSESSED: float(np.sum(sums["counts"])),
        **{name: value for name, value in metrics.items() if value is not None},
    }


def _told(refused: Mapping[str, str]) -> list[str]:
    """Return a sentence per site, or one for all where more than ten sites have the same reason; at most twenty and a last one."""
    by_reason: dict[str, list[str]] = {}
    for site in sorted(refused):
        by_reason.setdefault(refused[site], []).append(plain(site))
    sentences = []
    for reason, sites in by_reason.items():  # in the order of the first site's name
        if len(sites) > 10:
            sentences.append(f"{sites[0]}, {sites[1]} and {len(sites) - 2} more sites: each {reason}")
        else:
            sentences += [f"{site} {reason}" for site in sites]
    rest = len(sentences) - _MOST_SENTENCES
    return sentences if rest <= 0 else [*sentences[:_MOST_SENTENCES], f"and {rest} more reasons"]
