"""Tree, the site's side: micro-clusters, groups of similar rows with their means, numbers of rows and spreads.

No paper: the groups are those of microaggregation (`flareclust.core.microaggregation`).

1. A group has at least `group_rows` rows, and more where a site has more rows than `max_groups` such groups hold, so that an upload
   does not grow with the rows. A site with fewer rows makes one group.
2. Where a site shows groups in the place of rows anyway (`rows.groups`), these are the micro-clusters, unless 1 asks for larger ones.
3. Groups follow from the values of the rows only, not from their order or a random number.
4. Rows that are far from all others and fewer than a group are in none; so are groups that may not be described. They have no
   label, so that sums by final cluster, less those of the groups, are of no rows.
5. With the mean a group's sum of squares is sent, one number for all columns. Where its rows differ in one column only, it could
   be solved for single rows, and is raised to the next number of two digits.
6. A row has the label of its own group; where the site shows groups, of the nearest of these.
7. Rows of late sites, which send no groups, have the label of the nearest representative (`flareclust.aggregators.tree`).
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, model_validator

from flareclust._foundation.errors import UserError, stop_if
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.core import density_tree, ward_tree
from flareclust.core.disclosure import LEAST_ROWS, factor, nothing_to_send, varies_in_one_feature
from flareclust.core.lloyd import labels_of, member_statistics
from flareclust.core.local import Sendable, clusters_to_send, means_of_groups, without_remainder
from flareclust.core.microaggregation import SMALLEST_GROUP, microaggregate_with_sources
from flareclust.executors.feca import coarse
from flareclust.executors.kfed import own_numbers
from flareclust.federation.executor import ClusteringExecutor
from flareclust.preparation.assignment import BY_REPRESENTATIVES, of_nearest_representative
from flareclust.preparation.settings import ScaledParams
from flareclust.protocol.params import both, server, site
from flareclust.protocol.rows import SiteRows
from flareclust.protocol.schema import Field, Schema, counts, real
from flareclust.protocol.steps import Step
from flareclust.protocol.task import StepName, Task

_log = logging.getLogger(__name__)

#: The clusters that are tried at most where k is left out.
_MOST = 50

#: What says which cluster rows of late sites belong to.
_REPRESENTATIVES = Schema(
    representatives="p d",
    representative_cluster=Field(("p",), "int64", -1, less_than="k"),
    representative_reach=real("p", minimum=0),
)


class TreeParams(ScaledParams):
    """Parameters of trees of micro-clusters."""

    without_k: ClassVar[Mapping[str, Any]] = MappingProxyType({"k": _MOST, "cut": "longest"})

    group_rows: int = site(5, "Rows of a micro-cluster at least.", ge=SMALLEST_GROUP)
    max_groups: int = both(
        1000, "Micro-clusters of a site at most; those of larger sites have more rows.", ge=1, le=100_000
    )
    shape: Literal["ward", "density"] = server(
        "ward", "The tree: Ward's, for compact clusters, or HDBSCAN's, for clusters of any shape and rows in none."
    )
    cut: Literal["k", "longest"] | PositiveInt = server(
        "k", "Where the tree is cut: to k clusters, or to the number up to k that lasts longest, of all or from one on."
    )
    min_cluster_size: int | None = server(
        None, "With shape=density, rows of a cluster at least; None for those of three mean micro-clusters.", ge=2
    )
    min_samples: int | None = server(
        None, "With shape=density, rows around a place that make it dense; None for min_cluster_size.", ge=1
    )

    @model_validator(mode="after")
    def _fit(self) -> "TreeParams":
        if isinstance(self.cut, int) and self.cut > self.k:
            raise UserError(f"cut={self.cut} is more than k={self.k}; give the smallest number of clusters to try")
        given = [name for name in ("min_cluster_size", "min_samples") if getattr(self, name) is not None]
        if given and self.shape == "ward":
            raise UserError(f"{given[0]} is for shape=density, and shape is ward; leave it out, or set shape=density")
        return self


class TreeExecutor(ClusteringExecutor):
    """A site that sends micro-clusters of its rows."""

    params: TreeParams
    steps = {StepName.CLUSTER: Step(Schema(centroids="k d", counts=counts("k", minimum=1), sse=real("k", minimum=0)))}

    placed_by: ClassVar[tuple[str, ...]] = ("centroids", *BY_REPRESENTATIVES)

    @classmethod
    def warm_up(cls) -> None:
        """Compile the kernels of the server's trees beside the others."""
        super().warm_up()
        ward_tree.warm_up()
        density_tree.warm_up()

    def local(self, task: Task, rows: SiteRows) -> Message:
        """Group the rows and describe the groups."""
        groups = self._groups(rows)
        if not len(groups.counts):
            raise nothing_to_send(rows.context.min_count)
        sse = member_statistics(rows.X, groups.labels, groups.centroids).sse
        sse = np.where(varies_in_one_feature(rows.X, groups.labels, len(sse)), coarse(sse), sse)
        scale = factor(groups.counts, rows.context.round_counts, rows.context.min_count)
        return {"centroids": groups.centroids, "counts": groups.counts, "sse": sse * scale}

    def labels(self, task: Task, rows: SiteRows) -> IntArray:
        """Return the cluster of the group of each row (n,), -1 for rows in none.

        The task has the cluster of each group, `group` (c,), and the `site_number` of its site, `group_site` (c,); for late sites
        representatives of the clusters in their place.
        """
        if "group" not in task.arrays:
            return _of_late_rows(task, rows.X)
        groups, cluster = self._groups(rows.of(rows.seen)), own_numbers(task, "group", -1)
        if len(cluster) != len(groups.counts):
            said = "%d groups have a cluster where %d were sent; labels go by the nearest centroid"
            _log.warning(said, len(cluster), len(groups.counts))
            return super().labels(task, rows)
        own = groups.labels if rows.seen is rows.X else labels_of(rows.X, groups.centroids)
        return np.append(cluster, -1)[own]

    def _groups(self, rows: SiteRows) -> Sendable:
        """Return the groups of the rows that may be sent."""
        rows.check_enough()
        X, least = rows.X, max(rows.context.min_count, LEAST_ROWS)
        floor = max(least, min(len(X), max(self.params.group_rows, -(-len(X) // self.params.max_groups))))
        labels = rows.groups
        if labels is None or np.bincount(labels).min() < floor or labels.max() >= self.params.max_groups:
            labels = _grouped(rows, floor)
        clusters, _ = means_of_groups(X, labels, np.zeros((int(labels.max(initial=-1)) + 1, X.shape[1])))
        sent = clusters_to_send(X, clusters, rows.context.min_count, known=rows.known, required=False)
        return without_remainder(X, sent, rows.context.min_count) if rows.context.secure else sent


def _grouped(rows: SiteRows, floor: int) -> IntArray:
    """Return the group of at least `floor` rows that each row is in (n,), -1 for none."""
    labels, found = np.full(len(rows.X), -1, dtype=np.int64), 0
    stop_if(rows.aborted, "before rows were grouped")
    for _, sources, groups in microaggregate_with_sources(rows.X, floor):
        labels[sources] = groups + found
        found += int(groups.max(initial=-1)) + 1
        stop_if(rows.aborted, f"after {found} groups of rows")
    return labels


def _of_late_rows(task: Task, X: FloatArray) -> IntArray:
    """Return the cluster of the nearest representative for each row (n,); BadMessage where the task has no such."""
    found = {name: task.arrays[name] for name in BY_REPRESENTATIVES if name in task.arrays}
    _REPRESENTATIVES.check(found, {"d": X.shape[1], "k": len(task.arrays["centroids"])})
    return of_nearest_representative(found, X)
