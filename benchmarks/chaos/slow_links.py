"""The road from the sites to their server: a forwarder on the bridge, whose links can be slow, lose packets, or be reset.

TCP hides lost packets from programs: they see a pause, as long as it takes to send them again. So that is what is made here.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

#: Bytes that are forwarded at once.
_CHUNK = 16_384

#: Seconds until a lost packet is sent again.
_AGAIN = 1.0


@dataclass(frozen=True)
class Link:
    """How slow a link is: seconds of delay, bytes a second, and the share of what is sent that is lost first."""

    delay: float
    rate: float
    loss: float


class SlowLinks:
    """Forwards connections to a server, and knows the links by the addresses that they come from."""

    def __init__(self, address: str, port: int, server: str, seed: int = 0) -> None:
        self._here, self._server = (address, port), (server, port)
        self._links: dict[str, Link] = {}
        self._open: dict[str, set[asyncio.Transport]] = defaultdict(set)
        self._rng = np.random.default_rng(seed)
        self._loop = asyncio.new_event_loop()

    @contextmanager
    def running(self) -> Iterator["SlowLinks"]:
        """Give the links while they forward."""
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        listening = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accept, *self._here), self._loop)
        server = listening.result(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(server.close)  # else the next federation may find its port in use
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)

    def slow(self, address: str, link: Link) -> None:
        """Make the links of an address slow."""
        self._links[address] = link

    def mend(self, address: str) -> None:
        """Make the links of an address as fast as they were."""
        self._links.pop(address, None)

    def reset(self, address: str | None) -> None:
        """End the connections of an address, of all of them for None, with a reset."""

        def abort() -> None:
            for own in list(self._open) if address is None else [address]:
                for transport in list(self._open[own]):
                    transport.abort()

        self._loop.call_soon_threadsafe(abort)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str(writer.get_extra_info("peername")[0])
        try:
            onward = await asyncio.open_connection(*self._server)
        except OSError:
            writer.transport.abort()
            return
        transports = {writer.transport, onward[1].transport}
        self._open[address] |= transports
        await asyncio.gather(self._forward(reader, onward[1], address), self._forward(onward[0], writer, address))
        self._open[address] -= transports

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                for link in filter(None, (self._links.get(address), self._links.get(self._server[0]))):
                    lost = self._rng.random() < link.loss
                    await asyncio.sleep(link.delay + len(data) / link.rate + _AGAIN * lost)
                writer.write(data)
                await writer.drain()
        writer.close()
