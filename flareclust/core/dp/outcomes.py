"""From noisy numbers of rows by outcome to numbers that rows can have: no negative ones, and sums near the noisy ones."""

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.outcomes import OutcomeForm


def possible_counts(noisy: FloatArray, form: OutcomeForm) -> IntArray:
    """Return integers of 0 and more (o, k, t) near noisy numbers of rows by kind, cluster, and time or value.

    Cutting each noisy number at 0 would add about 0.4 deviations of the noise for each cell without rows. Of times, the sums up to
    each time are the non-decreasing ones nearest to the noisy sums, so that noise of neighbouring cells cancels; of values, the
    numbers are the nearest with the noisy total. Both are post-processing, which costs no privacy.
    """
    fit = _rising if form.kind == "time" else _same_total
    return np.array([[fit(own) for own in kind] for kind in noisy])


def _rising(noisy: FloatArray) -> IntArray:
    """Return numbers (t,) whose sums up to each place do not decrease; those of few terms, with less noise, weigh more."""
    from sklearn.isotonic import isotonic_regression

    fitted = isotonic_regression(np.cumsum(noisy), sample_weight=1 / np.arange(1, len(noisy) + 1), y_min=0.0)
    return np.asarray(np.diff(np.rint(fitted).astype(np.int64), prepend=0))


def _same_total(noisy: FloatArray) -> IntArray:
    """Return the numbers (t,) of 0 and more that are nearest to the noisy ones and have their total, rounded."""
    total, falling = max(float(noisy.sum()), 0.0), np.sort(noisy)[::-1]
    beyond = (np.cumsum(falling) - total) / np.arange(1, len(noisy) + 1)
    cut = beyond[np.flatnonzero(falling > beyond)[-1]] if (falling > beyond).any() else falling[0]
    sums = np.rint(np.cumsum(np.maximum(noisy - cut, 0.0))).astype(np.int64)  # so that rounding moves no total
    return np.asarray(np.diff(sums, prepend=0))
