"""Multinomial logistic regression from sums over rows, so that rows can stay where they are.

The sums of each step are a gradient (C, f) and a loss. The curvature of the loss is at most that of a quadratic which the
second moments of the features determine (Böhning 1992, "Multinomial logistic regression algorithm"), so a step needs no line
search; steps are accelerated as in FISTA (Beck and Teboulle 2009).
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.runtime import one_thread

#: Ridge, as a share of the mean second moment: what keeps constant features from being divided by zero.
_RIDGE = 1e-6


class _Sums(NamedTuple):
    """Sums over rows: of the gradient (C, f) of the log-likelihood, the loss, and how many rows are in their class."""

    gradient: FloatArray
    loss: float
    correct: int


def with_constant(features: FloatArray) -> FloatArray:
    """Return features (n, f) and a column of ones (n, f + 1)."""
    return np.column_stack([features, np.ones(len(features))])


def moments(features: FloatArray) -> FloatArray:
    """Return the sum of the outer products (f, f) of the rows (n, f)."""
    with one_thread():
        return np.asarray(features.T @ features)


def sums(features: FloatArray, labels: IntArray, coefficients: FloatArray) -> _Sums:
    """Return the sums over rows (n, f) of classes (n,) at coefficients (C, f)."""
    with one_thread():
        scores = features @ coefficients.T
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    total, rows = odds.sum(axis=1), np.arange(len(labels))
    loss, residual = np.log(total) - scores[rows, labels], -odds / total[:, None]
    residual[rows, labels] += 1.0
    with one_thread():
        gradient: FloatArray = residual.T @ features
    return _Sums(gradient, float(loss.sum()), int((scores.argmax(axis=1) == labels).sum()))


def improved(
    coefficients: FloatArray, before: FloatArray, gradient: FloatArray, moments: FloatArray, step: int
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients (C, f) after a step, numbered from 0, and where the next gradient is needed.

    `coefficients` are where the gradient (C, f) is, summed over all rows, and `before` those after the step before (C, f),
    or the start; `moments` is the sum of the rows' outer products (f, f).
    """
    ridge = _RIDGE * np.trace(moments) / len(moments)
    bound = cho_factor(moments / 2 + ridge * np.eye(len(moments)))
    after: FloatArray = coefficients + cho_solve(bound, (gradient - ridge * coefficients).T).T
    momentum = step / (step + 3)
    return after, after + momentum * (after - before)
