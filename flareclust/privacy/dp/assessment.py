"""The assessment under differential privacy: noisy sums over all rows, and nothing by cluster."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import Message, never_abort
from flareclust._foundation.validation import LARGEST
from flareclust.core.dp import sums as dp_sums
from flareclust.privacy.dp.server import NoisyState, noise_of
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.dp.site import ASSESSMENT_SHARE, Noise, positive
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rounds import Round
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import real
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, StepName, Task

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor


class NoisyAssessment(Phase):
    """Asks for noisy sums of squared distances and silhouettes, and a noisy number of rows beyond the bounds."""

    params: PrivateParams

    steps = MappingProxyType(
        {StepName.ASSESS: Step(ASSESSMENT.extended(sse=real(""), clipped=real("")), "assess", summed=True)}
    )

    @classmethod
    def steps_of(cls, executor: "type[ClusteringExecutor]") -> Mapping[str, Step]:
        """Return the step of algorithms under differential privacy."""
        return cls.steps if executor.private else {}

    def assess(self, task: Task, rows: SiteRows) -> Message:
        """Return the noisy sums.

        Numbers by cluster stay here, and 0 is sent for them. Totals are cut at 0 by the server only: cut at each site, noise
        would add up to a signal.
        """
        centroids, noise = task.arrays["centroids"], Noise.granted(self.params, rows)
        reach = positive(task.arrays.get(cluster_arrays.REACH), cluster_arrays.REACH, ())
        sums = dp_sums.quality_sums(rows.X, noise.box, centroids, float(reach), never_abort)
        noisy = noise.add(sums, dp_sums.quality_sensitivity(), ASSESSMENT_SHARE, "assessment")
        zeros = np.zeros(len(centroids))
        return {
            "counts": zeros.astype(np.int64),
            "scatter": zeros,
            "sse": np.array(np.clip(float(noisy[0] / dp_sums.UNIT * reach**2), -LARGEST, LARGEST)),
            "silhouette": np.array(noisy[1] / dp_sums.SILHOUETTE),
            "clipped": np.array(noisy[2] / dp_sums.CLIPPED),
        }


# The server's side.

#: From so many deviations of its noise on, a number of rows is reported: noise alone reaches that once in three million jobs.
_SURE = 5.0


def noisy_metrics(params: PrivateParams, round_: Round[NoisyState], sums: Message) -> dict[str, float | None]:
    """Return noisy inertia and silhouette, and the noisy share of rows beyond the bounds.

    `inertia_signal_to_noise` is the inertia over the deviation of its noise; `clipped_share` is None where noise alone
    explains it. The Davies-Bouldin index needs numbers by cluster, which stay at the sites.
    """
    rows, clipped = float(round_.state.all_rows), float(np.sum(sums["clipped"]))
    inertia = max(0.0, float(np.sum(sums["sse"])))
    noise = noise_of(params, dp_sums.quality_sensitivity(), ASSESSMENT_SHARE, round_.state.summed_sites)
    silhouette = float(np.sum(sums["silhouette"])) / rows if rows >= 1 and len(round_.task["centroids"]) > 1 else None
    far = rows >= 1 and clipped > _SURE * noise / dp_sums.CLIPPED
    return {
        "inertia": inertia,
        "inertia_signal_to_noise": inertia / (noise / dp_sums.UNIT * float(round_.task[cluster_arrays.REACH]) ** 2),
        "simplified_silhouette": None if silhouette is None else min(1.0, max(0.0, silhouette)),
        "davies_bouldin": None,
        "clipped_share": min(1.0, clipped / rows) if far else None,
    }
