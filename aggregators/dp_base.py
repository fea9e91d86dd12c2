"""What aggregators under differential privacy share: how much noise the sites add, and what the assessment tells."""

import math

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.dp.sums import Box
from flareclust.privacy.dp.accounting import WHOLE, check_delta, check_epsilon, rho_of
from flareclust.privacy.dp.mechanism import sigma

#: In units of the median radius: how far away a row is that counts like one still farther in the sum of squares.
_REACH = 1.5

#: The key of the noisy number of all rows, in the record of a round.
ALL_ROWS = "all_rows"


class PrivateAggregator(ClusteringAggregator):
    """The server of an algorithm under differential privacy.

    Args:
        k: number of clusters.
        seed: of the job.
        epsilon: what the job may spend at each site, together with `delta`; tells the server how much noise there is.
        delta: see there.
    """

    def __init__(self, k: int, seed: int = 0, epsilon: float = 1.0, delta: float = 1e-5) -> None:
        super().__init__(k, seed)
        self.epsilon = check_epsilon("epsilon", epsilon)
        self.delta = check_delta("delta", delta)

    def noise(self, sensitivity: float, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of a total over sites that each spend a share of the job's rho."""
        return sigma(sensitivity, share * WHOLE * rho_of(self.epsilon, self.delta)) * math.sqrt(sites)

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return noisy inertia and silhouette; the Davies-Bouldin index needs numbers by cluster, which stay at the sites."""
        rows = float(round_.record[ALL_ROWS])
        silhouette = (
            float(np.sum(sums["silhouette"])) / rows if rows >= 1 and len(round_.task["centroids"]) > 1 else None
        )
        return {
            "inertia": float(np.sum(sums["sse"])),
            "simplified_silhouette": None if silhouette is None else min(1.0, max(0.0, silhouette)),
            "davies_bouldin": None,
        }


def reach_of(radii: FloatArray, box: Box) -> FloatArray:
    """Return the distance beyond which rows do not count more in the assessment, from the clusters' radii (k,)."""
    return np.array(max(_REACH * float(np.median(radii)), box.half / 1000))
