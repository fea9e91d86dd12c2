"""The site's side of algorithms for sites that need not have the same columns.

A job of such an algorithm begins with the step `describe`, in which each site names its columns. From then on the base
class here shows an algorithm the site's own columns only: the rows, and of what the server sends the entries of these
columns. An entry that nobody knows is NaN in what the server sends; no site ever sends one.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import AbortCheck, FloatArray, IntArray, Message
from flareclust._foundation.validation import check_bool
from flareclust.core.local import Sendable, without_remainder
from flareclust.core.missing.assessment import masked_sums
from flareclust.core.missing.grouping import nearest
from flareclust.core.rounding import factor
from flareclust.data.tables import Table
from flareclust.executors.base import ClusteringExecutor
from flareclust.features.alignment import DESCRIPTION, describe, moments, own_view
from flareclust.privacy.secure_aggregation.totals import GROUPS, rounded_spread
from flareclust.protocol.schema import Schema, real
from flareclust.protocol.task import DESCRIBE, MOMENTS, Answer, Task

#: How a site's rows are shown to an algorithm: the columns that it has, those that all sites have (it must have them
#: all), or all columns with the federation's mean in the places of those that it lacks.
View = Literal["own", "common", "imputed"]

#: By what rows may be scaled: whatever a row's finite values are, no quotient is infinite. Otherwise an error on the way
#: would tell a server that chooses the scale how large the largest value is.
_SCALING = Schema(mean="D", deviation=real("D", minimum=1e-100))


class DescribedExecutor(ClusteringExecutor):
    """A site whose columns may differ from other sites'.

    Args:
        k: number of clusters in the federation.
        seed: of the job.
        min_count: clusters with fewer rows never leave the site.
        standardize: whether columns are scaled by the federation's mean and standard deviation of each.
    """

    first_steps = (DESCRIBE,)
    masked_only = MappingProxyType({MOMENTS: GROUPS})

    #: The distance by which rows find their centroid, for algorithms that have several.
    phi: str = "euclidean"

    #: As in `View`.
    view: ClassVar[View] = "own"

    def __init__(self, k: int, seed: int = 0, min_count: int = 2, standardize: bool = False) -> None:
        super().__init__(k, seed, min_count)
        self.standardize = check_bool("standardize", standardize)

    @classmethod
    def schema(cls, step: str) -> Schema:
        """Return what leaves the site in a step, `describe` among them."""
        return DESCRIPTION if step == DESCRIBE else super().schema(step)

    def labels(
        self, task: Task, data: FloatArray, rng: np.random.Generator, aborted: AbortCheck, seen: FloatArray
    ) -> IntArray:
        """Return the final cluster (n,) of each row, by the scaled distance to what is known of the centroids; -1 for none."""
        return nearest(data, task.arrays["centroids"], self.phi)

    def viewed(self, task: Task, table: Table) -> tuple[Task, Table]:
        """Return the algorithm's view of what the server sent, and of the rows."""
        if "columns" not in task.arrays:  # a federation that was not described: all sites have the same columns
            return task, table
        _check_scaling(task.arrays)
        X, has = self.shown(table, task.arrays)
        arrays = {name: value for name, value in task.arrays.items() if name not in ("columns", "mean", "deviation")}
        if "centroids" in arrays:
            arrays["centroids"] = np.ascontiguousarray(arrays["centroids"][:, has])
        return replace(task, arrays=arrays), Table(X)

    def compute(self, task: Task, table: Table, aborted: AbortCheck) -> Answer:
        """Answer `describe` and `moments`; else show the algorithm its view."""
        if task.step == DESCRIBE:
            told = describe(table, sums=self.tells_sums and not task.secure, min_count=self.min_count)
            if self.policy is not None:  # so that mean squares stay what they are
                told["m2"] = told["m2"] * factor(told["rows"], self.policy.round_counts, self.min_count)
            return Answer(told)
        if task.step == MOMENTS:
            told = moments(table, task.arrays["columns"], self.min_count)
            return Answer(rounded_spread(told, self.policy, self.min_count))
        return super().compute(*self.viewed(task, table), aborted)

    def shown(self, table: Table, arrays: Message) -> tuple[FloatArray, IntArray]:
        """Return the rows as the algorithm sees them (n, d), and the places of their columns among the federation's (d,).

        Args:
            table: the site's own rows.
            arrays: what every task of a described federation carries, as `flareclust.features.columns.Columns.sent` returns it.

        Raises:
            Refusal: the site has none of the columns, or lacks one that all must have.
        """
        X, has = own_view(table, self._scaling(arrays))
        D = len(arrays["columns"])
        if self.view == "common" and len(has) < D:
            raise Refusal(f"has {len(has)} of the {D} columns that the others have in common")
        return (self._imputed(arrays, X, has), np.arange(D)) if self.view == "imputed" else (X, has)

    def guarded(self, found: Sendable, data: FloatArray, *, may_be_empty: bool = False) -> Sendable:
        """Return the clusters of the rows (n, d) that may be described, after what `describe` told about all rows.

        Raises:
            Refusal: there are none, unless that may be.
        """
        if not self.tells_sums or self.policy is not None:  # a policy's rows are groups already
            return found
        kept = without_remainder(data, found, self.min_count)
        if not len(kept.counts) and not may_be_empty:
            raise Refusal(
                "has told the sums of its columns, and what its clusters tell beside would give away the rows that are "
                "kept back; set a smaller k_local, or standardize=false"
            )
        return kept

    @property
    def tells_sums(self) -> bool:
        """Return whether `describe` tells the sums of the columns."""
        return self.standardize or self.view == "imputed"

    def assess(self, task: Task, data: FloatArray) -> Message:
        """Return the sums of the assessment over the entries that are known."""
        return masked_sums(data, task.arrays["centroids"], self.phi)

    def check_centroids(self, centroids: object, data: FloatArray, maximum: int) -> None:
        """Check as for whole centroids, with NaN for what is unknown."""
        if not isinstance(centroids, np.ndarray) or centroids.dtype != np.float64:
            raise BadMessage("centroids: expected an array of float64")
        super().check_centroids(np.nan_to_num(centroids, posinf=np.inf, neginf=-np.inf), data, maximum)

    def placing(self, arrays: Message) -> Message:
        """Return what a late site is sent: the result in the units that the sites work in."""
        if not self.standardize or "mean" not in arrays:
            return arrays
        return arrays | {"centroids": (arrays["centroids"] - arrays["mean"]) / arrays["deviation"]}

    def _scaling(self, arrays: Message) -> Message:
        if self.standardize:
            return arrays
        return {name: value for name, value in arrays.items() if name not in ("mean", "deviation")}

    def _imputed(self, arrays: Message, X: FloatArray, has: IntArray) -> FloatArray:
        mean = np.zeros_like(arrays["mean"]) if self.standardize else arrays["mean"]
        filled = np.tile(mean, (len(X), 1))
        filled[:, has] = X
        return filled


def _check_scaling(arrays: Message) -> None:
    """Raise BadMessage unless the columns' means and deviations, where they were sent, can be computed with."""
    sent = {name: arrays[name] for name in _SCALING.fields if name in arrays}
    if sent:
        _SCALING.check(sent, {"D": len(arrays["columns"])})
