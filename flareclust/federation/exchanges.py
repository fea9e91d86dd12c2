"""The exchanges of a federation with its sites: who is asked, who takes part, what is recorded.

In simulations a round may be with some of the sites: a cohort drawn for each, and sites that drop out of one.

Sources: McMahan et al. (2017), Communication-efficient learning of deep networks from decentralized data, Algorithm 1 (a random
set of clients in each round); Bonawitz et al. (2019), Towards federated learning at scale, section 2 (devices that drop out).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flareclust._foundation.display import some
from flareclust._foundation.errors import BadMessage, JobFailed
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import Message
from flareclust.evaluation.batch_effects import hidden_batch_effects
from flareclust.federation.checkpoint import Progress
from flareclust.privacy.secure_aggregation.masking import KEY, LEAST_SITES, LONGEST_KEY, MASKED, check_number_of_sites
from flareclust.privacy.secure_aggregation.server import ServerSums, of_other_width, unusable
from flareclust.protocol.outcome import SITE_BY_SITE
from flareclust.protocol.replies import ALL, SiteReply, accept, stacked
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import Schema, nbytes, plain
from flareclust.protocol.sizes import reply_sizes
from flareclust.protocol.steps import COUNTED, REPORTED, counts_of
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.server import ServerJob

#: The owners of the random streams that draw the sites of a round.
_COHORT, _DROPOUT = "cohort", "dropout"


@dataclass(frozen=True)
class Sampling:
    """Which of the sites a round has.

    Attributes:
        cohort: how many are drawn for a round, with equal chances; None for all.
        dropout: probability that a site that was drawn drops out of the round; it may be drawn again.
        seed: of the draws, which are others in each round.
    """

    cohort: int | None = None
    dropout: float = 0.0
    seed: int = 0

    def drawn(self, sites: Sequence[str], round_: int) -> list[str]:
        """Return the cohort of a round, in the order of `sites`."""
        if self.cohort is None or self.cohort >= len(sites):
            return list(sites)
        places = stream(self.seed, round_, _COHORT).choice(len(sites), self.cohort, replace=False)
        places.sort()
        return [sites[i] for i in places.tolist()]

    def staying(self, sites: Sequence[str], round_: int) -> list[str]:
        """Return the sites that do not drop out of a round."""
        if not self.dropout:
            return list(sites)
        stays = stream(self.seed, round_, _DROPOUT).random(len(sites)) >= self.dropout
        return [site for site, there in zip(sites, stays.tolist(), strict=True) if there]


#: (step, round, arrays, sites) -> replies by site; sites that did not answer in time are missing.
Ask = Callable[[str, int, Message, Sequence[str]], Mapping[str, SiteReply]]

#: How many rows the sums of the assessment are of, in its record: sites with a policy leave out small cells.
ASSESSED = "assessed_rows"

#: What ends the reason of a site that took part in all rounds.
IN_ASSESSMENT = "(in the assessment)"

#: Why sites are left out of a run that goes on from a checkpoint.
GONE, NEW = "was not there when the job was resumed", "was not in the job before it was resumed"

#: So many reasons are listed in one message.
_MOST_SENTENCES = 20

#: So many sites are named that have the same reason.
_MOST_NAMED = 5

#: Called with each record of rounds.jsonl as soon as it is known.
OnRound = Callable[[Mapping[str, object]], None]


class ExchangeRequest(NamedTuple):
    """The sites that are asked in one exchange, the round that carries what they are sent, and which replies fit.

    Schema, sizes, own sizes and limits are those of `flareclust.protocol.replies.accept`.
    """

    schema: Schema
    step: str
    round_: Round[Any]
    sites: list[str]
    sizes: Mapping[str, int]
    own_sizes: Mapping[str, Mapping[str, int]] | None = None
    limits: Mapping[str, int] | None = None

    @classmethod
    def of(cls, job: "ServerJob", round_: Round[Any]) -> "ExchangeRequest":
        """Return what sites are asked in a round, of none of them yet."""
        step, sizes = round_.step, reply_sizes(round_.step, round_.sent)
        return cls(job.schema(step), step, round_, [], sizes, job.own_sizes(round_), job.limits(round_))


class Exchanges:
    """Exchanges with the sites of one run: participants, refusals, records and costs so far."""

    #: Whether sums arrive as totals only.
    secure: ClassVar[bool] = False

    def __init__(self, ask: Ask, sites: list[str], needed: int, on_round: OnRound) -> None:
        self.ask, self.sites, self.needed, self.on_round = ask, sites, needed, on_round
        self.active = list(sites)
        self.refused: dict[str, str] = {}
        self.silent: set[str] = set()
        self.records: list[dict[str, object]] = []
        self.bytes_up = self.bytes_down = 0
        self.seconds_local = 0.0
        self.seconds_merge = 0.0
        self.assessed: Mapping[str, Message] = {}
        self.totals: Message = {}
        self.undescribed: dict[str, str] = {}
        self.failure = ""
        self.sampling: Sampling | None = None
        self._round_bytes, self._round_seconds = (0, 0), dict[str, float]()

    def resume(self, before: Progress) -> None:
        """Take up the state of an interrupted run: its sites are asked that are still there, and no others."""
        there, known = set(self.sites), set(before.sites)
        gone, new = [site for site in before.active if site not in there], sorted(there - known)
        self.sites, self.active = sorted(there | known), [site for site in before.active if site in there]
        self.refused = {**before.refused, **dict.fromkeys(gone, GONE), **dict.fromkeys(new, NEW)}
        self.silent = {*before.silent, *gone, *new}
        self.records = [dict(record) for record in before.records]
        self.bytes_up, self.bytes_down = before.bytes_up, before.bytes_down
        self.seconds_local, self.seconds_merge = before.seconds_local, before.seconds_merge
        for record in before.records:
            self.on_round(record)

    def progress(self) -> Progress:
        """Return what is known of sites and costs by now."""
        known = {one.name: copy(getattr(self, one.name)) for one in fields(Progress)}
        return Progress(**{**known, "silent": sorted(self.silent)})

    def agree(self, job: "ServerJob") -> None:
        """Do what comes before the first exchange: nothing."""

    def cluster(self, request: ExchangeRequest) -> Mapping[str, Message]:
        """Return the replies to a round of those that take part, or raise JobFailed below the quorum.

        In a round with some of the sites, one that was not asked stays in the job.
        """
        round_, drawn, asked = request.round_, None, self.active
        if round_.sites is not None:
            drawn, asked = len(round_.sites), [site for site in self.active if site in round_.sites]
        elif self.sampling is not None and round_.step not in StepName.BEFORE_ROUNDS:
            cohort = self.sampling.drawn(self.active, round_.index)
            drawn, asked = len(cohort), self.sampling.staying(cohort, round_.index)
        replies = self._exchange(request._replace(sites=asked)) if asked or drawn is None else {}
        if gone := {site for site in asked if site not in replies}:
            self.active = [site for site in self.active if site not in gone]
        if drawn is None:
            if round_.step == StepName.NAMES:  # labels and sums of other columns would be nonsense
                self.silent |= gone
            self._check_quorum(len(replies), round_.index, self.needed, len(self.sites))
        else:
            needed = -(-self.needed * drawn // len(self.sites))  # of a job's quorum, as many as these are of its sites
            dropped = 0 if round_.sites is not None else drawn - len(asked)
            self._check_quorum(len(replies), round_.index, max(1, needed), drawn, dropped)
        return replies

    def _check_quorum(self, taking_part: int, index: int, needed: int, of: int, dropped: int = 0) -> None:
        """Raise JobFailed with all reasons where too few sites take part, of those that were drawn for the round."""
        if taking_part < needed:
            reasons = [f"{dropped} of them dropped out by chance; lower dropout, or min_sites"] if dropped else []
            reasons += refusal_texts(self.refused)
            raise JobFailed(
                f"round {index}: {taking_part} of {of} sites took part where at least "
                f"{needed} are needed (min_sites). {'; '.join(reasons)}"
            )

    def assess(self, round_: Round[Any], job: "ServerJob") -> dict[str, float | None]:
        """Return the metrics from what the sites say in the assessment; none where nobody answers."""
        asked = self._assessment(round_, job)
        replies = self._exchange(asked)
        if not replies:
            return {}
        self.assessed = replies
        sums = {name: np.sum(stacked(replies.values(), name), axis=0) for name in asked.schema.fields}
        return self._quality(round_, job, replies, sums)

    def _quality(
        self, round_: Round[Any], job: "ServerJob", replies: Mapping[str, Message], sums: Message
    ) -> dict[str, float | None]:
        """Return the metrics from the sums of the assessment; its record has them, and over how many rows they are."""
        self.totals, metrics = sums, job.quality(round_, sums)
        known = {name: value for name, value in metrics.items() if value is not None}
        self.record(StepName.ASSESS, replies, round_.index, 0.0, {ASSESSED: float(np.sum(sums["counts"])), **known})
        return metrics

    def describe(self, request: ExchangeRequest) -> Mapping[str, Message]:
        """Return what the sites say in an exchange after the assessment; JobFailed where fewer than a round needs do."""
        able = [site for site in self.sites if site not in self.silent and site not in self.undescribed]
        left_out, self.refused = self.refused, {}
        replies = self._exchange(request._replace(sites=able))
        self.undescribed |= self.refused
        self.refused = left_out
        if len(replies) < self.needed:
            before = [f"{some(sorted(left_out), _MOST_NAMED)}: left out before"] if left_out else []
            reasons = "; ".join([*self.new_refusals(), *before])
            raise JobFailed(
                f"{len(replies)} of {len(self.sites)} sites answered where at least {self.needed} are needed. {reasons}"
            )
        return replies

    def new_refusals(self) -> list[str]:
        """Return a sentence per reason why sites do not describe clusters that are not left out of the result."""
        return refusal_texts({site: why for site, why in self.undescribed.items() if site not in self.refused})

    def _assessment(self, round_: Round[Any], job: "ServerJob") -> ExchangeRequest:
        """Return what the sites that can answer are asked in the assessment."""
        schema, able = job.schema(StepName.ASSESS), [site for site in self.sites if site not in self.silent]
        return ExchangeRequest(schema, StepName.ASSESS, round_, able, {"k": len(round_.task["centroids"])})

    def _exchange(self, asked: ExchangeRequest) -> Mapping[str, Message]:
        """Return the replies that can be used."""
        sent = asked.round_.sent
        self._round_bytes = 0, 0
        self._count(0, nbytes(sent) * len(asked.sites))
        answers = self.ask(asked.step, asked.round_.index, sent, asked.sites)
        self._count(sum(nbytes(answer.arrays) for answer in answers.values()), 0)
        replies, problems, self._round_seconds = accept(
            asked.schema, answers, asked.sites, asked.sizes, asked.own_sizes, asked.limits
        )
        self.seconds_local += max(self._round_seconds.values(), default=0.0)
        self.silent |= {site for site in asked.sites if site not in answers or answers[site].lost}
        for site, problem in problems.items():
            self._refuse(site, problem, asked.step)
        return replies

    def _count(self, up: int, down: int) -> None:
        """Add bytes that were sent to those of the exchange and of the job."""
        self.bytes_up, self.bytes_down = self.bytes_up + up, self.bytes_down + down
        self._round_bytes = self._round_bytes[0] + up, self._round_bytes[1] + down

    def _refuse(self, site: str, problem: str, step: str) -> None:
        """Keep the first reason why a site's reply cannot be used."""
        self.refused.setdefault(site, f"{problem} {IN_ASSESSMENT}" if step == StepName.ASSESS else problem)

    def record(
        self, step: str, replies: Mapping[str, Message], index: int, seconds: float, numbers: Mapping[str, float]
    ) -> None:
        """Write down an exchange."""
        up, down = self._round_bytes
        entry: dict[str, object] = {"round": index, "step": step, **self._sites_of(replies)}
        entry |= {"bytes_up": up, "bytes_down": down, "seconds_merge": seconds, "diagnostics": dict(numbers)}
        entry["ended"] = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.records.append(dict(entry))
        self.on_round(entry)

    def _sites_of(self, replies: Mapping[str, Message]) -> dict[str, object]:
        """Return what the record of an exchange says of the sites."""
        took = {} if self.secure else {"seconds_sites": {site: round(s, 1) for site, s in self._round_seconds.items()}}
        return {"sites": sorted(replies), "refused": dict(self.refused), **took}

    def warnings(self) -> list[str]:
        """Return warnings about the run, a sentence each, such as of the failure that ended a refinement early."""
        return [f"the result is that of the last round before this: {self.failure}"] if self.failure else []


def refusal_texts(refused: Mapping[str, str]) -> list[str]:
    """Return a sentence per reason, which names the first sites that have it; at most twenty and a last one."""
    by_reason: dict[str, list[str]] = {}
    for site in sorted(refused):
        by_reason.setdefault(refused[site], []).append(plain(site))
    sentences = []
    for reason, sites in by_reason.items():  # in the order of the first site's name
        named = some(sites, _MOST_NAMED)
        sentences.append(f"{named} {reason}" if len(sites) == 1 else f"{len(sites)} sites ({named}): each {reason}")
    rest = len(sentences) - _MOST_SENTENCES
    return sentences if rest <= 0 else [*sentences[:_MOST_SENTENCES], f"and {rest} more reasons"]


class _SitesMissing(JobFailed):
    """A total cannot be known without these sites, whose refusals are the text."""


class SecureExchanges(Exchanges):
    """Exchanges with masked sums: one reply, the total, in place of those of the sites."""

    secure = True

    def __init__(self, ask: Ask, sites: list[str], needed: int, on_round: OnRound, minimum: int) -> None:
        super().__init__(ask, sites, needed, on_round)
        self.minimum = minimum
        self.resumed: list[str] = []
        self.batch_effects: list[str] = []

    def resume(self, before: Progress) -> None:
        """Take up the state of an interrupted run; keys are agreed on anew, by the same sites."""
        super().resume(before)
        self.resumed = before.active

    def agree(self, job: "ServerJob") -> None:
        """Ask all sites for their keys, and say no to those whose rows have other columns than most."""
        check_number_of_sites(len(self.sites))
        self.needed = max(self.needed, LEAST_SITES)
        self.summed = {name for name, step in job.steps.items() if step.maskable}
        self.public = {name for name, step in job.steps.items() if step.public}
        self.counted = {name: job.least_rows() for name, step in job.steps.items() if step.counted}
        masked = {*self.summed, *map(counts_of, self.summed), *StepName.BEFORE_ROUNDS}
        before = dict.fromkeys(str(record["step"]) for record in self.records)  # of an interrupted run
        self.unmasked = [step for step in before if step not in masked]
        self.unassessed = ""
        keys = Round[Any](step=StepName.KEYS)
        replies = super().cluster(ExchangeRequest(KEY, keys.step, keys, [], {}, limits={"b": LONGEST_KEY}))
        problems = unusable(replies)
        if StepName.DESCRIBE not in job.steps:  # all sites have the same columns
            start = job.aggregator.begin().task.get("centroids")
            columns = None if start is None else start.shape[1]
            problems = {**of_other_width(replies, columns), **problems}
        self.refused |= problems
        self.active = [site for site in self.active if site not in problems]
        self._check_quorum(len(self.active), 0, self.needed, len(self.sites))
        if missing := sorted(set(self.resumed) - set(self.active)):
            raise JobFailed(
                f"{'; '.join(refusal_texts({site: self.refused[site] for site in missing}))}. With secure sums a job is resumed by "
                "all sites that it had: the totals with and without a site would disclose its sums"
            )
        self.sums = ServerSums({site: replies[site] for site in self.active})
        self.record(StepName.KEYS, replies, 0, 0.0, {})

    def cluster(self, request: ExchangeRequest) -> Mapping[str, Message]:
        """Return the one reply that the totals make, in steps that add up; else as without secure sums."""
        round_ = request.round_
        if round_.step in self.summed:
            if round_.step in self.counted:
                round_ = self._with_reported_groups(round_)
            return {ALL: self._required_total(request.schema, round_)}
        if round_.step not in (StepName.DESCRIBE, *self.public, *self.unmasked):
            self.unmasked.append(round_.step)
        return super().cluster(request)

    def _with_reported_groups(self, round_: Round[Any]) -> Round[Any]:
        """Return the round with the groups to report, those that have enough rows at all sites together."""
        counting = replace(round_, step=counts_of(round_.step))
        total = self._required_total(COUNTED, counting)
        self.record(counting.step, {ALL: total}, round_.index, 0.0, {})
        counts = np.zeros(self.sums.sizes_of(round_.sent)["K"], dtype=np.int64)
        counts[total["cluster"]] = total["counts"]
        reported = counts >= self.counted[round_.step]
        return replace(round_, task={**round_.task, REPORTED: reported.astype(np.int64)})

    def _required_total(self, schema: Schema, round_: Round[Any]) -> Message:
        try:
            return self._total(schema, round_.step, round_)
        except _SitesMissing as missing:
            raise JobFailed(
                f"round {round_.index}: {missing}. With secure sums a job ends where a site drops out, for the masks of the "
                "others do not cancel without its own; submit it again when the site is back, or without the site"
            ) from None

    def assess(self, round_: Round[Any], job: "ServerJob") -> dict[str, float | None]:
        """Return the metrics from the totals; none where a site is missing."""
        try:
            total = self._total(job.schema(StepName.ASSESS), StepName.ASSESS, round_)
        except JobFailed as error:
            self.unassessed = str(error)
            return {}
        metrics = self._quality(round_, job, {ALL: total}, total)
        if StepName.OWN_CLUSTERS in job.steps:
            self._ask_for_own_clusters(round_, job, total)
        return metrics

    def _ask_for_own_clusters(self, round_: Round[Any], job: "ServerJob", total: Message) -> None:
        """Ask once how many sites have each of the final clusters nearly for themselves, which no total says."""
        asked = replace(round_, step=StepName.OWN_CLUSTERS, task={**round_.task, "sizes": total["counts"]})
        try:
            reply = self.describe(ExchangeRequest.of(job, asked))
        except (JobFailed, BadMessage) as error:
            self.batch_effects = [f"clusters were not looked at for batch effects: {error}"]
            return
        self.record(asked.step, reply, round_.index, 0.0, {})
        self.batch_effects = hidden_batch_effects(reply[ALL]["own"])

    def describe(self, request: ExchangeRequest) -> Mapping[str, Message]:
        """Return the one reply that the totals make; its sizes follow from what was sent."""
        left_out, self.refused, round_ = self.refused, {}, request.round_
        try:
            if request.step in self.counted:
                round_ = self._with_reported_groups(round_)
            return {ALL: self._total(request.schema, request.step, round_)}
        finally:
            self.refused = left_out

    def _total(self, schema: Schema, step: str, round_: Round[Any]) -> Message:
        """Return the total of all sites' masked replies; raise `_SitesMissing` where it cannot be known."""
        if not self.sums.begun and len(self.active) < self.minimum:
            raise JobFailed(
                f"secure sums of this job are of at least {self.minimum} sites (min_sites; all sites unless it is given), and "
                f"{len(self.active)} are left. {'; '.join(refusal_texts(self.refused))}"
            )
        self.sums.begin(self.active)
        with_keys = replace(round_, task={**round_.task, **self.sums.table.sent()})
        sizes = self.sums.sizes(schema, round_.sent)
        replies = self._exchange(ExchangeRequest(MASKED, step, with_keys, self.sums.sites, sizes))
        if missing := [site for site in self.sums.sites if site not in replies]:
            raise _SitesMissing("; ".join(refusal_texts({site: self.refused[site] for site in missing})))
        return self.sums.total(schema, round_.sent, replies)

    def record(
        self, step: str, replies: Mapping[str, Message], index: int, seconds: float, numbers: Mapping[str, float]
    ) -> None:
        """Write down an exchange, with all sites where there is their total."""
        by_site: Mapping[str, Message] = {site: {} for site in self.sums.sites} if ALL in replies else replies
        super().record(step, by_site, index, seconds, numbers)

    def warnings(self) -> list[str]:
        """Return the usual warnings, what was not masked, why there are no metrics, and clusters that are one site's."""
        found = super().warnings()
        if self.unmasked:
            found.append(f"{SITE_BY_SITE}{', '.join(self.unmasked)}")
        if self.unassessed:
            why = "since the masked sums of all sites are needed for them"
            found.append(f"there are no metrics, {why}: {self.unassessed}")
        return [*found, *self.batch_effects]
