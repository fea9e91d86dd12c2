"""The assessment under differential privacy: noisy sums over all rows, and nothing by cluster."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.typing import Message, never_abort
from flareclust._foundation.validation import LARGEST
from flareclust.core.dp import sums as dp_sums
from flareclust.privacy.dp.settings import PrivateParams
from flareclust.privacy.dp.site import ASSESSMENT_SHARE, Noise, positive
from flareclust.protocol import cluster_arrays
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import real
from flareclust.protocol.stages import Phase
from flareclust.protocol.steps import Step
from flareclust.protocol.task import ASSESSMENT, StepName, Task

if TYPE_CHECKING:
    from flareclust.executors.base import ClusteringExecutor


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
