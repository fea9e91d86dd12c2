"""FKM for sites with different columns, in the two ways that need no new algorithm: the baselines of `masked` and `proxy`.

- `FKMCommonExecutor`: the columns that all sites have, and no others.
- `FKMImputedExecutor`: all columns; where a site lacks one, the federation's mean of it, over the sites that have it.

The rest is FKM (`flareclust.executors.fkm`), unchanged.
"""

from typing import ClassVar

from flareclust.core.local import Sendable
from flareclust.executors.described import DescribedExecutor, View
from flareclust.executors.fkm import FKMExecutor, FKMRounds
from flareclust.executors.parameters import ColumnsParams
from flareclust.privacy.context import SiteRows
from flareclust.protocol.task import Task


class FKMPartialParams(ColumnsParams, FKMRounds):
    """Parameters of FKM for different columns."""


class FKMCommonExecutor(DescribedExecutor, FKMExecutor):
    """A site of FKM on the columns that all sites have."""

    params: FKMPartialParams  # type: ignore[assignment]  # FKM's, without those of robust

    view: ClassVar[View] = "common"

    def clusters(self, task: Task, rows: SiteRows) -> Sendable:
        """Return the clusters of FKM, without those that would give away rows kept back."""
        clusters = super().clusters(task, rows)
        return self.guarded(clusters, rows.X, rows.context, may_be_empty=True)


class FKMImputedExecutor(FKMCommonExecutor):
    """A site of FKM on all columns, with means in the place of those that it lacks; the arguments are the same."""

    view: ClassVar[View] = "imputed"
