"""Ways to spoil a message: its arrays and what is around them, or the bytes that NVFlare carries."""

from typing import Any

import numpy as np
from nvflare.fuel.utils.fobs.lobs import HEADER_LEN, HEADER_STRUCT, MARKER_MAIN

from flareclust._foundation.typing import Message
from flareclust.protocol.schema import SECONDS
from flareclust.protocol.task import REFUSED, ROUND, STEP
from tests.fuzz.choices import Choices, spoiled
from tests.fuzz.messages import Exchange, honest_bytes, shareable

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
    start = choices.less_than(array.size)
    array.reshape(-1)[start : start + choices.one_of((1, 1, 2, array.size))] = special
    return array if choices.less_than(4) else np.broadcast_to(array.reshape(-1)[start], array.shape).copy()


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
    match choices.less_than(6):
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
    for _ in range(1 + choices.less_than(3)):
        names = list(out)
        if not names:
            break
        name = choices.one_of(names)
        ways = (_value, _value, _value, _shape, _layout, _dtype)
        match choices.less_than(10):
            case 0:
                del out[name]
            case 1:
                out[choices.one_of(_KEYS)] = out[name] if choices.less_than(2) else _junk(choices)
            case 2:
                out[name] = _junk(choices)
            case 3:
                out[name] = other[choices.one_of(list(other))]
            case 4:
                out[SECONDS] = _junk(choices) if choices.less_than(2) else np.array(choices.one_of(_REALS))
            case _ if isinstance(out[name], np.ndarray) and out[name].dtype.kind in "fib":
                out[name] = choices.one_of(ways)(out[name], choices)
    return out


def mutated_reply(exchange: Exchange, other: Exchange, choices: Choices) -> Any:
    """Return the spoiled reply as NVFlare would hand it over, if its bytes could be anything that FOBS can hold."""
    if choices.less_than(8):
        return shareable(exchange, mutated(exchange.honest, other.honest, choices))
    reply = shareable(exchange, dict(exchange.honest))
    match choices.less_than(7):
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


_NAMES = (b"numpy.ndarray", b"nvflare.apis.shareable.Shareable", b"nvflare.apis.dxo.DataKind", b"os.system")


def mutated_bytes(number: int, other: int, choices: Choices) -> bytes:
    """Return the bytes of a reply with flips, cuts, splices, other lengths, or another class's name in them."""
    data = honest_bytes()[number]
    if not choices.less_than(8):
        name = choices.one_of(_NAMES)
        data = data.replace(choices.one_of(_NAMES), choices.one_of((*_NAMES, name[:-1], name + b"x", b"")), 1)
    if not choices.less_than(4):
        return spoiled(data, choices, honest_bytes()[other])
    body = spoiled(data[HEADER_LEN:], choices, honest_bytes()[other][HEADER_LEN:])
    return HEADER_STRUCT.pack(MARKER_MAIN, 0, len(body)) + body  # as long as it says, so that the rest is looked at
