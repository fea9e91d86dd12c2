"""What aggregators under differential privacy share: how much noise the sites add, and what the assessment shows."""

import math

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.core.dp.box import Box
from flareclust.executors.parameters import PrivateParams
from flareclust.privacy.dp.accounting import WHOLE, rho_of
from flareclust.privacy.dp.mechanism import sigma

#: In units of the median radius: how far away a row is that counts like one still farther in the sum of squares.
_REACH = 1.5

#: The key of the noisy number of all rows, in the record of a round.
ALL_ROWS = "all_rows"


class PrivateAggregator(ClusteringAggregator):
    """The server of an algorithm under differential privacy."""

    params: PrivateParams

    def noise(self, sensitivity: float, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of a total over sites that each spend a share of the job's rho."""
        return sigma(sensitivity, share * WHOLE * rho_of(self.params.epsilon, self.params.delta)) * math.sqrt(sites)

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
