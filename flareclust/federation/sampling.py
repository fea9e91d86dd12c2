"""Rounds with some of the sites: a cohort drawn for each, and sites that drop out of one, in simulations.

Sources: McMahan et al. (2017), Communication-efficient learning of deep networks from decentralized data, Algorithm 1 (a random
set of clients in each round); Bonawitz et al. (2019), Towards federated learning at scale, section 2 (devices that drop out).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flareclust._foundation.seeding import stream

#: The owners of the random streams that draw the sites of a round.
_COHORT, _DROPOUT = "cohort", "dropout"


@dataclass(frozen=True)
class Sampling:
    """Which of the sites a round has.

    Attributes:
        cohort: how many are drawn for a round, with equal chances; None for all.
        dropout: probability that a site that was drawn drops out of the round; it may be drawn again.
        seed: of the draws, which are others in each round.
    """

    cohort: int | None = None
    dropout: float = 0.0
    seed: int = 0

    def drawn(self, sites: Sequence[str], round_: int) -> list[str]:
        """Return the cohort of a round, in the order of `sites`."""
        if self.cohort is None or self.cohort >= len(sites):
            return list(sites)
        places = stream(self.seed, round_, _COHORT).choice(len(sites), self.cohort, replace=False)
        places.sort()
        return [sites[i] for i in places.tolist()]

    def staying(self, sites: Sequence[str], round_: int) -> list[str]:
        """Return the sites that do not drop out of a round."""
        if not self.dropout:
            return list(sites)
        stays = stream(self.seed, round_, _DROPOUT).random(len(sites)) >= self.dropout
        return [site for site, there in zip(sites, stays.tolist(), strict=True) if there]
