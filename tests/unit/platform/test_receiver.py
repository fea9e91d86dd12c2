"""How the server takes replies off the wire, with NVFlare's own bytes and nothing that listens."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.decomposers import numpy_decomposers
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.streaming.stream_const import STREAM_CHANNEL, STREAM_ERROR_TOPIC, StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError, StreamError
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs import lobs
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.utils.fed_utils import nvflare_fobs_initialize

from flareclust._foundation.errors import BadMessage
from flareclust.federation.aggregator import unpack
from flareclust.platform.controller import ClusteringController
from flareclust.platform.receiver import MOST_BYTES, _bypassing_problem, _check_message, _ReplyAdapter
from flareclust.protocol.replies import SiteReply, accept
from flareclust.protocol.schema import Schema, counts
from flareclust.protocol.task import ROUND, STEP, StepName
from tests.examples import examples
from tests.memory import peak_of
from tests.patience import PATIENCE

SCHEMA = Schema(centroids="k d", counts=counts("k"))
GOOD = {"centroids": np.ones((2, 3)), "counts": np.array([5, 7])}


@pytest.fixture(autouse=True)
def decomposers() -> None:
    """As NVFlare's processes begin."""
    nvflare_fobs_initialize()


class Arrived:
    """What NVFlare gives to the receiver of a message: its headers, and its bytes as soon as they are there."""

    def __init__(self, payload: bytes | Exception, token: str = "secret") -> None:
        self.headers = {CellMessageHeaderKeys.TOKEN: token, StreamHeaderKey.PAYLOAD_ENCODING: "fobs"}
        self._payload = payload

    def result(self) -> list[bytes]:
        if isinstance(self._payload, Exception):
            raise self._payload
        return [self._payload]


def taken_in(arrived: Arrived, *, working: bool = True) -> list[CellMessage]:
    """Return what NVFlare is handed of a message."""
    handed: list[CellMessage] = []
    cell = MagicMock()
    cell.get_fobs_context.side_effect = lambda props: dict(props)
    fl_ctx = FLContext()
    engine = SimpleNamespace(get_clients=lambda: [Client("west", "secret")])
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True, sticky=False)
    fl_ctx.set_prop(FLContextKey.CURRENT_RUN, "job", private=False, sticky=False)
    receiver = _ReplyAdapter(cell, handed.append, fl_ctx, lambda site: ("cluster", f"of {site}") if working else None)
    receiver.call(arrived)
    return handed


def crafted(monkeypatch: pytest.MonkeyPatch, data: bytes) -> bytes:
    """Return a reply with these bytes in the place of an array's own."""
    monkeypatch.setattr(numpy_decomposers.NumpyArrayDecomposer, "native_decompose", lambda *args: data)
    return fobs.dumps(DXO(DataKind.WEIGHTS, data={"centroids": np.ones(1)}).to_shareable())


def header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_a_reply_that_can_be_read_is_handed_on_as_it_is():
    sent = DXO(DataKind.WEIGHTS, data=GOOD, meta={STEP: StepName.CLUSTER, ROUND: 0}).to_shareable()
    (message,) = taken_in(Arrived(fobs.dumps(sent)))
    arrays, problem = unpack(message.payload, (StepName.CLUSTER, 0))
    assert problem is None
    for name, value in GOOD.items():
        np.testing.assert_array_equal(arrays[name], value)
        assert arrays[name].flags.c_contiguous


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xc1 this is no message \xff", "was not decoded: the sections"),
        (b"", "was not decoded: the message ends too early"),
        (fobs.dumps([])[:-1] + b"\xc1", "cannot be decoded"),
        (fobs.dumps(["no", "shareable"]), "none of NVFlare's"),
        (BlobSizeError("too large"), f"more than {MOST_BYTES:,} bytes"),
        (StreamError("broken off"), "did not arrive as a whole"),
    ],
)
def test_in_the_place_of_what_cannot_be_read_comes_a_refusal_in_its_senders_name(payload, words):
    (message,) = taken_in(Arrived(payload))
    assert words in str(unpack(message.payload)[1])
    assert message.payload.get_cookie(FLContextKey.TASK_ID) == "of west"
    assert message.payload.get_peer_context().get_job_id() == "job"


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(9223372036854775807, 9)", "(-1,)", "('x',)", "(2147483648,)"])
def test_an_array_that_says_it_is_larger_than_what_came_is_not_decoded(shape, monkeypatch):
    (message,) = taken_in(Arrived(crafted(monkeypatch, header(shape))))
    assert "cannot be decoded" in str(unpack(message.payload)[1])


def test_an_archive_in_the_place_of_an_array_is_not_unpacked(monkeypatch, tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros((2**22, 4)))  # 128 MiB in 128 KiB
    sent = crafted(monkeypatch, (tmp_path / "bomb.npz").read_bytes())
    assert len(sent) < 2**20
    found: list[str | None] = []

    def receive() -> None:
        (message,) = taken_in(Arrived(sent))
        _, problems, _ = accept(SCHEMA, {"west": SiteReply(dict(from_shareable(message.payload).data))}, ["west"])
        found.append(problems["west"])

    assert peak_of(receive) < 2**22
    assert "missing ['counts']" in str(found[0])


def section(marker: int, body: bytes) -> bytes:
    return lobs.HEADER_STRUCT.pack(marker, 0, len(body)) + body


PACKABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=50,
)
LONG = st.sampled_from([0, 31, 32, 255, 256, 2**16]).map(
    lambda n: {"text": "x" * n, "bytes": b"x" * n, "list": [n] * (n // 8)}
)


@settings(max_examples=examples(60), deadline=None)
@given(PACKABLE | LONG, st.integers(1, 10**6))
def test_messages_are_measured_without_being_decoded(value, cut):
    packed = msgpack.packb(value)
    _check_message(section(lobs.MARKER_MAIN, packed))
    _check_message(section(lobs.MARKER_MAIN, packed) + section(lobs.MARKER_DATUM_BLOB, b"x" * 16 + packed))
    shorter = packed[: -(1 + cut % len(packed))]
    with pytest.raises(BadMessage, match="too early"):
        _check_message(section(lobs.MARKER_MAIN, shorter))


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd" + (2**26).to_bytes(4, "big") + b"\x80" * 2**20,
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 2**20,
        msgpack.packb([[0] * 5000, {str(i): i for i in range(3000)}]),
    ],
)
def test_a_message_of_millions_of_objects_is_not_decoded(body):
    with pytest.raises(BadMessage, match="more than 10000 objects"):
        _check_message(section(lobs.MARKER_MAIN, body))
    found: list[str | None] = []
    peak = peak_of(lambda: found.extend(unpack(taken_in(Arrived(section(lobs.MARKER_MAIN, body)))[0].payload)[1:]))
    assert "was not decoded: the message is made of more than 10000 objects" in str(found[0])
    assert peak < 2 * len(body) + 2**18


def test_no_message_leaves_a_file_at_the_server():
    body = section(lobs.MARKER_MAIN, b"\xc0") + section(lobs.MARKER_DATUM_FILE, b"x" * 17)
    with pytest.raises(BadMessage, match="sections"):
        _check_message(body)


@pytest.mark.parametrize("arrived", [Arrived(b"", token="nobody's"), Arrived(BlobSizeError("too large"), token="")])
def test_what_a_stranger_sends_is_dropped(arrived, caplog):
    assert taken_in(arrived) == []
    assert "nobody is waiting for" in caplog.text


def test_a_site_that_has_answered_cannot_be_refused_for_a_second_message():
    assert taken_in(Arrived(b""), working=False) == []


def test_the_servers_kit_says_how_large_a_reply_may_be(tmp_path: Path):
    code = (
        "import sys\n"
        "from nvflare.fuel.utils.config_service import ConfigService\n"
        "from flareclust.platform.receiver import _most_bytes\n"
        "ConfigService.initialize({}, [sys.argv[1]])\n"
        "print(_most_bytes())\n"
    )
    reported = []
    for said in ({}, {"streaming_max_blob_size": 1000}):
        (tmp_path / "local").mkdir(exist_ok=True)
        (tmp_path / "local" / "comm_config.json").write_text(json.dumps(said))
        command = [sys.executable, "-c", code, str(tmp_path)]
        reported.append(
            int(subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout)
        )
    assert reported == [MOST_BYTES, 1000]


def test_a_site_may_be_working_on_one_task_only():
    controller = ClusteringController("feca")
    assert controller._open_task("west") is None
    task = SimpleNamespace(name="cluster", completion_status=None, client_tasks=[])
    for site, received in (("north", None), ("west", 17.0), ("west", None)):
        given = SimpleNamespace(
            task=task, client=Client(site, ""), id=f"{site} {received}", result_received_time=received
        )
        task.client_tasks.append(given)
    controller._task = task
    assert controller._open_task("west") == ("cluster", "west None")
    assert controller._open_task("south") is None
    task.completion_status = "done"
    assert controller._open_task("west") is None


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ((MessageHeaderKey, "server_command", "submit_update"), "'north' sent a reply past the stream"),
        ((StreamHeaderKey, "server_command", "submit_update"), None),
        ((MessageHeaderKey, "server_command", "get_task"), None),
        ((MessageHeaderKey, "aux_communication", "fed.event"), "'north' sent an event"),
        ((StreamHeaderKey, "aux_communication", "fed.event"), "'north' sent an event"),
        ((StreamHeaderKey, "aux_communication", "__sync_runner__"), None),
    ],
)
def test_replies_come_by_the_stream_and_events_not_at_all(headers, problem):
    of, channel, topic = headers
    asked = {MessageHeaderKey.MSG_TYPE: MessageType.REQ, MessageHeaderKey.ORIGIN: "north"}
    assert _bypassing_problem(CellMessage({**asked, of.CHANNEL: channel, of.TOPIC: topic}, None)) == problem
    asked[MessageHeaderKey.MSG_TYPE] = MessageType.REPLY
    assert _bypassing_problem(CellMessage({**asked, of.CHANNEL: channel, of.TOPIC: topic}, None)) is None


def test_a_site_cannot_end_a_job_by_saying_that_a_message_is_too_large():
    asked = {MessageHeaderKey.MSG_TYPE: MessageType.REQ, MessageHeaderKey.ORIGIN: "north"}
    asked |= {MessageHeaderKey.CHANNEL: STREAM_CHANNEL, MessageHeaderKey.TOPIC: STREAM_ERROR_TOPIC}
    too_large = CellMessage({**asked, StreamHeaderKey.ERROR_TYPE: BlobSizeError.__name__}, None)
    assert (
        _bypassing_problem(too_large)
        == "'north' said that a message is too large for it, at which NVFlare ends the job"
    )
    assert _bypassing_problem(CellMessage({**asked, StreamHeaderKey.ERROR_TYPE: StreamError.__name__}, None)) is None
