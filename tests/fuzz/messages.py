"""Replies of real federations as the server gets them, ways to spoil one, and what the server does with it."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.app_common.decomposers import common_decomposers
from nvflare.fuel.f3.cellnet.defs import Encoding
from nvflare.fuel.f3.cellnet.utils import decode_payload, encode_payload
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.utils.fobs import FOBSContextKey
from nvflare.fuel.utils.fobs.lobs import HEADER_LEN, HEADER_STRUCT, MARKER_MAIN

from flareclust import registry
from flareclust.aggregators.base import ClusteringAggregator, Round, unpack
from flareclust.checks import iid_sites
from flareclust.engines.inprocess import Held
from flareclust.errors import JobFailed
from flareclust.executors.base import ASSESS, REFUSED, ROUND, STEP, Task
from flareclust.federation import run_federation
from flareclust.message import SECONDS
from flareclust.privacy.policy import DifferentialPrivacy, Policy
from flareclust.replies import SiteReply
from flareclust.typing import Message, never
from tests.fuzz.choices import Choices, spoiled
from tests.fuzz.watch import limited, peak_of

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
        return ASSESS if self.round.done else self.round.step

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
    held = {site: Held.by(_POLICY, algorithm).terms if executor.private else None for site in sites}
    seen: list[Exchange] = []
    answers: dict[str, Message] = {}
    advance = server.advance

    def ask(step: str, round_: int, arrays: Message, asked: Sequence[str]) -> dict[str, SiteReply]:
        answers.clear()
        for site in asked:
            answers[site] = executor.answer(Task(step, round_, arrays, site), sites[site], never, held[site]).arrays
        return {site: SiteReply(arrays) for site, arrays in answers.items()}

    def advanced(round_: Round, replies: dict[str, Message]) -> Round:
        seen.append(Exchange("", server, round_, dict(answers)))
        merged = advance(round_, replies)
        if merged.done:
            last.append(merged)
        return merged

    last: list[Round] = []
    server.advance = advanced  # type: ignore[method-assign]
    run_federation(server, ask, list(sites))
    del server.advance
    return [*seen, Exchange("", server, last[0], dict(answers))]


class _Over(Exception):
    """The server has done what it does with one exchange."""


def handle(exchange: Exchange, reply: SiteReply) -> Message | None:
    """Let the server take the honest replies and this one; return what it merged them to, None where it refused it.

    This is the way that a reply takes in every engine: `run_federation` from this round on, up to the next.
    """
    server = copy.copy(exchange.server)
    merged: list[Message] = []

    def advance(round_: Round, replies: dict[str, Message]) -> Round:
        if SPOILED in replies:  # else there is nothing new to merge
            merged.append(type(server).advance(server, round_, replies).task)
        raise _Over

    def quality(round_: Round, sums: Message) -> dict[str, float | None]:
        merged.append(sums)
        return type(server).quality(server, round_, sums)

    server.begin, server.advance, server.quality = (lambda: exchange.round), advance, quality  # type: ignore[method-assign,assignment]
    answers = {site: SiteReply(arrays) for site, arrays in exchange.replies.items()} | {SPOILED: reply}
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of values near the largest
            outcome = run_federation(server, lambda *_: answers, list(answers))
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
    """Return what NVFlare's cells make of bytes; None where that is no reply, which the server's intake then refuses."""
    message = CellMessage({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, [data])
    decode_payload(message, StreamHeaderKey.PAYLOAD_ENCODING, fobs_ctx={FOBSContextKey.PASS_THROUGH: True})
    return message.payload if isinstance(message.payload, Shareable) else None


def reply_of(exchange: Exchange, received: Any) -> SiteReply:
    """Return a reply as the controller hands it on."""
    return SiteReply(*unpack(received, (exchange.step, exchange.round.index)))


# --- mutations of what is sent ---

_DTYPES = (
    *("f2", "f4", ">f8", "f8", "g", "c16", "i1", "i4", "i8", ">i8", "u8", "?", "U3", "S3", "O", "M8[s]", "V8"),
    [("a", "f8")],
    [("a", "f8", 2), ("b", "O")],
)
_REALS = (
    *(0.0, -0.0, -1.0, 1.5, 5e-324, -1e-310, 2.3e-308, 1e140, -1e140, 1.1e140, 1e300, -1.7e308),
    *(float("nan"), float("inf"), -float("inf"), 0.1, 1e-160),
)
_WHOLE = (0, 1, -1, 2, 2**31, 2**46, 2**46 + 1, 2**53, 2**62, 2**63 - 1, -(2**63))
_KEYS = ("", "centroids", "rows", "k" * 400, "\0", "\ud800", 3, -1, 2.5, None, b"counts", True, ("a", 1), float("nan"))


def _nested(depth: int) -> Any:
    inner: Any = []
    for _ in range(depth):
        inner = {"a": inner} if depth % 2 else [inner]
    return inner


def _junk(choices: Choices) -> Any:
    return choices.one_of(
        (
            *(None, True, 3, -1.5, float("nan"), 10**400, "text", b"bytes", [], {}, set(), [1, [2]], {"a": np.ones(2)}),
            *(np.float64(1), np.int64(3), np.bool_(True), np.ma.masked_array([1.0, 2.0], [0, 1]), slice(3), object()),
            *(_nested(40), _nested(41), np.array(None), np.array([[1], None], object), np.array("x"), 1j, range(3)),
        )
    )


def _value(array: np.ndarray, choices: Choices) -> np.ndarray:
    array = array.copy()
    if not array.size:
        return array
    with np.errstate(all="ignore"):
        special = np.array(choices.one_of(_REALS if array.dtype.kind == "f" else _WHOLE)).astype(array.dtype)
    start = choices.below(array.size)
    array.reshape(-1)[start : start + choices.one_of((1, 1, 2, array.size))] = special
    return array if choices.below(4) else np.broadcast_to(array.reshape(-1)[start], array.shape).copy()


def _shape(array: np.ndarray, choices: Choices) -> np.ndarray:
    first = array if array.ndim else array[None]
    return choices.one_of(
        (
            lambda: array.reshape(-1),
            lambda: array[None],
            lambda: array.T,
            lambda: first[0] if len(first) else first,
            lambda: first[:0],
            lambda: first[..., :0],
            lambda: first[:-1],
            lambda: np.concatenate([first, first[:1]]),
            lambda: np.concatenate([first, first])[: 2 * len(first)],
            lambda: np.empty((0, 10**15), array.dtype),
            lambda: np.empty((10**15, 0), array.dtype),
            lambda: np.empty((2**40, *array.shape[1:], 0), array.dtype),
            lambda: array[(None,) * 20],
        )
    )()


def _layout(array: np.ndarray, choices: Choices) -> np.ndarray:
    match choices.below(6):
        case 0:
            return array[::-1] if array.ndim else array
        case 1:
            return np.asfortranarray(array)
        case 2:
            array = array.copy()
            array.flags.writeable = False
            return array
        case 3:
            return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
        case 4:
            return np.ascontiguousarray(array[..., ::-1])[..., ::-1] if array.ndim else array
        case _:  # not aligned
            raw = np.zeros(array.nbytes + 1, np.uint8)
            odd = raw[1:].view(array.dtype).reshape(array.shape) if array.nbytes else array
            odd[...] = array
            return odd


def _dtype(array: np.ndarray, choices: Choices) -> np.ndarray:
    dtype = np.dtype(choices.one_of(_DTYPES))
    with np.errstate(all="ignore"):
        try:
            return array.astype(dtype)
        except (TypeError, ValueError):
            return np.zeros(array.shape, dtype)


def mutated(message: Message, other: Message, choices: Choices) -> dict[Any, Any]:
    """Return a message with one to three faults in its keys, types, shapes, values or layout."""
    out: dict[Any, Any] = dict(message)
    for _ in range(1 + choices.below(3)):
        names = list(out)
        if not names:
            break
        name = choices.one_of(names)
        ways = (_value, _value, _value, _shape, _layout, _dtype)
        match choices.below(10):
            case 0:
                del out[name]
            case 1:
                out[choices.one_of(_KEYS)] = out[name] if choices.below(2) else _junk(choices)
            case 2:
                out[name] = _junk(choices)
            case 3:
                out[name] = other[choices.one_of(list(other))]
            case 4:
                out[SECONDS] = _junk(choices) if choices.below(2) else np.array(choices.one_of(_REALS))
            case _ if isinstance(out[name], np.ndarray) and out[name].dtype.kind in "fib":
                out[name] = choices.one_of(ways)(out[name], choices)
    return out


def mutated_reply(exchange: Exchange, other: Exchange, choices: Choices) -> Any:
    """Return the spoiled reply as NVFlare would hand it over, if its bytes could be anything that FOBS can hold."""
    if choices.below(8):
        return shareable(exchange, mutated(exchange.honest, other.honest, choices))
    reply = shareable(exchange, dict(exchange.honest))
    match choices.below(7):
        case 0:
            reply["__headers__"] = _junk(choices)
        case 1:
            reply.set_return_code(_junk(choices))
        case 2:
            reply.set_header("__content_type__", _junk(choices))
        case 3:
            reply["DXO"] = _junk(choices)
        case 4:
            reply["DXO"][choices.one_of(("kind", "data", "meta"))] = _junk(choices)
        case 5:
            reply["DXO"]["meta"][choices.one_of((REFUSED, ROUND, STEP))] = _junk(choices)
        case _:
            del reply[choices.one_of(list(reply))]
    return reply


@cache
def honest_bytes() -> tuple[bytes, ...]:
    """Return the bytes of the honest replies, in the order of `exchanges`."""
    return tuple(encoded(shareable(one, dict(one.honest))) for one in exchanges())


_NAMES = (b"numpy.ndarray", b"nvflare.apis.shareable.Shareable", b"nvflare.apis.dxo.DataKind", b"os.system")


def mutated_bytes(number: int, other: int, choices: Choices) -> bytes:
    """Return the bytes of a reply with flips, cuts, splices, other lengths, or another class's name in them."""
    data = honest_bytes()[number]
    if not choices.below(8):
        name = choices.one_of(_NAMES)
        data = data.replace(choices.one_of(_NAMES), choices.one_of((*_NAMES, name[:-1], name + b"x", b"")), 1)
    if not choices.below(4):
        return spoiled(data, choices, honest_bytes()[other])
    body = spoiled(data[HEADER_LEN:], choices, honest_bytes()[other][HEADER_LEN:])
    return HEADER_STRUCT.pack(MARKER_MAIN, 0, len(body)) + body  # as long as it says, so that the rest is looked at


# --- one message ---

#: What became of a message.
UNDECODABLE, REFUSED_HERE, MERGED, ENDED = "undecodable", "refused", "merged", "ended the job"

#: More memory than twice that of an honest message may be used by so many bytes.
SMALL = 1 << 16


class Attack:
    """Sends spoiled messages to the server; within `traced`."""

    def __init__(self) -> None:
        self.costs = [self._cost(number) for number in range(len(exchanges()))]
        self.worst = 0.0

    def _cost(self, number: int) -> tuple[int, int]:
        """Return the most bytes that it takes to decode an honest message, and to accept and merge it."""
        exchange, data = exchanges()[number], honest_bytes()[number]
        handle(exchange, reply_of(exchange, decoded(data)))  # what is made once is not counted
        received, decoding = peak_of(lambda: decoded(data))
        return decoding, peak_of(lambda: handle(exchange, reply_of(exchange, received)))[1]

    def __call__(self, data: bytes) -> str:
        """Send the message that these bytes decide on; return what became of it.

        Raises:
            AssertionError: it took more than twice the memory of an honest one.
            Hang: it took too long.
            Exception: anything that neither NVFlare's decoder raises, which the intake catches, nor is foreseen.
        """
        choices = Choices(data)
        number, other = choices.below(len(exchanges())), choices.below(len(exchanges()))
        exchange = exchanges()[number]
        with limited():
            if choices.below(2):
                received = mutated_reply(exchange, exchanges()[other], choices)
            else:
                raw = mutated_bytes(number, other, choices)
                try:
                    received, peak = peak_of(lambda: decoded(raw))
                except Exception:  # noqa: BLE001 - the intake catches whatever it is
                    return UNDECODABLE
                self._check(exchange, "decoding", peak, self.costs[number][0])
                if received is None:
                    return UNDECODABLE
            try:
                merged, peak = peak_of(lambda: handle(exchange, reply_of(exchange, received)))
            except JobFailed:
                return ENDED
        self._check(exchange, "merging", peak, self.costs[number][1])
        if merged is None:
            return REFUSED_HERE
        odd = [name for name, value in merged.items() if value.dtype.kind == "f" and np.isinf(value).any()]
        assert not odd, f"{exchange.name}: {odd} became infinite"
        return MERGED

    def _check(self, exchange: Exchange, what: str, peak: int, honest: int) -> None:
        self.worst = max(self.worst, (peak - SMALL) / honest)
        assert peak <= 2 * honest + SMALL, f"{exchange.name}: {what} took {peak} bytes, an honest message {honest}"
