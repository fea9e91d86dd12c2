"""Spoiled messages one after the other, and what became of each."""

import numpy as np

from flareclust._foundation.errors import JobFailed
from tests.fuzz.choices import Choices
from tests.fuzz.messages import Exchange, decoded, exchanges, handle, honest_bytes, reply_of
from tests.fuzz.spoiled_messages import mutated_bytes, mutated_reply
from tests.fuzz.watch import limited, peak_of

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
            Exception: anything that neither NVFlare's decoder raises, which the server's adapter catches, nor is foreseen.
        """
        choices = Choices(data)
        number, other = choices.less_than(len(exchanges())), choices.less_than(len(exchanges()))
        exchange = exchanges()[number]
        with limited():
            if choices.less_than(2):
                received = mutated_reply(exchange, exchanges()[other], choices)
            else:
                raw = mutated_bytes(number, other, choices)
                try:
                    received, peak = peak_of(lambda: decoded(raw))
                except Exception:  # noqa: BLE001 - the server's adapter catches whatever it is
                    return UNDECODABLE
                self._check(exchange, "decoding", peak, self.costs[number][0])
                if received is None:
                    return UNDECODABLE
            try:
                merged, peak = peak_of(lambda: handle(exchange, reply_of(exchange, received)))
                if peak > self._bound(self.costs[number][1]):  # again: what is made once is not counted
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
        assert peak <= self._bound(honest), f"{exchange.name}: {what} took {peak} bytes, an honest message {honest}"

    @staticmethod
    def _bound(honest: int) -> int:
        return 2 * honest + SMALL
