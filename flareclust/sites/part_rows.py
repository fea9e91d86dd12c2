"""Rows in parts on a site's cluster, as the methods of steps get them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray, Message
from flareclust.core import part_kmeans, part_sums
from flareclust.core.disclosure import LEAST_ROWS, nothing_to_send
from flareclust.core.lloyd import labels_of
from flareclust.core.local import LocalKMeans, Seeds, Sendable, SmallClusters
from flareclust.core.parts import Parts, View
from flareclust.core.scaling import Spread, rounded
from flareclust.privacy.session import SiteSession
from flareclust.protocol.params import values_in_parts
from flareclust.protocol.registry import algorithms, name_of
from flareclust.protocol.rows import Groups, SiteRows, assessed_totals

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: How refusals of sites with a cluster begin, and that of one which also has a policy.
_WHERE = "computes on a Dask cluster (compute in local/flareclust.yaml)"
POLICED = f"{_WHERE} and has a policy, whose groups of rows are made in one process; take one of the two out of the kit"


def check_in_parts(executor: "ClusteringExecutor", session: SiteSession | None) -> None:
    """Raise Refusal where an algorithm, its settings or the site's policy need all rows in one process."""
    if session is not None:
        raise Refusal(POLICED)
    able = [algorithm.name for algorithm in algorithms().values() if algorithm.in_parts]
    if name_of(type(executor)) not in able:
        raise Refusal(
            f"{_WHERE}, which can run {', '.join(sorted(able))}; take one of these, or take compute out of the site's configuration"
        )
    for name, field in executor.params.own().items():
        possible = values_in_parts(field)
        if possible is not None and getattr(executor.params, name) not in possible:
            raise Refusal(
                f"{_WHERE}, which takes {name}={' or '.join(map(str, possible))} only; set that, or take compute out of the "
                "site's configuration"
            )


@dataclass(frozen=True, kw_only=True)
class PartRows(SiteRows):
    """Rows in parts; the table has the extremes of their columns, which stand for the rows where only size and names matter.

    Results are those of `SiteRows`, but for rounding: sums are added part by part.

    Attributes:
        parts: as the algorithm sees them.
        own: as they are.
    """

    parts: Parts
    own: Parts

    @property
    def X(self) -> FloatArray:  # noqa: N802
        """Raise Refusal: the rows are not in this process."""
        raise Refusal(f"{_WHERE}, where this step cannot be computed")

    @property
    def raw(self) -> FloatArray:
        """Raise Refusal, as `X` does: the table has the extremes only."""
        return self.X

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.parts)

    @property
    def d(self) -> int:
        """Return the number of columns."""
        return self.parts.d

    def check_unchanged(self, table: object) -> None:
        """Raise Refusal where a file has changed since its part was read."""
        self.own.check_unchanged()

    def scaled(self, mean: FloatArray, deviation: FloatArray) -> "PartRows":
        """Return the rows with `mean` (d,) taken away from the columns, and divided by `deviation` (d,)."""
        return replace(self, parts=self.parts.seen(View(mean, deviation)))

    def settled(self, k: int, n_init: int = 0) -> "PartRows":
        """Return the rows as they are: they have no gaps, and none is trimmed."""
        return self

    def seeds(self, k: int, seeds: Seeds, n_candidates: int | None = None) -> Sendable:
        """Return the cells of k seeds that may be sent."""
        least = self.context.min_count
        self.check_enough()
        drawn = part_kmeans.kmeans_plusplus(self.parts, min(k, len(self) // least), self.rng, n_candidates=n_candidates)
        cells = part_sums.groups_about(self.parts, drawn)
        if seeds == "rows":
            cells = cells.of(cells.counts >= least)
            return _sendable(cells)._replace(centroids=drawn[cells.source])
        keep = part_sums.may_be_described(self.parts, cells, least, ones=self.context.ones)
        if not keep.any():
            raise nothing_to_send(least)
        return _sendable(cells.of(keep))

    def clusters(
        self, k: int, *, n_init: int, local_kmeans: LocalKMeans = "lloyd", small_clusters: SmallClusters = "withhold"
    ) -> Sendable:
        """Return the clusters of the site's own k-means that may be sent; jobs with other settings are refused before."""
        least = self.context.min_count
        found, keep = part_kmeans.local_clusters(self.parts, k, self.rng, n_init=n_init, min_count=least)
        if not keep.any():
            raise nothing_to_send(least)
        return _sendable(found.of(keep))

    def nearest(self, centroids: FloatArray) -> Iterator[int]:  # type: ignore[override]  # written to a file one by one
        """Give the nearest of centroids (k, d) of each row, part by part."""
        found = self.parts.in_turn(labels_of, shared=(centroids,))
        return chain.from_iterable(own.tolist() for own in found)

    def update(self, centroids: FloatArray) -> Groups:
        """Return the means of the rows nearest to each of centroids (k, d), as far as they may be sent."""
        context = self.context
        found, keep = part_sums.lloyd_update(
            self.parts, centroids, context.least_rows, context.reported, ones=context.ones
        )
        found = found.of(keep)
        sent = found.counts >= (LEAST_ROWS if context.least_rows else 0)
        return Groups(found.centroids, found.counts, found.source, np.array(found.sse[sent].sum()))

    def spread(self, solutions: Sequence[FloatArray] | None) -> Message:
        """Return the groups of the rows nearest to each centroid of several solutions (k, d), numbered in turn, with their spread."""
        # All rows are in one group, whatever its centroid, where no solutions are sent.
        asked = [self.parts.extent.mean[None]] if solutions is None else solutions
        found, first, reported = [], 0, self.context.reported
        for solution in asked:
            mine = None if reported is None else reported[first : first + len(solution)]
            found.append(self._spread_of(solution, mine, first))
            first += len(solution)
        return {name: np.concatenate([own[name] for own in found]) for name in found[0]}

    def _spread_of(self, solution: FloatArray, reported: BoolArray | None, first: int) -> Message:
        """Return the groups of one solution with their spread, counted from `first`."""
        least, nothing = self.context.least_rows, np.zeros((0, self.d))
        if len(self) < least:
            return _groups(np.arange(0), np.arange(0), nothing, nothing)
        groups, keep = part_sums.lloyd_update(self.parts, solution, least, reported, ones=self.context.ones)
        if not len(groups.source):
            return _groups(groups.source, groups.counts, groups.centroids, groups.centroids)
        m2, groups = part_sums.squared_deviations(self.parts, groups)[keep], groups.of(keep)
        if least:
            m2[groups.counts < LEAST_ROWS] = 0.0
        return _groups(groups.source + first, groups.counts, groups.centroids, m2)

    def column_spread(self) -> Spread:
        """Return number of rows, means (d,) and deviations (d,) of the columns, rounded."""
        extent = self.own.extent
        deviation = np.where(extent.largest > extent.least, np.sqrt(self.own.variance()), 0.0)
        return rounded(Spread(extent.rows, extent.mean, deviation))

    def assessed(self, centroids: FloatArray) -> Message:
        """Return the sums of the assessment by centroid (k, d), and their totals."""
        return assessed_totals(part_sums.assessed(self.parts, centroids), self.context)

    def profiled(self, centroids: FloatArray, labels: IntArray) -> Message:
        """Return rows, means and squared deviations of the columns by final cluster, of those that may be described."""
        groups = part_sums.groups_about(self.own, centroids, part_sums.nearest(self.parts, centroids))
        keep = part_sums.may_be_described(self.own, groups, max(self.context.min_count, LEAST_ROWS))
        m2, groups = part_sums.squared_deviations(self.own, groups)[keep], groups.of(keep)
        return _groups(groups.source, groups.counts, groups.centroids, m2)


def _sendable(found: part_sums.Groups) -> Sendable:
    """Return groups as clusters that may be sent; the labels of their rows are in parts."""
    return Sendable(found.centroids, found.counts, np.zeros(0, dtype=np.int64), found.source)


def _groups(cluster: IntArray, counts: IntArray, centroids: FloatArray, m2: FloatArray) -> Message:
    """Return the arrays about groups of rows with their spread."""
    cluster, counts = np.asarray(cluster, dtype=np.int64), np.asarray(counts, dtype=np.int64)
    return {"cluster": cluster, "counts": counts, "centroids": centroids, "m2": m2}
