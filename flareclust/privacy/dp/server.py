"""What servers share under differential privacy: how much noise the sites add, and what to say where it is much."""

import math
from dataclasses import dataclass

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.privacy.dp import accounting
from flareclust.privacy.dp.mechanism import sigma
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.secure_aggregation.masking import LEAST_SITES
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round
from flareclust.protocol.state import State

#: The key of an exchange's diagnostics for its share of the job's rho. `SIGNAL` is how large what was sent is beside its noise.
BUDGET_SHARE = "budget_share"

#: So many times the rows with which clusters of equal sizes stand out of noise leave few runs with a cluster missed.
SEVERAL = 4


@dataclass(frozen=True, eq=False)
class NoisyState(State):
    """What the server of an algorithm under differential privacy knows, beside what is the algorithm's own.

    Attributes:
        all_rows: noisy number of all rows.
        summed_sites: how many sites sent it.
        box: what all sites' bounds span together.
        counts: noisy numbers of rows behind each centroid (k,).
        signal_to_noise: of each of them (k,), the radius of the cluster over the distance by which noise moves the centroid.
    """

    all_rows: float = 0.0
    summed_sites: int = 0
    box: Box | None = None
    counts: IntArray | None = None
    signal_to_noise: FloatArray | None = None

    def arrays(self) -> Message:
        """Return what goes into the result, with the bounds."""
        return {**super().arrays(), **({} if self.box is None else self.box.sent())}


def noise_of(params: PrivateParams, sensitivity: float, share: float, sites: int) -> float:
    """Return the standard deviation of the noise of a total over sites that each spend a share of the job's rho."""
    rho = share * accounting.WHOLE * accounting.rho_of(params.epsilon, params.delta)
    return sigma(sensitivity * params.rows_of_unit, rho) * math.sqrt(sites)


def epsilon_for(params: PrivateParams, factor: float) -> float:
    """Return the epsilon, at the job's delta, at which the noise is a factor smaller; it can be more than any that is allowed."""
    rho = accounting.rho_of(params.epsilon, params.delta) * factor**2
    return accounting.epsilon_of(min(rho, 2 * accounting.MOST_EPSILON), params.delta)


def poor_signal(
    params: PrivateParams,
    round_: Round[NoisyState],
    needed: int,
    *,
    noises: int | None = None,
    shares_noise: bool = False,
) -> list[str]:
    """Return a warning with what would help where noise is large beside the clusters or some, by noisy numbers of rows.

    Args:
        params: the job's settings.
        round_: the last one; its diagnostics have the radius of a cluster over the distance by which noise moves its centroid.
        needed: number of rows in all from which clusters of equal sizes stand out of noise; others need several times as many.
        noises: how many noises the sums hold; None for one of each site.
        shares_noise: whether sites share one noise in jobs with secure sums.
    """
    ratio, rows = max(round_.diagnostics.get(cluster_arrays.SIGNAL, dp_sums.CLEAR), 1e-3), round_.state.all_rows
    enough = rows / (SEVERAL * needed) if needed else 1.0
    if ratio >= dp_sums.CLEAR and enough >= 1:
        return _lost_clusters(round_.state.signal_to_noise)
    noises, factor = noises or round_.state.summed_sites, max(dp_sums.CLEAR / ratio, 1 / max(enough, 1e-3))
    epsilon = epsilon_for(params, factor)
    helps = [f"epsilon={epsilon:.2g}"] if epsilon < accounting.MOST_EPSILON else []
    helps.append(f"{factor:.2g} times as many rows")
    if shares_noise and noises >= LEAST_SITES:
        helps.append(f"secure_sums, with which {noises} sites add one noise in place of {noises}")
    reason = f"noise moves a centroid by about {1 / ratio:.2g} radii of its cluster (by the noisy numbers of rows)"
    if ratio >= dp_sums.CLEAR:
        reason = f"clusters of equal sizes stand out of noise from about {needed} rows in all, and there are about {rows:.0f}"
    return [f"{reason}, so clusters may be missed or misplaced. What helps: {', or '.join(helps)}"]


def _lost_clusters(signal: FloatArray | None) -> list[str]:
    """Return a warning where noise explains the rows of some clusters, by signal over noise (k,), so that others hold several."""
    lost = 0 if signal is None else int((signal < dp_sums.CLEAR).sum())
    if not lost or signal is None:
        return []
    found = f"{lost} of {len(signal)} clusters {'has' if lost == 1 else 'have'} hardly more rows than noise explains"
    helps = f"What helps: a larger epsilon, more rows, or k={max(len(signal) - lost, 1)}"
    return [f"{found}, so another may hold the rows of several, at an inertia well above the best. {helps}"]


def reach_of(radii: FloatArray, box: Box) -> FloatArray:
    """Return the distance beyond which rows do not count more in the assessment, from the clusters' radii (k,)."""
    return np.array(max(dp_sums.REACH_RADII * float(np.median(radii)), box.half / 1000))
