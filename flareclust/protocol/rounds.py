"""The state of a federation between two exchanges, at its server."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flareclust._foundation.typing import Message
from flareclust.protocol.task import StepName


@dataclass(frozen=True)
class Round:
    """The state of a federation between two exchanges.

    Attributes:
        task: what is sent to the sites next, with the step below. When `done`, the result: `centroids` (k, d) and whatever the executor's
            `labels` needs beside them.
        done: no further clustering round is needed.
        diagnostics: plain numbers about this round, for logs and metrics.
        record: arrays that stay on the server and go into result.npz, e.g. the centroids as they were received.
        step: what the sites are asked to do next: `CLUSTER`, or one of the algorithm's `steps`.
        index: number of rounds merged so far; the description of columns is none.
        sites: who is asked, of the sites that take part; None for all of them.
    """

    task: Message = field(default_factory=dict)
    done: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    record: Message = field(default_factory=dict)
    step: str = StepName.CLUSTER
    index: int = 0
    sites: tuple[str, ...] | None = None
