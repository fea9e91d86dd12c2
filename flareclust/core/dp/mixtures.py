"""Expectation maximisation on noisy sums: what a server makes of them. Nothing here sees a row.

Sums come in a component's standard deviations, which the server knows. So the next covariance is found as a change of the
present one, C in L C L' with its factor L, and noise is as large in directions in which the component is narrow as in others.

Source: Park, Foulds, Chaudhuri, Welling, DP-EM: Differentially Private Expectation Maximization (2017); James, Stein, Estimation
with Quadratic Loss (1961).
"""

import math

import numpy as np

from flareclust._foundation.typing import FloatArray
from flareclust.core.dp.box import Box
from flareclust.core.dp.lloyd import widest_radius
from flareclust.core.dp.mixture_sums import COUNT, SQUARE, NoisySums, reach_of
from flareclust.core.dp.sums import UNIT
from flareclust.core.mixtures import Covariance, Mixture, unpacked
from flareclust.core.runtime import one_thread

#: Components of fewer rows than that many standard deviations of their own noise stay as they are.
_SURE = 2.0

#: An iteration makes a variance in any direction that many times smaller at most: noise can make it negative.
_LEAST = 0.2

#: By how much a variance is wrong at the start, and by how much an iteration changes what it should be, in parts of it.
_ERROR, _CHANGE = 0.3, 0.1


def started(centroids: FloatArray, radii: FloatArray, rows: FloatArray, covariance: Covariance) -> Mixture:
    """Return the first mixture, of round components, from clusters with these centroids (k, d), radii and noisy rows (k,)."""
    (k, d), counted = centroids.shape, np.maximum(rows, 1)
    if covariance == "tied":
        radii = np.full(k, np.sqrt((counted * radii**2).sum() / counted.sum()))
    deviations = np.repeat(radii[:, None] / math.sqrt(d), d, axis=1)
    factors = deviations if covariance in ("diag", "spherical") else deviations[:, :, None] * np.eye(d)
    return Mixture(counted / counted.sum(), centroids, factors)


def next_mixture(
    before: Mixture, sums: NoisySums, noise: float, covariance: Covariance, done: int, box: Box
) -> Mixture:
    """Return the mixture after one noisy iteration.

    Covariances are positive: noise that would make one 0 or negative is cut off at a part of the present one, and no standard
    deviation is less than a hundredth of the radius that a cluster has at most.

    Args:
        before: the mixture that the sums are about.
        sums: noisy, in total over the sites.
        noise: standard deviation of the noise of the shifts.
        covariance: the type of covariances.
        done: iterations before this one.
        box: where means can be.
    """
    k, d = before.means.shape
    sure = sums.rows > max(_SURE * noise * UNIT / COUNT, 1)
    behind, counted = np.where(sure, sums.rows, 1), np.maximum(sums.rows, 1)
    moved = np.where(sure[:, None], reach_of(d) * sums.shifts / behind[:, None], 0)
    moved = np.stack([_shrunk(one, noise * reach_of(d) / rows) for one, rows in zip(moved, behind, strict=True)])
    ways = moved * before.factors if before.factors.ndim == 2 else np.einsum("kde,ke->kd", before.factors, moved)
    goals = _covariances(sums, moved, np.where(sure, behind, 0), covariance)
    steps = _steps(_variance_noise(noise, "full", d) / behind, done)
    weights = before.weights + steps * (counted / counted.sum() - before.weights)
    deviations = _variance_noise(noise, covariance, d) / (_all(sums.rows) if covariance == "tied" else behind)
    least, factors = widest_radius(box, k) / 100 / math.sqrt(d), before.factors.copy()
    for c in np.flatnonzero(sure | (covariance == "tied" and sure.any())):
        step = float(_steps(deviations[[c]], done)[0])
        factors[c] = _factor(factors[c], goals[c], float(deviations[c]), step, least)
    return Mixture(weights / weights.sum(), box.clip(before.means + steps[:, None] * ways), factors)


def _steps(deviations: FloatArray, done: int) -> FloatArray:
    """Return how far of the way each component goes (k,), where noise gives its variances such deviations, in parts of them.

    The gain of Kalman's filter of a number that is wrong by `_ERROR` at the start, and that each iteration changes by `_CHANGE`:
    without noise all of the way, and with much noise less, so that the noise of the iterations averages out.
    """
    noise, error = deviations**2, np.full(len(deviations), _ERROR**2)
    for _ in range(done):
        error = error * noise / (error + noise) + _CHANGE**2
    return np.asarray(error / (error + noise))


def _variance_noise(noise: float, covariance: Covariance, d: int) -> float:
    """Return the standard deviation of the noise of a variance, in parts of the present one, times the rows behind it.

    One variance in all directions is the mean of d squares, whose sum has the noise of one.
    """
    return noise * UNIT / SQUARE * reach_of(d) ** 2 / _kept(d) / (d if covariance == "spherical" else 1)


def _all(rows: FloatArray) -> FloatArray:
    """Return for each component the rows of all of them (k,), noisy and at least 1."""
    return np.full(len(rows), max(float(rows.sum()), 1.0))


def blur(rows: FloatArray, noise: float, covariance: Covariance, d: int) -> FloatArray:
    """Return what noise alone adds to the variance along some axis, in parts of it, by component (k,) with so many rows each (k,).

    The largest eigenvalue of symmetric noise is the root of 2 d times the deviation of an entry of its diagonal (Wigner).
    """
    counted, axes = (
        _all(rows) if covariance == "tied" else np.maximum(rows, 1),
        2 * d if covariance in ("full", "tied") else 1,
    )
    return np.asarray(_variance_noise(noise, covariance, d) * math.sqrt(axes) / counted)


def radii_of(mixture: Mixture) -> FloatArray:
    """Return the root mean square distance of each component's rows from its mean (k,)."""
    return np.asarray(np.sqrt((mixture.factors**2).reshape(len(mixture.means), -1).sum(axis=1)))


def _kept(d: int) -> float:
    """Return which part of the variances of a normal distribution is left when rows are cut off at `reach_of`."""
    from scipy.special import gammainc  # takes long to import

    limit = reach_of(d) ** 2
    return float(gammainc(d / 2 + 1, limit / 2) + limit / d * (1 - gammainc(d / 2, limit / 2)))


def _covariances(sums: NoisySums, moved: FloatArray, behind: FloatArray, covariance: Covariance) -> FloatArray:
    """Return the covariances that EM would go on with, in standard deviations before: (k, d, d), or (k, d) of diagonal ones.

    `moved` (k, d) are the changes of the means, `behind` (k,) the rows of a component, 0 for those that stay as they are.
    """
    (k, d), scale, rows = moved.shape, reach_of(moved.shape[1]) ** 2 / _kept(moved.shape[1]), np.maximum(behind, 1)
    m2 = unpacked(scale * sums.m2, covariance, k, d)
    if covariance == "diag":
        return np.asarray(m2 / rows[:, None] - moved**2)
    if covariance == "spherical":
        return np.repeat(((m2 / rows - (moved**2).sum(axis=1)) / d)[:, None], d, axis=1)
    products = moved[:, :, None] * moved[:, None, :]
    if covariance == "full":
        return np.asarray(m2 / rows[:, None, None] - products)
    tied = m2 - (behind[:, None, None] * products).sum(axis=0)
    return np.asarray(tied / _all(sums.rows)[:, None, None])


def _factor(before: FloatArray, goal: FloatArray, deviation: float, step: float, least: float) -> FloatArray:
    """Return the factor (d, d), or standard deviations (d,), a step of the way to a covariance in units of the one before.

    The mean variance goes all of the step; what differs between directions only as far as it stands out of noise, whose standard
    deviation is that of a variance. `least` is the smallest standard deviation.
    """
    one = np.ones(len(goal)) if goal.ndim == 1 else np.eye(len(goal))
    scale = float((goal * one).sum()) / len(goal)
    change = (scale - 1) * one + _shrunk_matrix(goal - scale * one, deviation)
    if goal.ndim == 1:
        return np.asarray(np.maximum(before * np.sqrt(np.maximum(1 + step * change, _LEAST)), least))
    with one_thread():
        values, axes = np.linalg.eigh(one + step * change)
        wide = before @ axes * np.sqrt(np.maximum(values, _LEAST))
        values, axes = np.linalg.eigh(wide @ wide.T)
        values = np.maximum(values, max(least**2, 1e-12 * values.max()))  # or sums of no rows have no factor
        return np.asarray(np.linalg.cholesky((axes * values) @ axes.T), dtype=np.float64)


def _shrunk_matrix(values: FloatArray, deviation: float) -> FloatArray:
    """Return a symmetric matrix without trace, or its diagonal, shrunk as `_shrunk` does; off the diagonal noise has half the variance."""
    entries = values if values.ndim == 1 else values[np.tril_indices(len(values))]
    return values * _share(float((values**2).sum()), len(entries) - 1, deviation)


def _shrunk(values: FloatArray, deviation: float) -> FloatArray:
    """Return values (d,) shrunk toward 0 by as much as noise of this deviation alone moves them away from it (James and Stein)."""
    return values * _share(float((values**2).sum()), len(values), deviation)


def _share(squared: float, free: int, deviation: float) -> float:
    return max(1 - max(free - 2, 0) * deviation**2 / max(squared, 1e-300), 0.0)
