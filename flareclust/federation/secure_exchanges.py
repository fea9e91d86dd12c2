"""The exchanges of a federation with secure sums: keys first, then totals in place of the sites' replies."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.federation.checkpoint import Progress
from flareclust.federation.exchanges import (
    Ask,
    ExchangeRequest,
    Exchanges,
    OnRound,
    assessment_diagnostics,
    refusal_texts,
)
from flareclust.privacy.secure_aggregation.masking import KEY, LEAST_SITES, LONGEST_KEY, MASKED, check_number_of_sites
from flareclust.privacy.secure_aggregation.server import ALL, ServerSums, of_other_width, unusable
from flareclust.protocol.schema import Schema
from flareclust.protocol.steps import COUNTED, REPORTED, counts_of
from flareclust.protocol.task import ASSESS, BEFORE_ROUNDS, DESCRIBE, KEYS


class SecureExchanges(Exchanges):
    """Exchanges with masked sums: one reply, the total, in place of those of the sites."""

    secure = True

    def __init__(self, ask: Ask, sites: list[str], needed: int, on_round: OnRound, minimum: int) -> None:
        super().__init__(ask, sites, needed, on_round)
        self.minimum = minimum
        self.resumed: list[str] = []

    def resume(self, before: Progress) -> None:
        """Take up the state of an interrupted run; keys are agreed on anew, by the same sites."""
        super().resume(before)
        self.resumed = before.active

    def agree(self, aggregator: ClusteringAggregator) -> None:
        """Ask all sites for their keys, and say no to those whose rows have other columns than most."""
        check_number_of_sites(len(self.sites))
        self.needed = max(self.needed, LEAST_SITES)
        self.summed = {name for name, step in aggregator.steps.items() if step.maskable}
        self.public = {name for name, step in aggregator.steps.items() if step.public}
        self.counted = {name: aggregator.least_rows() for name, step in aggregator.steps.items() if step.counted}
        self.unmasked = self._unmasked_before()
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
        if missing := sorted(set(self.resumed) - set(self.active)):
            raise JobFailed(
                f"{'; '.join(refusal_texts({site: self.refused[site] for site in missing}))}. With secure sums a job is resumed by "
                "all sites that it had: the totals with and without a site would disclose its sums"
            )
        self.sums = ServerSums({site: replies[site] for site in self.active})
        self.record(KEYS, replies, 0, 0.0, {})

    def _unmasked_before(self) -> list[str]:
        """Return the steps of an interrupted run whose replies were not masked."""
        masked = {*self.summed, *map(counts_of, self.summed), *BEFORE_ROUNDS}
        return list(dict.fromkeys(step for record in self.records if (step := str(record["step"])) not in masked))

    def cluster(
        self, schema: Schema, round_: Round, own_sizes: Mapping[str, Mapping[str, int]], limits: Mapping[str, int]
    ) -> Mapping[str, Message]:
        """Return the one reply that the totals make, in steps that add up; else as without secure sums."""
        if round_.step in self.summed:
            if round_.step in self.counted:
                round_ = self._with_reported_groups(round_)
            return {ALL: self._required_total(schema, round_)}
        if round_.step not in (DESCRIBE, *self.public, *self.unmasked):
            self.unmasked.append(round_.step)
        return super().cluster(schema, round_, own_sizes, limits)

    def _with_reported_groups(self, round_: Round) -> Round:
        """Return the round with the groups to report, those that have enough rows at all sites together."""
        counting = replace(round_, step=counts_of(round_.step))
        total = self._required_total(COUNTED, counting)
        self.record(counting.step, {ALL: total}, round_.index, 0.0, {})
        counts = np.zeros(self.sums.sizes_of(round_.task)["K"], dtype=np.int64)
        counts[total["cluster"]] = total["counts"]
        reported = counts >= self.counted[round_.step]
        return replace(round_, task={**round_.task, REPORTED: reported.astype(np.int64)})

    def _required_total(self, schema: Schema, round_: Round) -> Message:
        total, missing = self._total(schema, round_.step, round_)
        if total is None:
            raise JobFailed(
                f"round {round_.index}: {missing}. With secure sums a job ends where a site drops out, for the masks of the "
                "others do not cancel without its own; submit it again when the site is back, or without the site"
            )
        return total

    def assess(self, round_: Round, aggregator: ClusteringAggregator) -> dict[str, float | None]:
        """Return the metrics from the totals; none where a site is missing."""
        try:
            total, self.unassessed = self._total(aggregator.schema(ASSESS), ASSESS, round_)
        except JobFailed as error:
            total, self.unassessed = None, str(error)
        if total is None:
            return {}
        metrics = aggregator.quality(round_, total)
        self.record(ASSESS, {ALL: total}, round_.index, 0.0, assessment_diagnostics(metrics, total))
        return metrics

    def describe(self, step: str, schema: Schema, round_: Round, sizes: Mapping[str, int]) -> Mapping[str, Message]:
        """Return the one reply that the totals make; `sizes` follow from what was sent."""
        left_out, self.refused = self.refused, {}
        try:
            if step in self.counted:
                round_ = self._with_reported_groups(round_)
            total, missing = self._total(schema, step, round_)
        finally:
            self.refused = left_out
        if total is None:
            raise JobFailed(missing)
        return {ALL: total}

    def _total(self, schema: Schema, step: str, round_: Round) -> tuple[Message | None, str]:
        """Return the total of all sites' masked replies; None and who is missing where it cannot be known."""
        if not self.sums.begun and len(self.active) < self.minimum:
            raise JobFailed(
                f"secure sums of this job are of at least {self.minimum} sites (min_sites; all sites unless it is given), and "
                f"{len(self.active)} are left. {'; '.join(refusal_texts(self.refused))}"
            )
        self.sums.begin(self.active)
        with_keys = replace(round_, task={**round_.task, **self.sums.table.sent()})
        sizes = self.sums.sizes(schema, round_.task)
        replies = self._exchange(ExchangeRequest(MASKED, step, with_keys, self.sums.sites, sizes))
        if missing := [site for site in self.sums.sites if site not in replies]:
            return None, "; ".join(refusal_texts({site: self.refused[site] for site in missing}))
        return self.sums.total(schema, round_.task, replies), ""

    def record(
        self, step: str, replies: Mapping[str, Message], index: int, seconds: float, numbers: Mapping[str, float]
    ) -> None:
        """Write down an exchange, with all sites where there is their total."""
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
