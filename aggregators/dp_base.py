"""What aggregators under differential privacy share: how much noise the sites add, and what the assessment shows."""

import math
from collections.abc import Mapping

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.aggregators.base import ClusteringAggregator
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp import site as dp_site
from flareclust.privacy.dp.mechanism import sigma
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round

#: The key of the noisy number of all rows, in the record of a round.
ALL_ROWS = "all_rows"

#: The key of the number of sites, in the record of a round.
SITES = "summed_sites"

#: The key of an exchange's diagnostics for its share of the job's rho. `SIGNAL` is how large what was sent is beside its noise.
BUDGET_SHARE = "budget_share"

#: From so many deviations of its noise on, a number of rows is reported: noise alone reaches that once in three million jobs.
_SURE = 5.0


class PrivateAggregator(ClusteringAggregator):
    """The server of an algorithm under differential privacy."""

    params: PrivateParams

    def noise(self, sensitivity: float, share: float, sites: int) -> float:
        """Return the standard deviation of the noise of a total over sites that each spend a share of the job's rho."""
        of_unit = sensitivity * self.params.rows_of_unit
        return sigma(
            of_unit, share * accounting.WHOLE * accounting.rho_of(self.params.epsilon, self.params.delta)
        ) * math.sqrt(sites)

    #: Whether sites share one noise in jobs with secure sums.
    shares_noise = False

    def epsilon_for(self, factor: float) -> float:
        """Return the epsilon, at the job's delta, at which the noise is a factor smaller; it can be more than any that is allowed."""
        rho = accounting.rho_of(self.params.epsilon, self.params.delta) * factor**2
        return accounting.epsilon_of(min(rho, 2 * accounting.MOST_EPSILON), self.params.delta)

    def rows_needed(self, d: int, sites: int) -> int:
        """Return with how many rows in all clusters stand out of the noise, from public numbers only; 0 where it is not known."""
        return 0

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Say so where noise is large beside the clusters, by their noisy numbers of rows."""
        ratio = round_.diagnostics.get(cluster_arrays.SIGNAL, dp_sums.CLEAR)
        return [] if ratio >= dp_sums.CLEAR else [self._poor_signal(ratio, self._noises(int(round_.record[SITES])))]

    def _noises(self, sites: int) -> int:
        """Return how many noises the sums of so many sites hold: one of each, unless overridden."""
        return sites

    def _poor_signal(self, ratio: float, noises: int) -> str:
        """Return a warning that noise is large beside the clusters, with what would help.

        Args:
            ratio: radius of a cluster over the distance by which noise moves its centroid, below `CLEAR`.
            noises: how many noises the sums hold: one for each site, or one.
        """
        moved, factor = 1 / max(ratio, 1e-3), dp_sums.CLEAR / max(ratio, 1e-3)
        epsilon = self.epsilon_for(factor)
        helps = [f"epsilon={epsilon:.2g}"] if epsilon < accounting.MOST_EPSILON else []
        helps.append(f"{factor:.2g} times as many rows")
        if self.shares_noise and noises >= LEAST_SITES:
            helps.append(f"secure_sums, with which {noises} sites add one noise in place of {noises}")
        return (
            f"noise moves a centroid by about {moved:.2g} radii of its cluster (by the noisy numbers of rows), so clusters may be missed "
            f"or misplaced. What helps: {', or '.join(helps)}"
        )

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return noisy inertia and silhouette, and the noisy share of rows beyond the bounds.

        `inertia_signal_to_noise` is the inertia over the deviation of its noise; `clipped_share` is None where noise alone
        explains it. The Davies-Bouldin index needs numbers by cluster, which stay at the sites.
        """
        rows, clipped = float(round_.record[ALL_ROWS]), float(np.sum(sums["clipped"]))
        inertia = max(0.0, float(np.sum(sums["sse"])))
        noise = self.noise(dp_sums.quality_sensitivity(), dp_site.ASSESSMENT_SHARE, int(round_.record[SITES]))
        silhouette = (
            float(np.sum(sums["silhouette"])) / rows if rows >= 1 and len(round_.task["centroids"]) > 1 else None
        )
        return {
            "inertia": inertia,
            "inertia_signal_to_noise": inertia / (noise / dp_sums.UNIT * float(round_.task[cluster_arrays.REACH]) ** 2),
            "simplified_silhouette": None if silhouette is None else min(1.0, max(0.0, silhouette)),
            "davies_bouldin": None,
            "clipped_share": min(1.0, clipped / rows)
            if rows >= 1 and clipped > _SURE * noise / dp_sums.CLIPPED
            else None,
        }


def reach_of(radii: FloatArray, box: Box) -> FloatArray:
    """Return the distance beyond which rows do not count more in the assessment, from the clusters' radii (k,)."""
    return np.array(max(dp_sums.REACH_RADII * float(np.median(radii)), box.half / 1000))
