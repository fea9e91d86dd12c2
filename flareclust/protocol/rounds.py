"""The state of a federation between two exchanges, at its server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flareclust._foundation.typing import Message
from flareclust.protocol.columns import NO_FACTS, SAME, ColumnFacts, Columns
from flareclust.protocol.state import NO_STATE, State
from flareclust.protocol.task import StepName

_S_co = TypeVar("_S_co", bound=State, covariant=True)


@dataclass(frozen=True)
class Round(Generic[_S_co]):
    """The state of a federation between two exchanges.

    Attributes:
        task: what is sent to the sites next, with the step below. When `done`, the result: `centroids` (k, d) and whatever the executor's
            `labels` needs beside them.
        done: no further clustering round is needed.
        diagnostics: plain numbers about this round, for logs and metrics.
        state: what stays on the server.
        step: what the sites are asked to do next: `CLUSTER`, or one of the algorithm's `steps`.
        index: number of rounds merged so far; what comes before the rounds is none.
        sites: who is asked, of the sites that take part; None for all of them.
        columns: how rows are prepared, which goes with every task.
        facts: what is known of the sites' own columns.
    """

    task: Message = field(default_factory=dict)
    done: bool = False
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    state: _S_co = NO_STATE  # type: ignore[assignment]  # a class with fields of its own begins with one of its own
    step: str = StepName.CLUSTER
    index: int = 0
    sites: tuple[str, ...] | None = None
    columns: Columns = SAME
    facts: ColumnFacts = NO_FACTS

    @property
    def sent(self) -> Message:
        """Return all arrays that the sites are sent."""
        return {**self.task, **self.columns.sent()}
