"""What answers of NVFlare's processes hold: requests to servers, sites, relays and users, and the files that come back.

The answers are looked at as they come off the wire, so nothing that the process of the opponent refuses is missed.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.net_agent import _CHANNEL, _TOPIC_ECHO
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.utils.fobs import fobs
from nvflare.fuel.utils.fobs.datum import Datum
from nvflare.fuel.utils.fobs.decomposer import DataClassDecomposer
from nvflare.private.defs import CellChannel
from nvflare.private.stream_runner import TOPIC_STREAM_REQUEST

#: Seconds to wait for an answer.
PATIENCE = 3.0

#: So many bytes of a file tell it from others.
ENOUGH = 1000

#: Auxiliary topics that are asked: one that nobody has registered, and one that all have.
TOPICS = ("status", TOPIC_STREAM_REQUEST)


def named(path: str) -> dict[str, Any]:
    """Return what stands for a file where a message is decoded."""
    about = {"datum_id": str(uuid.uuid4()), "datum_type": 3, "dot": 0, "value": path}
    return {
        fobs.FOBS_TYPE: f"{Datum.__module__}.{Datum.__name__}",
        fobs.FOBS_DATA: {"data": about},
        fobs.FOBS_DECOMPOSER: f"{DataClassDecomposer.__module__}.{DataClassDecomposer.__name__}",
    }


def request(path: str, sender: str) -> Shareable:
    """Return a request whose answer would hold the file."""
    asked = Shareable()
    asked.add_cookie("file", named(path))
    asked.set_peer_props({ReservedKey.IDENTITY_NAME: sender})
    return asked


@contextmanager
def overheard(cell: Any) -> Iterator[list[bytes]]:
    """Give the list of all that a cell receives from now on, as it comes off the wire."""
    pieces: list[bytes] = []

    def keep(message: Any) -> None:
        payload = message.payload
        for piece in payload if isinstance(payload, list) else [payload]:
            if isinstance(piece, bytes | bytearray | memoryview):
                pieces.append(bytes(piece))

    cell.core_cell.add_incoming_filter(channel="*", topic="*", cb=keep)
    yield pieces


def ask(cell: Any, target: str, path: str, sender: str) -> int:
    """Ask a process for a file in all ways; return how many requests that were."""
    for topic in TOPICS:
        message = new_cell_message({}, request(path, sender))
        cell.send_request(CellChannel.AUX_COMMUNICATION, topic, target, message, timeout=PATIENCE)
    cell.send_request(_CHANNEL, _TOPIC_ECHO, target, new_cell_message({}, named(path)), timeout=PATIENCE)
    return len(TOPICS) + 1


@contextmanager
def in_tasks(path: str) -> Iterator[None]:
    """Put a file's name into all tasks that this process sends meanwhile."""
    add = Shareable.add_cookie

    def add_cookie(shareable: Shareable, name: str, data: Any) -> None:
        add(shareable, name, data)
        add(shareable, "file", named(path))

    Shareable.add_cookie = add_cookie
    try:
        yield
    finally:
        Shareable.add_cookie = add


def came(pieces: list[bytes], secrets: Mapping[str, bytes]) -> list[str]:
    """Return the names of the files whose contents are among what was received."""
    text = b"".join(pieces)
    return [name for name, content in secrets.items() if content in text]
