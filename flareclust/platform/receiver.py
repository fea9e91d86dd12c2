"""How replies come off the wire: decoded within bounds, and one that cannot be read is the fault of the site that sent it.

NVFlare 2.9 decodes a reply before anybody else sees it. It ends the job of all sites where that fails, follows references
to arrays that the site keeps, of whatever size they turn out to be, and takes messages up to 4 GiB. `_ReplyAdapter` takes its
place for the replies of one job (docs/adr/0012-intake.md):

- A reply is one message with everything in it, of at most `most_bytes()`; a larger one is refused before it is received,
  and one of too many objects before it is decoded.
- References are refused, and nothing is fetched.
- In the place of a reply that cannot be used, the server goes on with a refusal in the name of the site that sent it.

What a message is made of is seen before it is decoded, since a small one can be made of many million objects: it is a main
section in msgpack and further ones of bytes that stand for large values. Sixty-four million empty tables are 64 MiB on the wire,
and 5 GiB and more than a minute of computing where they are decoded. Source of the codes:
https://github.com/msgpack/msgpack/blob/master/spec.md
"""

import logging
from collections.abc import Callable
from typing import Any

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import FLContextKey, ReservedKey, ServerCommandNames
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.widgets.fed_event import FED_EVENT_TOPIC

from flareclust._foundation.errors import BadMessage
from flareclust.platform._private import (
    DEFAULT_STREAMING_MAX_BLOB_SIZE,
    FQCN,
    STREAM_CHANNEL,
    STREAM_ERROR_TOPIC,
    Adapter,
    BlobHandler,
    BlobSizeError,
    Cell,
    CellChannel,
    CellMessageHeaderKeys,
    CommConfigurator,
    CoreCell,
    FOBSContextKey,
    MessageHeaderKey,
    MessageType,
    StreamError,
    StreamFuture,
    StreamHeaderKey,
    contains_lazy_download_ref,
    decode_payload,
    lobs,
    unprotected,
)
from flareclust.platform._private import CellMessage as Message
from flareclust.platform.peers import dropping, requests_of
from flareclust.protocol.task import REFUSED

#: More objects than NVFlare's headers, its context and any number of our arrays are.
_MOST_OBJECTS = 10_000

#: By code: bytes of the value that follows, for values of one size; an extension has one more for its type.
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_FIXED |= {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}

#: By code: bytes of the number that says how long what follows is, and what it counts besides: bytes or objects.
_BYTES = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_BYTES |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
_OBJECTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def _check_message(message: bytes) -> None:
    """Raise BadMessage unless the bytes are sections of a message with at most `_MOST_OBJECTS` objects and no files."""
    view, at = memoryview(message), 0
    while at < len(view) or not at:
        if at + lobs.HEADER_LEN > len(view):
            raise BadMessage("the message ends too early")
        marker, _, size = lobs.HEADER_STRUCT.unpack(view[at : at + lobs.HEADER_LEN])
        first, at = not at, at + lobs.HEADER_LEN
        if at + size > len(view) or first != (marker == lobs.MARKER_MAIN) or marker == lobs.MARKER_DATUM_FILE:
            raise BadMessage("the sections of the message are not those of a reply")
        if first:
            _count(view[at : at + size])
        at += size


def _count(body: memoryview) -> None:
    """Raise BadMessage if what is packed in these bytes is more than `_MOST_OBJECTS` objects, or ends too early."""
    at, seen, coming = 0, 0, 1
    while coming and at < len(body):
        code = body[at]
        at, seen, coming = at + 1, seen + 1, coming - 1
        if 0x80 <= code <= 0x8F:
            coming += 2 * (code & 0x0F)
        elif 0x90 <= code <= 0x9F:
            coming += code & 0x0F
        elif 0xA0 <= code <= 0xBF:
            at += code & 0x1F
        elif code in _BYTES:
            width, more = _BYTES[code]
            at += width + more + int.from_bytes(body[at : at + width], "big")
        elif code in _OBJECTS:
            width, each = _OBJECTS[code]
            coming += each * int.from_bytes(body[at : at + width], "big")
            at += width
        elif 0x80 <= code < 0xE0:
            at += _FIXED.get(code, 0)
        if seen + coming > _MOST_OBJECTS:
            raise BadMessage(f"the message is made of more than {_MOST_OBJECTS} objects")
    if coming or at > len(body):
        raise BadMessage("the message ends too early")


_log = logging.getLogger(__name__)

#: The largest reply that the server receives, where its kit does not say `streaming_max_blob_size`: 160 centroids of
#: 100,000 columns, or the weights of a ResNet-18 in float64.
MOST_BYTES = 128 * 2**20

#: The name and the id of the task that a site is working on, or None.
_OpenTask = Callable[[str], tuple[str, str] | None]

_REPLIES = (CellChannel.SERVER_COMMAND, ServerCommandNames.SUBMIT_UPDATE)
_STREAM_ERRORS = (STREAM_CHANNEL, STREAM_ERROR_TOPIC)
_EVENTS = (CellChannel.AUX_COMMUNICATION, FED_EVENT_TOPIC)


def _most_bytes() -> int:
    """Return the largest reply that the server receives: what its kit says in `local/comm_config.json`, or `MOST_BYTES`."""
    limit: int = CommConfigurator().get_streaming_max_blob_size()  # NVFlare's default where the kit says nothing
    return MOST_BYTES if limit == DEFAULT_STREAMING_MAX_BLOB_SIZE else limit


def install(fl_ctx: FLContext, open_task: _OpenTask) -> str | None:
    """Take in the replies of the running job; return why that could not be done, in words that follow the server's name."""
    try:
        core = CoreCell.ALL_CELLS.get(FQCN.join([FQCN.ROOT_SERVER, fl_ctx.get_job_id()]))
        cell = None if core is None else core.get_fobs_context().get(FOBSContextKey.CELL)
        found = None if core is None else core.req_reg.find(*_REPLIES)
        if not isinstance(cell, Cell) or found is None:
            raise LookupError("the job's cell receives no replies")
        handler = BlobHandler(_ReplyAdapter(cell, found.cb, fl_ctx, open_task).call)
        if not hasattr(handler, "max_blob_size"):
            raise AttributeError("no BlobHandler.max_blob_size")
        handler.max_blob_size = _most_bytes()
        core.add_incoming_filter(channel="*", topic="*", cb=dropping(_bypassing_problem))
        cell.byte_receiver.register_callback(*_REPLIES, handler.handle_blob_cb)
    except Exception as error:  # noqa: BLE001 - whatever of NVFlare is another thing now, NVFlare's receiver is in place
        return unprotected("keep the replies of sites within bounds", error)
    return None


def _bypassing_problem(message: Message) -> str | None:
    """Return why a message does not come to the job of this process; None where it does.

    A reply outside of NVFlare's streams is decoded before anyone looks at its size. An event that a site fires here, or its word
    that a message is too large for it, could end the job of all.
    """
    if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return None
    direct, streamed = requests_of(message)
    origin = ascii(message.get_header(MessageHeaderKey.ORIGIN))[:80]
    if direct == _STREAM_ERRORS and message.get_header(StreamHeaderKey.ERROR_TYPE) == BlobSizeError.__name__:
        return f"{origin} said that a message is too large for it, at which NVFlare ends the job"
    if direct == _REPLIES:
        return f"{origin} sent a reply past the stream"
    return f"{origin} sent an event" if _EVENTS in (direct, streamed) else None


class _ReplyAdapter(Adapter):
    """Receives the replies of one job in the place of NVFlare's own adapter, which calls `cb` with a message."""

    def __init__(self, cell: Cell, cb: Callable[[Message], Message], fl_ctx: FLContext, open_task: _OpenTask) -> None:
        super().__init__(cb, cell.core_cell.my_info, cell)
        self._engine, self._job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        self._open_task = open_task

    def call(self, future: StreamFuture, *args: Any, **kwargs: Any) -> None:
        """Wait for a message, decode it and hand it on, or a refusal in its place."""
        message = Message(dict(future.headers), None)
        problem = self._receive(future, message)
        channel, topic = _REPLIES
        message.set_header(MessageHeaderKey.CHANNEL, channel)
        message.set_header(MessageHeaderKey.TOPIC, topic)
        if problem is not None and not self._replace(message, problem):
            return
        answer = self.cb(message)
        headers = [message.get_header(key) for key in (StreamHeaderKey.STREAM_REQ_ID, MessageHeaderKey.REQ_ID)]
        secure = message.get_header(MessageHeaderKey.SECURE, False)
        self._send_response(answer, *headers, channel, topic, message.get_header(MessageHeaderKey.ORIGIN), secure)

    def _receive(self, future: StreamFuture, message: Message) -> str | None:
        """Fill in the message; return what is wrong with it in words that follow the site's name."""
        try:
            message.payload = b"".join(future.result())
            _check_message(message.payload)
            context = self.cell.get_fobs_context(props={FOBSContextKey.PASS_THROUGH: True})
            decode_payload(message, StreamHeaderKey.PAYLOAD_ENCODING, fobs_ctx=context)
            if not isinstance(message.payload, Shareable):
                return "sent a reply that is none of NVFlare's"
            if contains_lazy_download_ref(message.payload):
                return "sent references to arrays in the place of arrays"
        except BlobSizeError:
            return f"sent a reply of more than {_most_bytes():,} bytes, the server's streaming_max_blob_size"
        except StreamError:
            return "sent a reply that did not arrive as a whole"
        except BadMessage as error:
            return f"sent a reply that was not decoded: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a decoder raises, it is about bytes that the site chose
            return f"sent a reply that cannot be decoded ({type(error).__name__})"
        return None

    def _replace(self, message: Message, problem: str) -> bool:
        """Put a refusal in the place of what came; return False where nobody is waiting for a reply of its sender."""
        token = message.get_header(CellMessageHeaderKeys.TOKEN)
        site = next((str(client.name) for client in self._engine.get_clients() if client.token == token), None)
        task = None if site is None else self._open_task(site)
        if task is None:
            _log.warning("a message that nobody is waiting for was dropped: its sender %s", problem)
            return False
        peer = FLContext()
        peer.set_prop(FLContextKey.CURRENT_RUN, self._job, private=False, sticky=False)
        peer.set_prop(ReservedKey.IDENTITY_NAME, site, private=False, sticky=False)
        refusal = DXO(DataKind.WEIGHTS, data={}, meta={REFUSED: problem}).to_shareable()
        refusal.set_peer_context(peer)
        refusal.set_header(FLContextKey.TASK_NAME, task[0])
        refusal.add_cookie(FLContextKey.TASK_ID, task[1])
        message.payload = refusal
        return True
