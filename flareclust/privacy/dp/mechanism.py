"""Gaussian noise on integers, from OpenDP.

Everything that is to be noised is a sum over rows of contributions that were turned into integers first
(`flareclust.core.dp.sums`): such sums are exact, in whatever order they are taken, so that the sensitivity holds for
what the computer adds up and not only for real numbers. The noise is the discrete Gaussian of Canonne, Kamath and
Steinke (2020), drawn by OpenDP exactly and from the operating system's source of randomness. It follows no seed.

Source: Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Theorem 4 and Corollary 19;
Bun, Steinke, Concentrated Differential Privacy (2016), Proposition 1.6.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import IntArray

#: Sums beyond it could leave the range of 64 bits once the noise is added.
LARGEST_SUM = 2**61


def check_installed() -> None:
    """Raise Refusal, in words that say what to install, where OpenDP is missing."""
    _opendp()


def sigma(sensitivity: float, rho: float) -> float:
    """Return the standard deviation of the noise: (sensitivity^2 / (2 rho))^0.5, as a hint to what to expect.

    Args:
        sensitivity: most that a row changes all entries together, in L2 norm.
        rho: of zero-concentrated differential privacy.
    """
    return _positive("sensitivity", sensitivity) / math.sqrt(2 * _positive("rho", rho))


def gaussian(values: IntArray, sensitivity: float, rho: float) -> IntArray:
    """Return `values` (any shape) with noise that makes their release rho-zCDP, as OpenDP confirms.

    Args:
        values: integers below `LARGEST_SUM`.
        sensitivity: most that one row more or less changes all entries together, in L2 norm.
        rho: of zero-concentrated differential privacy.

    Raises:
        UserError: the numbers are none of these.
        Refusal: OpenDP is missing.
    """
    _check_sums(values)
    measurement = _measurement(_positive("sensitivity", sensitivity), _positive("rho", rho))
    noisy = measurement(values.ravel().tolist())
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


def share(values: IntArray, scale: float) -> IntArray:
    """Return `values` (any shape) with discrete Gaussian noise of a scale: a share of a noise, which protects nothing by itself.

    Raises:
        UserError: the values are no integers below `LARGEST_SUM`, or the scale is too large.
        Refusal: OpenDP is missing.
    """
    _check_sums(values)
    if not scale < LARGEST_SUM / 16:
        raise UserError(f"a scale of {scale:g} is too large for noise in 64 bits")
    noisy = _of_scale(scale)(values.ravel().tolist())
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


@lru_cache(maxsize=64)
def _of_scale(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale)


def _check_sums(values: IntArray) -> None:
    if values.dtype != np.int64:
        raise UserError(f"noise is for integers (int64), got {values.dtype}")
    if values.size and max(int(values.max()), -int(values.min())) > LARGEST_SUM:
        raise UserError("sums are too large for noise in 64 bits")


@lru_cache(maxsize=64)
def _measurement(sensitivity: float, rho: float) -> Any:
    """Return OpenDP's measurement with the least noise that it confirms to be rho-zCDP at this sensitivity."""
    dp = _opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    scale = sigma(sensitivity, rho)
    if not scale < LARGEST_SUM / 16:
        raise UserError(f"rho={rho:g} is too small for noise in 64 bits")
    for _ in range(8):  # OpenDP rounds its bound up, so that the least scale is a few last digits larger
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale)
        if measurement.check(d_in=sensitivity, d_out=rho):
            return measurement
        scale *= 1 + 1e-15
    raise UserError(f"OpenDP does not confirm rho={rho:g} at the sensitivity {sensitivity:g}")


@lru_cache(maxsize=1)
def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise Refusal(
            "needs the package opendp for differential privacy; install it at the site: pip install 'flareclust[dp]'"
        ) from None
    dp.enable_features("contrib")
    return dp


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)
