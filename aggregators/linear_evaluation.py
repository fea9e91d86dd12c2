"""Linear evaluation, the server's side: steps of a logistic regression from the sites' sums."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.logistic import improved


class Regression(NamedTuple):
    """Where the regression stands."""

    coefficients: FloatArray  # where the next gradient is needed (C, f)
    before: FloatArray  # after the last step (C, f)
    moments: FloatArray  # second moments of the features (f, f)
    step: int  # number of steps


def begun(classes: int, replies: Sequence[Message]) -> Regression:
    """Return the regression after the second moments; raise JobFailed where they are those of no rows."""
    moments = np.sum([reply["moments"] for reply in replies], axis=0)
    try:
        np.linalg.cholesky(moments + 1e-9 * np.trace(moments) * np.eye(len(moments)))
    except np.linalg.LinAlgError:
        raise JobFailed("linear evaluation: the sites' second moments are not those of any rows") from None
    start = np.zeros((classes, len(moments)))
    return Regression(start, start, moments, 0)


def advanced(found: Regression, replies: Sequence[Message]) -> Regression:
    """Return the regression after the gradients."""
    gradient = np.sum([reply["gradient"] for reply in replies], axis=0)
    after, ahead = improved(found.coefficients, found.before, gradient, found.moments, found.step)
    return Regression(ahead, after, found.moments, found.step + 1)


def accuracy(replies: Sequence[Message]) -> float | None:
    """Return the share of the rows held out that are in their class; None for no rows."""
    tested = sum(int(reply["tested"]) for reply in replies)
    return sum(int(reply["correct"]) for reply in replies) / tested if tested else None
