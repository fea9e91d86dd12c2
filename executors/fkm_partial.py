"""FKM for sites with different columns, in the two ways that need no new algorithm: the baselines of `masked` and `proxy`.

- `FKMCommonExecutor`: the columns that all sites have, and no others.
- `FKMImputedExecutor`: all columns; where a site lacks one, the federation's mean of it, over the sites that have it.

The rest is FKM (`flareclust.executors.fkm`), unchanged.
"""

from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import AbortCheck, FloatArray
from flareclust._foundation.validation import check_bool
from flareclust.core.local import Seeds, Sendable
from flareclust.executors.described import DescribedExecutor, View
from flareclust.executors.fkm import FKMExecutor
from flareclust.protocol.task import Task


class FKMCommonExecutor(DescribedExecutor, FKMExecutor):
    """A site of FKM on the columns that all sites have.

    Args:
        k: number of clusters in the federation.
        seed: of the job.
        min_count: clusters with fewer rows never leave the site.
        seeds: as for FKM.
        local_iter: as for FKM.
        standardize: whether columns are scaled by the federation's mean and standard deviation of each.
    """

    view: ClassVar[View] = "common"

    def __init__(
        self,
        k: int,
        seed: int = 0,
        min_count: int = 2,
        seeds: Seeds = "means",
        local_iter: int = 1,
        standardize: bool = False,
    ) -> None:
        FKMExecutor.__init__(self, k, seed, min_count, seeds, local_iter)
        self.standardize = check_bool("standardize", standardize)

    def clusters(self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck) -> Sendable:
        """Return the clusters of FKM, without those that would give away rows kept back."""
        return self.guarded(super().clusters(task, data, rng, aborted), data, may_be_empty=True)


class FKMImputedExecutor(FKMCommonExecutor):
    """A site of FKM on all columns, with means in the place of those that it lacks; the arguments are the same."""

    view: ClassVar[View] = "imputed"
