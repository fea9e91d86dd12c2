"""What the paper on distributed k-means++ proves: which populations have a seed, and the bounds of Lemma 1 and Theorem 1.

Source: Armacki, Kar, "Toward Understanding the Improved Robustness to Initialization in Distributed Clustering".
"""

from math import sqrt

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray
from flareclust.core.arrays import as_count
from flareclust.core.lloyd import labels_of


def covered(seeds: FloatArray, means: FloatArray) -> BoolArray:
    """Return which populations (K,) have a seed among seeds (c, d): Definition 3.

    A seed belongs to the population with the nearest of the means (K, d), which is its own wherever r > 2 R.
    """
    labels = labels_of(seeds, means)
    found: BoolArray = np.bincount(labels, minlength=len(means)) > 0
    return found


def uncovered_bound(k: int, r: float, R: float, D: float) -> float:
    """Return Lemma 1's bound on the probability that a population is not covered by one user's k seeds.

    (1 - (r^2 - 6 R^2) / (4 K (D + 2 R)^2))^K, for K populations with as many rows each. To the power m it bounds the
    probability that none of m users covers it.

    Raises:
        UserError: unless sqrt(6) R < r <= D and R >= 0 (Assumption 2).
    """
    k = as_count(k, "k")
    if not (0 <= sqrt(6) * R < r <= D < float("inf")):
        raise UserError(f"needs sqrt(6) R < r <= D (Assumption 2), got R={R:g}, r={r:g}, D={D:g}")
    return float((1 - (r**2 - 6 * R**2) / (4 * k * (D + 2 * R) ** 2)) ** k)


def mse_bound(k: int, m: int, r: float, R: float, D: float, variance: float, alpha: float = 1.0) -> float:
    """Return Theorem 1's bound on the mean squared distance of a population's mean to the nearest final centroid.

    variance + 2 K (R^2 + D^2) * uncovered_bound^m, with the population's own mean squared distance to its mean.

    `variance` is sigma_k^2, `alpha` what the server's clusterer needs to be exact.

    Raises:
        UserError: unless r >= 2 (alpha + 1) R as well, as the theorem requires, and 0 <= variance <= R^2.
    """
    m = as_count(m, "m")
    missed = uncovered_bound(k, r, R, D)
    if not (alpha >= 1 and r >= 2 * (alpha + 1) * R):
        raise UserError(f"needs alpha >= 1 and r >= 2 (alpha + 1) R, got alpha={alpha:g}, r={r:g}, R={R:g}")
    if not 0 <= variance <= R**2:
        raise UserError(f"variance must lie in 0..R^2, got {variance:g} with R={R:g}")
    return float(variance + 2 * k * (R**2 + D**2) * missed**m)
