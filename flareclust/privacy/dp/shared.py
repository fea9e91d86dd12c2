"""One noise for a masked sum of several sites: each adds a share, and the shares of the honest sites are enough.

Source: Kairouz, Liu, Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation
(2021), Proposition 14 and Theorem 1: a sum of h discrete Gaussians of scale s >= 1/2 in d entries, added to integers of L2
sensitivity D, is (1/2) e^2-concentrated differentially private for
e = D / (h^0.5 s) + t d^0.5, t = 10 sum over j = 1 ... h - 1 of exp(-2 pi^2 s^2 j / (j + 1)).
"""

import math
from dataclasses import dataclass

from flareclust._foundation.errors import Refusal

#: The statement needs shares of this scale.
_LEAST_SCALE = 0.5


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
        asked = usual(sites) if colluding is None else colluding
        minimum = usual(named) if required is None else required
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
        while rho_of_sum(scale, self.honest, sensitivity, entries) > rho:
            scale *= 1.01
        return scale


def usual(sites: int) -> int:
    """Return the default number of sites of a sum that may collude: a third."""
    return sites // 3


def deviation_of_total(sigma: float, sites: int, colluding: int | None) -> float:
    """Return the standard deviation of a total's noise, from that of one holder of all rows: what colluding sites add is more."""
    honest = sites - (usual(sites) if colluding is None else min(colluding, sites - 1))
    return sigma * math.sqrt(sites / honest)


def rho_of_sum(scale: float, honest: int, sensitivity: float, entries: int) -> float:
    """Return the rho of a release whose noise is a sum of so many discrete Gaussians of one scale (the statement above)."""
    gap = sum(math.exp(-2 * math.pi**2 * scale**2 * j / (j + 1)) for j in range(1, honest))
    return (sensitivity / (math.sqrt(honest) * scale) + 10 * gap * math.sqrt(entries)) ** 2 / 2
