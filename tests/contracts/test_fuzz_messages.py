"""Whatever a site sends, the server refuses it by name or merges it: it raises nothing else, does not hang, and takes no
more than twice the memory of an honest message.
"""

import logging
import resource
import sys
from collections import Counter
from collections.abc import Iterator
from time import process_time

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvflare.fuel.utils.fobs.lobs import HEADER_STRUCT, MARKER_MAIN

from flareclust.protocol import registry
from tests.fuzz.attack import ENDED, MERGED, REFUSED_HERE, UNDECODABLE, Attack
from tests.fuzz.messages import decoded, exchanges, handle, honest_bytes, reply_of
from tests.fuzz.watch import traced

BYTES = 128
FEW = settings(max_examples=200, derandomize=True, deadline=None, database=None)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NVFlare logs every message that it cannot decode."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_honest_replies_of_every_algorithm_are_merged():
    names = {exchange.name.partition("/")[0] for exchange in exchanges()}
    assert names == {name for name, algorithm in registry.algorithms().items() if algorithm.federated}
    for exchange, data in zip(exchanges(), honest_bytes(), strict=True):
        reply = reply_of(exchange, decoded(data))
        assert reply.problem is None, exchange.name
        assert handle(exchange, reply) is not None, exchange.name


def test_spoiled_messages_are_refused_or_merged():
    honest_bytes()
    with traced():
        attack, became = Attack(), Counter()

        @FEW
        @given(st.binary(min_size=BYTES, max_size=BYTES))
        def send(data: bytes) -> None:
            became[attack(data)] += 1

        send()
    assert min(became[what] for what in (UNDECODABLE, REFUSED_HERE, MERGED)) > 10, became


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_spoiled_messages_are_refused_or_merged():
    rng, became, number = np.random.default_rng(0), Counter(), 100_000
    honest_bytes()
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time()
    with traced():
        attack = Attack()
        for _ in range(number):
            became[attack(rng.bytes(BYTES))] += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"\n{number} messages, {process_time() - started:.0f} s of processor time: {dict(became)}")
    print(f"most memory: {attack.worst:.2f} times that of an honest message; the process grew by {grown:.0f} MiB")
    assert min(became[what] for what in (UNDECODABLE, REFUSED_HERE, MERGED)) > number // 100, became
    assert became[ENDED] < number // 100, became
    assert grown < 100  # also of what NVFlare's decoder makes room for before it gives up


def _naming(type_name: object, decomposer: object, data: object) -> bytes:
    """Return bytes that ask the decoder for an object of a class, to be made by a decomposer."""
    body = msgpack.packb({"__fobs_type__": type_name, "__fobs_data__": data, "__fobs_dc__": decomposer})
    return HEADER_STRUCT.pack(MARKER_MAIN, 0, len(body)) + body


GENERIC = "nvflare.fuel.utils.fobs.decomposer.DataClassDecomposer"


@pytest.mark.parametrize("decomposer", [None, "", GENERIC, "sentinel.Thing", "builtins.eval", 3])
@pytest.mark.parametrize(
    "name", ["sentinel.Thing", "os.system", "subprocess.Popen", "builtins.eval", "eval", "sentinel"]
)
def test_decoding_imports_and_runs_nothing_that_the_bytes_name(tmp_path, monkeypatch, name, decomposer):
    touched = tmp_path / "touched"
    (tmp_path / "sentinel.py").write_text(f"open({str(touched)!r}, 'w').close()\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    honest_bytes()  # so that NVFlare's decomposers are there
    with pytest.raises((ValueError, TypeError)):
        decoded(_naming(name, decomposer, f"touch {touched}"))
    assert not touched.exists()
    assert "sentinel" not in sys.modules
