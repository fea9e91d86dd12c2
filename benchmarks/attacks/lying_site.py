"""A site that lies in numbers, with an honest server: it wants rows of the others from the centroids that are broadcast.

It says that it has a billion rows at the places where it wants the centroids to be, and they are there in the next round.
Then it says that it has one row, twice, and the two broadcasts disclose the sum and the number of the other site's rows.
"""

import numpy as np

from benchmarks.attacks.server import borders
from benchmarks.attacks.victim import Victim
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.lloyd import LloydAggregator
from flareclust.federation.refinement import UPDATE
from flareclust.federation.server import ServerJob
from flareclust.protocol.replies import SiteReply, accept

_MANY = 10**9


class LyingSite:
    """One of two sites of a job of Lloyd's algorithm, which goes on for as many rounds as it likes.

    Args:
        victim: the other site.
        d: number of columns.
    """

    def __init__(self, victim: Victim, d: int) -> None:
        self.victim, self.d = victim, d
        self.server = ServerJob(LloydAggregator(2, 0, rounds=10_000, tol=0.0, start=[[0.0] * d, [1.0] * d]))
        self.now = self.server.first()
        self.rounds = 0

    def ask(self, step: str, arrays: Message) -> Message | None:
        """Return the groups of the victim's rows next to centroids of the site's own choice, as an update has them."""
        wanted = arrays["centroids"]
        if len(wanted) == 1:  # all rows are on one side of a border far away
            wanted = np.vstack([wanted, np.abs(wanted) * 1e3 + 1e9])
        size = 1.0 + np.abs(wanted).max()
        heard = []
        for offset in (0.0, size):
            at = self._broadcast(wanted, _MANY)
            if at is None:
                return None
            lie = at + offset
            after = self._broadcast(lie, 1)
            if after is None:
                return None
            heard.append((lie, after))
        (one, first), (two, second) = heard
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.rint(np.median((two - one) / (second - first), axis=1) - 1)
        present = np.flatnonzero(np.isfinite(n) & (n > 0))
        sums = first[present] * (n[present, None] + 1) - one[present]
        return {
            "centroids": sums / n[present, None],
            "counts": n[present].astype(np.int64),
            "cluster": present[: len(arrays["centroids"])] if len(arrays["centroids"]) == 1 else present,
        }

    def _broadcast(self, lie: FloatArray, rows: int) -> FloatArray | None:
        """Return the centroids after a round in which the site says that it has so many rows at these places."""
        schema = self.server.schema(UPDATE)
        own = {"centroids": lie, "counts": np.full(2, rows), "cluster": np.arange(2), "inertia": np.array(0.0)}
        reply = self.victim.ask(UPDATE, self.now.sent)
        answers = {
            "lying site": SiteReply(schema.pack(own)),
            "victim": SiteReply(reply or {}, None if reply else "refused"),
        }
        replies, _, _ = accept(schema, answers, ["lying site", "victim"], {"K": 2})
        self.rounds += 1
        if "lying site" not in replies:
            return None
        self.now = self.server.advance(self.now, replies)
        found: FloatArray = self.now.task["centroids"]
        return found


def lies(victim: Victim, d: int, exchanges: int) -> tuple[list[FloatArray], int]:
    """Claim rows of the other site from what the server broadcasts; return the number of rounds as well."""
    liar = LyingSite(victim, d)
    return borders(liar.ask, d, exchanges), liar.rounds
