"""Sums of an expectation step with bounded sensitivity, as integers, and their values after the noise. Nothing here draws noise.

As in `flareclust.core.dp.sums`, what a row contributes depends on the row and on a public mixture only, is an integer before it
is added, and has a length of at most what is stated.

Sensitivity. Of a row x, component c has the responsibility r_c, and z_c is the row's distance from the component's mean in its
standard deviations, cut off at `reach`: u_c = z_c / max(reach, |z_c|), so |u_c| <= 1. To the sums of component c the row adds r_c
times the vector v_c of COUNT, UNIT u_c and SQUARE u_c u_c'. Of the symmetric matrix these are the lower triangle, with the
products of two columns times the root of two, so its length is that of the matrix, |u_c|^2 <= 1. Hence
|v_c|^2 <= COUNT^2 + UNIT^2 + SQUARE^2 = s^2. Responsibilities are at least 0 and add up to 1, so what a row adds to all components
has the squared length sum of r_c^2 |v_c|^2 <= s^2 sum of r_c = s^2, with equality for a row that is of one component only, at
`reach` or beyond. Of diagonal covariances the squares of u_c take the place of the matrix, which are no longer; of one variance
in all directions their sum, |u_c|^2. Of one covariance of all components it is the sum of r_c u_c u_c' over these, by the triangle
inequality of length 1 at most.
"""

import math
from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray
from flareclust.core import mixtures
from flareclust.core.dp.box import Box
from flareclust.core.dp.sums import UNIT, pieces_until
from flareclust.core.mixtures import Covariance, Mixture
from flareclust.core.runtime import kernel

#: Integers per 1 of a responsibility, and of the squares and products; UNIT of the distances. The squares are what is noisiest.
COUNT, SQUARE = UNIT // 2, 2 * UNIT

#: Keeps rounding errors from making a contribution longer than is stated.
_WITHIN = 1 - 1e-9

_ROOT_OF_TWO = math.sqrt(2.0)


class NoisySums(NamedTuple):
    """Sums of an expectation step, in units of a component's standard deviations times `reach_of`.

    Attributes:
        rows: sums of responsibilities (k,).
        shifts: of these times the rows' distances from the mean (k, d), at most 1 long.
        m2: of these times the products of the distances, one axis (t,) as `flareclust.core.mixtures.packed` makes it. As sent, those of two
            columns are the root of two times as large.
    """

    rows: FloatArray
    shifts: FloatArray
    m2: FloatArray


def reach_of(d: int) -> float:
    """Return at how many standard deviations of a component rows are cut off: about five in six of its own are within."""
    return math.sqrt(d + math.sqrt(2 * d))


def mixture_sensitivity() -> float:
    """Return the L2 sensitivity of `expectation_sums`, the s of the module's docstring."""
    return math.sqrt(COUNT**2 + UNIT**2 + SQUARE**2)


def expectation_sums(
    data: FloatArray, own: Box, mixture: Mixture, covariance: Covariance, aborted: AbortCheck
) -> IntArray:
    """Return what `NoisySums` holds of the rows (n, d), in integers, as one axis (k + k d + t,).

    A row changes them by at most `mixture_sensitivity`. Values are clipped at the site's `own` bounds. A row with no
    density anywhere, as no number is large enough for its distance, adds nothing.

    Raises:
        BadMessage: the mixture is none.
        Aborted: `aborted` says so.
    """
    prepared, (k, d) = mixtures.prepare(mixture), mixture.means.shape
    full = len(prepared.inverse) > 0
    sums, m2 = np.zeros((k, 1 + d), np.int64), np.zeros((k, d * (d + 1) // 2 if full else d), np.int64)
    for rows in pieces_until(data, aborted, beside=k):
        values = own.clip(rows)
        shares, _ = mixtures.shares_in(values, prepared)
        units = float(COUNT), float(UNIT), float(SQUARE)
        _add(values, shares, prepared.means, prepared.inverse, prepared.diagonal, reach_of(d), units, sums, m2)
    if covariance == "tied":
        m2 = m2.sum(axis=0)
    elif covariance == "spherical":
        m2 = m2.sum(axis=1)
    return np.concatenate([sums[:, 0], sums[:, 1:].ravel(), m2.ravel()])


def in_units(sums: IntArray, k: int, d: int) -> NoisySums:
    """Return noisy `expectation_sums` as they are sent: divided by powers of two, so that totals of masked sums are those of integers.

    Rounded numbers would show in the last digits of a total whose number they are.
    """
    return NoisySums(sums[:k] / COUNT, sums[k : k * (1 + d)].reshape(k, d) / UNIT, sums[k * (1 + d) :] / SQUARE)


def received(sums: NoisySums, covariance: Covariance) -> NoisySums:
    """Return the totals over sites without the root of two in products of two columns."""
    if covariance not in ("full", "tied"):
        return sums
    row, column = np.tril_indices(sums.shifts.shape[1])
    factors = np.where(row == column, 1.0, _ROOT_OF_TWO)
    return sums._replace(m2=sums.m2 / np.tile(factors, len(sums.m2) // len(row)))


@kernel(error_model="numpy")
def _add(
    X: FloatArray,
    shares: FloatArray,
    means: FloatArray,
    inverse: FloatArray,
    diagonal: FloatArray,
    reach: float,
    units: tuple[float, float, float],
    sums: IntArray,
    m2: IntArray,
) -> None:
    """Add the integers of the rows (n, d) with their responsibilities (n, k) to sums (k, 1 + d) and m2 (k, t).

    `diagonal` (k, d) takes the place of `inverse` (k, d, d) where that has no components. `units` are `COUNT`, `UNIT` and `SQUARE`, which
    are given, as numba's cache of a kernel does not notice a change of a constant of another file.
    """
    count, unit, square = units
    (n, d), k = X.shape, means.shape[0]
    away, u = np.empty(d), np.empty(d)
    for i in range(n):
        total, proper = 0.0, True
        for c in range(k):
            total += shares[i, c]
            proper = proper and shares[i, c] >= 0.0
        if not (proper and total <= 1.0 + 1e-10):
            continue
        for c in range(k):
            weight = shares[i, c] * _WITHIN
            if weight * square < 1.0:  # all of its integers are 0
                continue
            squared = 0.0
            for j in range(d):
                away[j] = X[i, j] - means[c, j]
                u[j] = away[j] * diagonal[c, j]
                if inverse.shape[0] > 0:
                    u[j] = 0.0
                    for b in range(j + 1):
                        u[j] += inverse[c, j, b] * away[b]
                squared += u[j] * u[j]
            if not squared < math.inf:
                continue
            length = max(math.sqrt(squared), reach)
            sums[c, 0] += int(weight * count)
            for j in range(d):
                u[j] /= length
                sums[c, 1 + j] += int(weight * unit * u[j])
            t = 0
            for a in range(d):
                if inverse.shape[0] == 0:
                    m2[c, a] += int(weight * square * u[a] * u[a])
                    continue
                for b in range(a):
                    m2[c, t] += int(weight * square * _ROOT_OF_TWO * u[a] * u[b])
                    t += 1
                m2[c, t] += int(weight * square * u[a] * u[a])
                t += 1


def warm_up() -> None:
    """Compile the kernel, or load it from the cache on disk, so that processes started later find it there."""
    rows, shares = np.zeros((2, 1)), np.ones((2, 1))
    for inverse in (np.zeros((0, 1, 1)), np.ones((1, 1, 1))):
        _add(
            rows,
            shares,
            np.zeros((1, 1)),
            inverse,
            np.ones((1, 1)),
            1.0,
            (1.0, 1.0, 1.0),
            np.zeros((1, 2), np.int64),
            np.zeros((1, 1), np.int64),
        )
