"""Linear evaluation, the server's side: steps of a logistic regression from the sites' sums."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import entries, state_in
from flareclust.core.logistic import improved

_PREFIX = "linear_"


class State(NamedTuple):
    """Where the regression stands; its arrays are part of the server's record.

    Attributes:
        coefficients: where the next gradient is needed (C, f).
        before: after the last step (C, f).
        moments: second moments of the features (f, f).
        step: number of steps.
    """

    coefficients: FloatArray
    before: FloatArray
    moments: FloatArray
    step: int

    @property
    def arrays(self) -> Message:
        """Return the state as entries of a record."""
        return entries(_PREFIX, self)

    @classmethod
    def of(cls, record: Message) -> "State":
        """Return the state in a record."""
        return state_in(_PREFIX, cls, record)


def without_state(record: Message) -> Message:
    """Return a record without the state of the regression."""
    own = {_PREFIX + name for name in State._fields}
    return {name: value for name, value in record.items() if name not in own}


def begun(classes: int, replies: Sequence[Message]) -> State:
    """Return the state after the second moments; raise JobFailed where they are those of no rows."""
    moments = np.sum([reply["moments"] for reply in replies], axis=0)
    try:
        np.linalg.cholesky(moments + 1e-9 * np.trace(moments) * np.eye(len(moments)))
    except np.linalg.LinAlgError:
        raise JobFailed("linear evaluation: the sites' second moments are not those of any rows") from None
    start = np.zeros((classes, len(moments)))
    return State(start, start, moments, 0)


def advanced(state: State, replies: Sequence[Message]) -> State:
    """Return the state after the gradients."""
    gradient = np.sum([reply["gradient"] for reply in replies], axis=0)
    after, ahead = improved(state.coefficients, state.before, gradient, state.moments, state.step)
    return State(ahead, after, state.moments, state.step + 1)


def accuracy(replies: Sequence[Message]) -> float | None:
    """Return the share of the rows held out that are in their class; None for no rows."""
    tested = sum(int(reply["tested"]) for reply in replies)
    return sum(int(reply["correct"]) for reply in replies) / tested if tested else None
