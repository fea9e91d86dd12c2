"""Sites and jobs with secure sums that several test files use."""

from collections.abc import Callable, Mapping, Sequence

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.engines.options import JobOptions
from flareclust.executors.lloyd import LloydExecutor
from flareclust.federation import FederationOptions, run_federation
from flareclust.federation.executor import ClusteringExecutor
from flareclust.protocol.outcome import Outcome
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.task import Task

OPTIONS = JobOptions(k=4, seed=2, secure_sums=True)

PLAIN = JobOptions(k=4, seed=2)

FEWER = OPTIONS.model_copy(update={"min_sites": 3})

Ask = Callable[[str, int, Message, Sequence[str]], dict[str, SiteReply]]


def asker(sites: Mapping[str, FloatArray], executors: Mapping[str, ClusteringExecutor]) -> Ask:
    """Ask executors that know nothing of one another, as processes at real sites do."""

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = {}
        for site in asked:
            try:
                answer = executors[site].answer(Task(step, round_, dict(arrays), site), sites[site], never_abort)
                replies[site] = SiteReply(answer.arrays)
            except (Refusal, BadMessage) as reason:
                replies[site] = SiteReply(problem=str(reason))
        return replies

    return ask


def silent_in(step: str, site: str, ask: Ask) -> Ask:
    """Ask as `ask` does, but that a site does not answer in a step."""

    def asked_but_one(name: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        replies = ask(name, round_, arrays, asked)
        return {own: reply for own, reply in replies.items() if (name, own) != (step, site)}

    return asked_but_one


def lloyd_sites(sites: Mapping[str, FloatArray], k: int = 4) -> dict[str, ClusteringExecutor]:
    return {site: LloydExecutor(k=k, seed=2) for site in sites}


def run_lloyd(ask: Ask, sites: Mapping[str, FloatArray], **params: object) -> Outcome:
    return run_federation(LloydAggregator(4, seed=2, **params), ask, list(sites), FederationOptions(secure_sums=True))  # type: ignore[arg-type]
