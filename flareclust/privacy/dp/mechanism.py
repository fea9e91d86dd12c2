"""Gaussian noise on integers, from OpenDP: of one holder of rows, or one noise for a masked sum of several sites.

Everything that is to be noised is a sum over rows of contributions that were turned into integers first
(`flareclust.core.dp.sums`): such sums are exact, in whatever order they are taken, so that the sensitivity holds for
what the computer adds up and not only for real numbers. The noise is the discrete Gaussian of Canonne, Kamath and
Steinke (2020), drawn by OpenDP exactly and from the operating system's source of randomness. It follows no seed.

Source: Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy (2020), Theorem 4 and Corollary 19;
Bun, Steinke, Concentrated Differential Privacy (2016), Proposition 1.6.

To the noise of a masked sum each site adds a share, and the shares of the honest sites are enough. Source: Kairouz, Liu,
Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation (2021), Proposition 14 and
Theorem 1: a sum of h discrete Gaussians of scale s >= 1/2 in d entries, added to integers of L2 sensitivity D, is
(1/2) e^2-concentrated differentially private for
e = D / (h^0.5 s) + t d^0.5, t = 10 sum over j = 1 ... h - 1 of exp(-2 pi^2 s^2 j / (j + 1)).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import IntArray

#: The statement needs shares of this scale.
_LEAST_SCALE = 0.5


#: Sums or noise of a scale beyond these could leave the range of 64 bits once the noise is added.
_LARGEST_SUM = 2**61
_LARGEST_SCALE = _LARGEST_SUM / 16


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
        values: integers below `_LARGEST_SUM`.
        sensitivity: most that one row more or less changes all entries together, in L2 norm.
        rho: of zero-concentrated differential privacy.

    Raises:
        UserError: the numbers are none of these.
        Refusal: OpenDP is missing.
    """
    _check_sums(values)
    return _noisy(values, _measurement(_positive("sensitivity", sensitivity), _positive("rho", rho)))


def share(values: IntArray, scale: float) -> IntArray:
    """Return `values` (any shape) with discrete Gaussian noise of a scale: a share of a noise, which protects nothing by itself.

    Raises:
        UserError: the values are no integers below `_LARGEST_SUM`, or the scale is too large.
        Refusal: OpenDP is missing.
    """
    _check_sums(values)
    if not scale < _LARGEST_SCALE:
        raise UserError(f"a scale of {scale:g} is too large for noise in 64 bits")
    return _noisy(values, _of_scale(scale))


@lru_cache(maxsize=64)
def _of_scale(scale: float) -> Any:
    """Return OpenDP's measurement with noise of a scale."""
    dp = _opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64"), scale)


def _noisy(values: IntArray, measurement: Any) -> IntArray:
    return np.array(measurement(values.ravel().tolist()), dtype=np.int64).reshape(values.shape)


def _check_sums(values: IntArray) -> None:
    if values.dtype != np.int64:
        raise UserError(f"noise is for integers (int64), got {values.dtype}")
    if values.size and max(int(values.max()), -int(values.min())) > _LARGEST_SUM:
        raise UserError("sums are too large for noise in 64 bits")


@lru_cache(maxsize=64)
def _measurement(sensitivity: float, rho: float) -> Any:
    """Return OpenDP's measurement with the least noise that it confirms to be rho-zCDP at this sensitivity."""
    scale = sigma(sensitivity, rho)
    if not scale < _LARGEST_SCALE:
        raise UserError(f"rho={rho:g} is too small for noise in 64 bits")
    for _ in range(8):  # OpenDP rounds its bound up, so that the least scale is a few last digits larger
        measurement = _of_scale(scale)
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


@dataclass(frozen=True)
class SharedNoise:
    """The sites of a masked sum, and how many of them may collude with the server: the noise of the remaining sites alone must suffice.

    Attributes:
        sites: how many add up their numbers.
        colluding: so many may tell the server their shares.
    """

    sites: int
    colluding: int

    @classmethod
    def of(cls, sites: int, colluding: int | None, required: int | None, named: int | None) -> "SharedNoise":
        """Return what a job asks for, a third of the sites unless it says a number.

        Args:
            sites: of the sum.
            colluding: by the job; None for a third of the sites.
            required: at least, by the site's policy; None for a third of the sites that it names.
            named: how many sites the policy names, the only ones that may be in the sum; None where it names none, so that a
                server could list any number of sites of its own.

        Raises:
            Refusal: the policy names no sites, the job counts on fewer than the policy requires, or no site would be left.
        """
        if named is None:
            raise Refusal(
                "adds a share of a noise only where its policy names the sites of the sum, since a server could list sites of its "
                "own; its operator names them (flareclust site policy --secure-sites), or submit without secure_sums"
            )
        asked = _usual(sites) if colluding is None else colluding
        minimum = _usual(named) if required is None else required
        if asked < minimum:
            raise Refusal(
                f"adds its share of a noise that holds with {minimum} colluding sites of {max(sites, named)}, and the job counts on "
                f"{asked}; submit with colluding={minimum} or more (its policy: colluding, secure_sites)"
            )
        if asked >= sites:
            raise Refusal(
                f"was asked for a share of a noise that holds with {asked} colluding sites, and the sum is of {sites}; submit with a "
                "smaller colluding"
            )
        return cls(sites, asked)

    @property
    def honest(self) -> int:
        """The number of sites whose shares make the noise."""
        return self.sites - self.colluding

    def scale(self, sensitivity: float, rho: float, entries: int) -> float:
        """Return the scale of a site's share, so that the shares of the honest sites make a release rho-zCDP.

        Args:
            sensitivity: most that one row more or less changes all entries together, in L2 norm.
            rho: of zero-concentrated differential privacy.
            entries: how many numbers get noise.
        """
        scale = max(sensitivity / math.sqrt(2 * rho * self.honest) * (1 + 1e-12), _LEAST_SCALE)
        while _rho_of_sum(scale, self.honest, sensitivity, entries) > rho:
            scale *= 1.01
        return scale


def _usual(sites: int) -> int:
    """Return the default number of sites of a sum that may collude: a third."""
    return sites // 3


def deviation_of_total(sigma: float, sites: int, colluding: int | None) -> float:
    """Return the standard deviation of a total's noise, from that of one holder of all rows: what colluding sites add is more."""
    honest = sites - (_usual(sites) if colluding is None else min(colluding, sites - 1))
    return sigma * math.sqrt(sites / honest)


def _rho_of_sum(scale: float, honest: int, sensitivity: float, entries: int) -> float:
    """Return the rho of a release whose noise is a sum of so many discrete Gaussians of one scale (the statement above)."""
    gap = sum(math.exp(-2 * math.pi**2 * scale**2 * j / (j + 1)) for j in range(1, honest))
    return (sensitivity / (math.sqrt(honest) * scale) + 10 * gap * math.sqrt(entries)) ** 2 / 2
