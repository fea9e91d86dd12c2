"""Refining a solution from totals, the server's side: Lloyd updates, then attempts to split one cluster and join two.

1. The solution gets a number of Lloyd updates. Every solution that the sites were sent is judged by the mean squared
   distance of the rows that they reported, and the best of all is kept, whatever came last.
2. An attempt: up to four proposals (`flareclust.core.split_merge`) get three updates side by side; the best of them gets
   five more. While that lowers the mean squared distance by a ten-thousandth, and attempts are left, another one follows.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import Round
from flareclust.aggregators.lloyd_merge import lloyd_merge, rows_behind
from flareclust.aggregators.records import entries, state_in
from flareclust.core.split_merge import Totals, mean_square, proposals
from flareclust.evaluation.scores import unstack
from flareclust.protocol.replies import gathered

#: Updates of the proposals side by side, and of the best of them afterwards.
SIDE_BY_SIDE, AFTERWARDS = 3, 5

#: An attempt that lowers the mean squared distance by less is the last.
_WORTH = 1e-4

_PREFIX = "refined_"


class State(NamedTuple):
    """Where a refinement stands; its arrays are part of the server's record while it lasts.

    Attributes:
        updates: left before the solutions are compared.
        attempts: left.
        compares: whether the solutions under way are the proposals of an attempt.
        before: mean squared distance at the start of the attempt.
        best: the same of the best solution so far.
        centroids: that solution (k, d).
        counts, means, m2: its reported totals, as in `Totals`.
    """

    updates: int
    attempts: int
    compares: bool
    before: float
    best: float
    centroids: FloatArray
    counts: FloatArray
    means: FloatArray
    m2: FloatArray

    @property
    def arrays(self) -> Message:
        """Return the state as entries of a record."""
        return entries(_PREFIX, self)

    @property
    def diagnostics(self) -> dict[str, float]:
        """Return plain numbers about where it stands."""
        return {"mean_square": self.best, "attempts_left": float(self.attempts)} if self.best < np.inf else {}

    @classmethod
    def of(cls, record: Message) -> "State":
        """Return the state in a record."""
        return state_in(_PREFIX, cls, record)

    @classmethod
    def is_in(cls, record: Message) -> bool:
        """Return whether a record has a state."""
        return _PREFIX + "best" in record


def begun(centroids: FloatArray, updates: int, attempts: int) -> State:
    """Return the state at the start, of a solution (k, d) about which nothing is known yet."""
    nothing = np.zeros(0)
    return State(updates, attempts, False, np.inf, np.inf, centroids, nothing, centroids, centroids)


def without_state(record: Message) -> Message:
    """Return a record without the state of a refinement that has ended."""
    return {name: value for name, value in record.items() if not name.startswith(_PREFIX)}


def interrupted(round_: Round, centroids: FloatArray) -> Round:
    """Return a round of a refinement as a finished one, with the best centroids (k, d) so far."""
    return replace(round_, task={"centroids": centroids}, done=True, record=without_state(round_.record))


def totals(solutions: Sequence[FloatArray], replies: Sequence[Message]) -> list[Totals]:
    """Return for each solution (k, d) what the replies to `SPREAD` make together."""
    found, first, (sent, _) = [], 0, gathered(replies)
    for solution in solutions:
        own = _of_solution(sent, first, first + len(solution))
        means = lloyd_merge(solution, [own])
        m2 = np.zeros_like(solution)
        deviations = (own["centroids"] - means[own["cluster"]]) ** 2
        np.add.at(m2, own["cluster"], own["m2"] + own["counts"][:, None] * deviations)
        found.append(Totals(rows_behind(len(solution), [own]), means, m2))
        first += len(solution)
    return found


def advanced(state: State, task: Message, replies: Sequence[Message]) -> tuple[State, list[FloatArray]]:
    """Return the state after the replies to a task, and the solutions to ask about next; none at the end."""
    solutions = unstack(task)
    known = totals(solutions, replies)
    values = [mean_square(solution, total) for solution, total in zip(solutions, known, strict=True)]
    at = int(np.argmin(values))
    if values[at] < state.best:
        state = state._replace(best=values[at], centroids=solutions[at], **known[at]._asdict())
    if state.updates > 0 and any(not np.array_equal(t.means, s) for s, t in zip(solutions, known, strict=True)):
        return state._replace(updates=state.updates - 1), [total.means for total in known]
    if state.compares:
        state = state._replace(updates=AFTERWARDS - 1, compares=False)
        return state, [known[at].means]
    worth = not state.before < np.inf or state.best < state.before * (1 - _WORTH)
    if not (state.attempts and worth and len(state.counts)):
        return state, []
    state = state._replace(updates=SIDE_BY_SIDE, attempts=state.attempts - 1, compares=True, before=state.best)
    return state, proposals(Totals(state.counts.astype(np.int64), state.means, state.m2))


def _of_solution(reply: Message, first: int, end: int) -> Message:
    own = (reply["cluster"] >= first) & (reply["cluster"] < end)
    return {name: value[own] for name, value in reply.items()} | {"cluster": reply["cluster"][own] - first}
