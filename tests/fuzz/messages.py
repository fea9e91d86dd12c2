"""Replies of real federations as the server gets them, and what the server does with one."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.f3.cellnet.defs import Encoding
from nvflare.fuel.f3.cellnet.utils import decode_payload, encode_payload
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.utils.fobs import FOBSContextKey

from flareclust._foundation.typing import Message, never_abort
from flareclust.engines.inprocess import SimulatedSite
from flareclust.federation import run_federation
from flareclust.federation.aggregator import ClusteringAggregator, unpack
from flareclust.federation.server import ServerJob
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.protocol import registry
from flareclust.protocol.replies import SiteReply
from flareclust.protocol.rounds import Round
from flareclust.protocol.task import ROUND, STEP, StepName, Task
from flareclust.testing import iid_sites

#: The site whose reply is spoiled.
SPOILED = "site-2"

K = 4

#: Of the sites, for algorithms that need one.
_POLICY = Policy(dp=DifferentialPrivacy((-20.0, 20.0), epsilon=10.0, delta=1e-6, budget=1000.0))


@dataclass(frozen=True)
class Exchange:
    """One exchange of a real federation: the state of the server, and what every site answered."""

    name: str
    server: ClusteringAggregator
    round: Round
    replies: dict[str, Message]

    @property
    def step(self) -> str:
        """Return what the sites were asked to do."""
        return StepName.ASSESS if self.round.done else self.round.step

    @property
    def honest(self) -> Message:
        """Return what the site sent whose reply is spoiled."""
        return self.replies[SPOILED]


@cache
def exchanges() -> tuple[Exchange, ...]:
    """Return the first and the last exchange of every step of every federated algorithm."""
    flare_decomposers.register()
    common_decomposers.register()
    found: dict[tuple[str, str, str], Exchange] = {}
    for name, algorithm in registry.algorithms().items():
        if algorithm.federated:
            for exchange in _run(algorithm):
                found.setdefault((name, exchange.step, "first"), exchange)
                found[name, exchange.step, "last"] = exchange
    different = {id(exchange): replace(exchange, name="/".join(key)) for key, exchange in found.items()}
    return tuple(different.values())


def _run(algorithm: registry.Algorithm) -> list[Exchange]:
    sites, _ = iid_sites(m=4, k=K, d=3)
    executor, server = algorithm.build(K, 0, {})
    held = {site: SimulatedSite.of(_POLICY, algorithm).session if executor.private else None for site in sites}
    seen: list[Exchange] = []
    answers: dict[str, Message] = {}
    advance = ServerJob.advance

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        answers.clear()
        for site in asked:
            answers[site] = executor.answer(
                Task(step, round_, arrays, site), sites[site], never_abort, held[site]
            ).arrays
        return {site: SiteReply(arrays) for site, arrays in answers.items()}

    def advanced(job: ServerJob, round_: Round, replies: dict[str, Message]) -> Round:
        seen.append(Exchange("", server, round_, dict(answers)))
        merged = advance(job, round_, replies)
        if merged.done:
            last.append(merged)
        return merged

    last: list[Round] = []
    with patch.object(ServerJob, "advance", advanced):
        run_federation(server, ask, list(sites))
    return [*seen, Exchange("", server, last[0], dict(answers))]


class _Over(Exception):
    """The server has done what it does with one exchange."""


def handle(exchange: Exchange, reply: SiteReply) -> Message | None:
    """Let the server take the honest replies and this one; return what it merged them to, None where it refused it.

    This is the way that a reply takes in every engine: `run_federation` from this round on, up to the next.
    """
    merged: list[Message] = []
    advance, quality = ServerJob.advance, ServerJob.quality

    def advanced(job: ServerJob, round_: Round, replies: dict[str, Message]) -> Round:
        if SPOILED in replies:  # else there is nothing new to merge
            merged.append(advance(job, round_, replies).sent)
        raise _Over

    def judged(job: ServerJob, round_: Round, sums: Message) -> dict[str, float | None]:
        merged.append(sums)
        return quality(job, round_, sums)

    begun = patch.multiple(ServerJob, first=lambda job: exchange.round, advance=advanced, quality=judged)
    answers = {site: SiteReply(arrays) for site, arrays in exchange.replies.items()} | {SPOILED: reply}
    try:
        with begun, warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of values near the largest
            outcome = run_federation(exchange.server, lambda *_: answers, list(answers))
    except _Over:
        return merged[0] if merged else None
    return None if SPOILED in outcome.refused else merged[0]


def shareable(exchange: Exchange, arrays: Any) -> Shareable:
    """Return a site's reply to an exchange as the executor hands it to NVFlare."""
    meta = {STEP: exchange.step, ROUND: exchange.round.index}
    reply = DXO(DataKind.WEIGHTS, data=arrays, meta=meta).to_shareable()
    reply.set_return_code("OK")
    return reply


def encoded(reply: Shareable) -> bytes:
    """Return the bytes that NVFlare's cells carry for a reply."""
    message = CellMessage({}, reply)
    encode_payload(message, StreamHeaderKey.PAYLOAD_ENCODING, fobs_ctx={})
    return b"".join(message.payload)


def decoded(data: bytes) -> Any:
    """Return what NVFlare's cells make of bytes; None where that is no reply, which the server's adapter then refuses."""
    message = CellMessage({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, [data])
    decode_payload(message, StreamHeaderKey.PAYLOAD_ENCODING, fobs_ctx={FOBSContextKey.PASS_THROUGH: True})
    return message.payload if isinstance(message.payload, Shareable) else None


def reply_of(exchange: Exchange, received: Any) -> SiteReply:
    """Return a reply as the controller hands it on."""
    return SiteReply(*unpack(received, (exchange.step, exchange.round.index)))


@cache
def honest_bytes() -> tuple[bytes, ...]:
    """Return the bytes of the honest replies, in the order of `exchanges`."""
    return tuple(encoded(shareable(one, dict(one.honest))) for one in exchanges())
