"""The rows of one site, as the method of a step gets them: what computing from them takes, and what may be sent of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import AbortCheck, BoolArray, FloatArray, IntArray, Message, never_abort
from flareclust._foundation.validation import LARGEST
from flareclust.core import assessment, local, scaling, spectral, trimming
from flareclust.core import profiles as profile_sums
from flareclust.core.chunks import pieces
from flareclust.core.disclosure import LEAST_ROWS, check_enough, factor
from flareclust.core.group_kernels import squares_of_each
from flareclust.core.lloyd import Clustering, labels_of, member_statistics
from flareclust.core.missing.assessment import masked_sums
from flareclust.core.missing.distances import nearest_by_known
from flareclust.core.missing.gaps import complete, complete_alone
from flareclust.data.tables import Table

#: Starts of the clustering with which a site completes rows before it clusters them.
_STARTS = 10


@dataclass(frozen=True)
class SiteContext:
    """What holds for one reply of one site.

    Attributes:
        min_count: clusters with fewer rows are not sent: the job's parameter, or what the site's policy states if that is more.
        round_counts: numbers of rows leave as multiples of it; sums over these rows are scaled with them.
        grouped: whether the rows are groups of similar rows that a policy has put in the place of the site's.
        secure: whether the site's sums leave it masked in this job.
        reported: groups of a masked sum that have enough rows over all sites (K,); rows of the others go to the nearest
            of these. None where no total decides.
        ones: what 1 is in each column (d,), where all are of 0 and 1 (`flareclust.core.disclosure.describable`).
        sum_sites: over how many sites the reply is added up, masked, as the job says of itself; 0 where it leaves as it is.
        repeats: how often the same row may be there, since it counts as several; `min_count` is of so many more rows then.
        dp: what the site grants the job under differential privacy (`flareclust.privacy.dp`); None where it grants nothing.
    """

    min_count: int = 2
    round_counts: int = 1
    grouped: bool = False
    secure: bool = False
    reported: BoolArray | None = None
    ones: FloatArray | None = None
    sum_sites: int = 0
    repeats: int = 1
    dp: object = None

    def of_repeated(self, repeats: int) -> "SiteContext":
        """Return what holds for rows duplicated by weights: a cluster needs `repeats` times as many rows for enough of them to differ.

        Three at least, since sums over two rows can be solved for them.
        """
        if repeats <= 1:
            return self
        return replace(self, min_count=max(self.min_count, LEAST_ROWS) * repeats, repeats=repeats)

    @property
    def least_rows(self) -> int:
        """Return the smallest number of the site's rows in a group that is reported; 0 where the total decides."""
        return 0 if self.reported is not None and not self.grouped else self.min_count


class Groups(NamedTuple):
    """Groups of rows that may be described to others.

    Attributes:
        centroids: their means (c, d).
        counts: rows of each (c,).
        cluster: which of the centroids asked about these are (c,).
        inertia: sum of the squared distances of their rows to the centroids asked about.
    """

    centroids: FloatArray
    counts: IntArray
    cluster: IntArray
    inertia: FloatArray


@dataclass(frozen=True)
class SiteRows:
    """The rows of one site for one step, with what computing from them takes: the argument of every step's method.

    Rows are in memory or in a mapped file here; `flareclust.sites.part_rows` has those in parts on a site's cluster,
    `flareclust.devices.rows` those of many small sites. The same methods compute the same of all of them; `X` and what is
    computed from it are for rows in this process.

    Attributes:
        table: the rows in the units of the columns, with their names; at a site with a policy the groups that it shows.
        rng: a generator of the job, the round and the site. For labels it is that of round 0, so that a local clustering can
            be repeated.
        aborted: whether to stop, which raises `Aborted`.
        context: what the site asks of the reply, such as the smallest cluster that may be sent.
        prepared: the rows (n, d) as the algorithm sees them: filled, scaled, embedded; None for those of the table.
        computed: for labels, the rows (m, d) that replies were computed from: at a site with a policy groups, with
            missing=drop-rows those without gaps.
        groups: at a site with a policy, the group of each of the rows that replies are computed from (m,).
        known: which cells (n, d) were not filled in; None for all.
        fill: what missing cells are filled with (d,), in the units of the columns; None where rows have none.
        gaps: where missing cells stay open, what they are filled with at first (d,), in the units of `X`; None where there are none.
        directions: whether rows are of length 1, or at the origin, where they have no direction.
        trim: share of the rows, those farthest from the centroids, that is left out.
        private: whether all that leaves is differentially private, so that neither number nor size of the rows may be seen in it.
        distance: where centroids may have unknown entries (NaN), how rows are compared with them on the known ones; "" elsewhere.
    """

    table: Table
    rng: np.random.Generator
    aborted: AbortCheck = never_abort
    context: SiteContext = SiteContext()
    prepared: FloatArray | None = None
    computed: FloatArray | None = None
    groups: IntArray | None = None
    known: BoolArray | None = None
    fill: FloatArray | None = None
    gaps: FloatArray | None = None
    directions: bool = False
    trim: float = 0.0
    private: bool = False
    distance: str = ""

    @property
    def X(self) -> FloatArray:  # noqa: N802
        """Return the rows (n, d) as the algorithm sees them."""
        return self.raw if self.prepared is None else self.prepared

    @property
    def raw(self) -> FloatArray:
        """Return the rows (n, d) as they are in the table."""
        return self.table.X

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.X)

    @property
    def d(self) -> int:
        """Return the number of columns that the algorithm sees."""
        return int(self.X.shape[1])

    @property
    def seen(self) -> FloatArray:
        """Return the rows (m, d) that replies were computed from."""
        return self.X if self.computed is None else self.computed

    def of(self, X: FloatArray, known: BoolArray | None = None) -> "SiteRows":
        """Return other rows (n, d) with the same conditions, without gaps."""
        return replace(self, prepared=X, computed=None, known=known, gaps=None)

    def under(self, **conditions: object) -> "SiteRows":
        """Return the same rows where the context has other values."""
        return replace(self, context=replace(self.context, **conditions))  # type: ignore[arg-type]

    # ---- how rows are prepared, which the stages of a job say ----

    def scaled(self, mean: FloatArray, deviation: FloatArray) -> "SiteRows":
        """Return the rows with `mean` (d,) taken away from the columns, and divided by `deviation` (d,)."""
        gaps = None if self.gaps is None else (self.gaps - mean) / deviation
        return replace(self, prepared=(self.X - mean) / deviation, gaps=gaps)

    def one_by_one(self) -> None:
        """Say that what follows depends on the name of the site, so that many sites are not computed at once."""

    def check_unchanged(self, table: Table) -> None:
        """Raise Refusal where the file of the site's own table has changed since it was opened."""
        if table.stamp is not None:
            table.check_unchanged()

    def check_enough(self) -> None:
        """Raise Refusal where there are fewer rows than a cluster must have to be sent."""
        check_enough(self, self.context.min_count)

    def check_sums(self) -> None:
        """Raise Refusal where sums over all rows would disclose them."""
        if len(self) < self.context.min_count:
            raise Refusal(
                f"has fewer rows than min_count={self.context.min_count}, so sums over them would disclose the rows"
            )

    # ---- completed and trimmed rows ----

    def completed(self, centroids: FloatArray) -> "SiteRows":
        """Return the rows without gaps, as they are compared with centroids (k, d)."""
        return self if self.gaps is None else self.of(*complete(self.X, centroids, self.context.min_count))

    def trimmed(self, centroids: FloatArray) -> "SiteRows":
        """Return the rows without the share farthest from centroids (k, d); so many stay that the site may still report them."""
        if not self.trim:
            return self
        spare = max(0, len(self) - self.context.min_count)
        kept = trimming.nearest_rows(self.X, centroids, min(self.trim, spare / max(1, len(self))))
        return replace(self.of(kept, self.known), trim=0.0)

    def settled(self, k: int, n_init: int = _STARTS) -> "SiteRows":
        """Return the rows completed and trimmed by k clusters of the site's own (`n_init` starts), before the job has any centroids."""
        rows, least = self, self.context.min_count
        if self.gaps is not None:
            rows = self.of(
                *complete_alone(self.X, self.gaps, k, self.rng, n_init=_STARTS, least=least, aborted=self.aborted)
            )
        if not self.trim:
            return rows
        kept = trimming.trimmed_rows(rows.X, k, self.trim, self.rng, n_init=n_init, aborted=self.aborted)
        return replace(rows.of(kept, rows.known), trim=0.0)

    # ---- clusters of the site's own ----

    def seeds(self, k: int, seeds: local.Seeds, n_candidates: int | None = None) -> local.Sendable:
        """Return the cells of k seeds that may be sent (`flareclust.core.local.seed_cells`)."""
        return local.seed_cells(
            self.X,
            k,
            self.rng,
            seeds=seeds,
            min_count=self.context.min_count,
            ones=self.context.ones,
            aborted=self.aborted,
            n_candidates=n_candidates,
            known=self.known,
        )

    def clusters(
        self,
        k: int,
        *,
        n_init: int,
        local_kmeans: local.LocalKMeans = "lloyd",
        small_clusters: local.SmallClusters = "withhold",
    ) -> local.Sendable:
        """Return the clusters of the site's own k-means that may be sent (`flareclust.core.local.local_clusters`)."""
        return local.local_clusters(
            self.X,
            k,
            self.rng,
            n_init=n_init,
            min_count=self.context.min_count,
            aborted=self.aborted,
            local_kmeans=local_kmeans,
            small_clusters=small_clusters,
            known=self.known,
        )

    def spectral_clusters(self, k: int, small_clusters: local.SmallClusters) -> local.Sendable:
        """Return the clusters of `spectral_clustering` that may be sent."""
        return local.clusters_to_send(self.X, self.spectral_clustering(k, small_clusters), self.context.min_count)

    def spectral_clustering(self, k: int, small_clusters: local.SmallClusters) -> Clustering:
        """Return k clusters by spectral projection (`flareclust.core.spectral`), fewer where the site has few rows."""
        self.check_enough()
        least = self.context.min_count
        found = spectral.local_kmeans(self.X, min(k, len(self) // least), self.rng, self.aborted)
        return local.dissolve_small(self.X, found, least) if small_clusters == "dissolve" else found

    # ---- rows nearest to centroids ----

    def nearest(self, centroids: FloatArray) -> IntArray:
        """Return the nearest of centroids (k, d) of each row (n,); -1 for rows without a known cell, or a direction."""
        if self.distance:
            return nearest_by_known(self.X, centroids, self.distance)
        if self.gaps is not None:
            labels = labels_of(complete(self.X, centroids).rows, centroids)
            return np.where(np.isnan(self.X).all(axis=1), -1, labels)
        if self.private:  # values whose squares overflow count as the largest that do not
            labels = np.empty(len(self), np.int64)
            for part in pieces(*self.X.shape):
                labels[part] = labels_of(np.clip(self.X[part], -LARGEST, LARGEST), centroids)
            return labels
        labels = labels_of(self.X, centroids)
        return np.where(scaling.without_direction(self.X), -1, labels) if self.directions else labels

    def means(self, centroids: FloatArray) -> local.Sendable:
        """Return the means of the rows nearest to each of centroids (k, d), as far as they may be sent.

        Raises:
            Refusal: the site has fewer rows than a report must cover.
        """
        return self.completed(centroids).trimmed(centroids)._means_about(centroids)

    def _means_about(self, centroids: FloatArray) -> local.Sendable:
        """Return the means about centroids (k, d) of rows without gaps, all of them."""
        of = self.context
        return local.lloyd_update(self.X, centroids, of.least_rows, of.reported, ones=of.ones, known=self.known)

    def update(self, centroids: FloatArray) -> Groups:
        """Return what `means` does, and the inertia of the rows behind them.

        It is scaled to numbers of rows that are rounded to multiples, because the exact one would give them away. It is without
        groups of fewer than `LEAST_ROWS` rows, unless totals over sites are large enough: with their mean it would be the rows.
        """
        context, rows = self.context, self.completed(centroids).trimmed(centroids)
        found = rows._means_about(centroids)
        labels = np.append(found.source, -1)[found.labels]
        sse = member_statistics(rows.X, labels, centroids).sse
        sse[found.source] *= factor(found.counts, context.round_counts, context.min_count)
        if context.least_rows:
            sse[found.source[found.counts < LEAST_ROWS]] = 0.0
        return Groups(found.centroids, found.counts, found.source, np.array(sse.sum()))

    def spread(self, solutions: Sequence[FloatArray] | None) -> Message:
        """Return the groups of the rows nearest to each centroid of several solutions (k, d), numbered in turn, with their spread.

        Without solutions all rows are one group. Solutions are about the same rows, those that are not trimmed.
        """
        rows = self
        if solutions is None:  # whatever the centroid
            solutions = [np.nan_to_num(self.X[:1])]
        else:
            rows = self.trimmed(np.concatenate(solutions))
        parts, first = [], 0
        for solution in solutions:
            reported = self.context.reported
            mine = rows.under(reported=None if reported is None else reported[first : first + len(solution)])
            part = mine._spread_about(solution)
            parts.append({**part, "cluster": part["cluster"] + first})
            first += len(solution)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _spread_about(self, centroids: FloatArray) -> Message:
        """Return the groups about one solution (k, d); none with fewer rows than a report must cover."""
        rows, least = self.completed(centroids), self.context.least_rows
        if len(rows) < least:
            nothing = rows.X[:0]
            return {"cluster": np.arange(0), "counts": np.arange(0), "centroids": nothing, "m2": nothing}
        found = rows._means_about(centroids)
        m2 = squares_of_each(rows.X, found.labels, found.centroids)
        if least:  # mean and deviations of two rows are these rows
            m2[found.counts < LEAST_ROWS] = 0.0
        return {"cluster": found.source, "counts": found.counts, "centroids": found.centroids, "m2": m2}

    # ---- sums over all rows ----

    def column_spread(self) -> scaling.Spread:
        """Return number of rows, means (d,) and deviations (d,) of the table's columns, rounded (`flareclust.core.scaling`)."""
        return scaling.rounded_spread(self.raw, self.context.repeats)

    def assessed(self, centroids: FloatArray) -> Message:
        """Return the sums of the assessment (`flareclust.core.assessment`) by centroid (k, d), and their totals."""
        if self.distance:
            return assessed_totals(masked_sums(self.X, centroids, self.distance), self.context)
        return assessed_totals(assessment.assessment_sums(self.completed(centroids).X, centroids)[1], self.context)

    def profiled(self, centroids: FloatArray, labels: IntArray) -> Message:
        """Return rows, means and squared deviations of the table's columns by final cluster, of those that may be described.

        Args:
            centroids: the final ones (k, d).
            labels: the final cluster (n,) of each row; -1 for none.
        """
        kept, counts, means, m2 = profile_sums.moments(self.raw, labels, len(centroids), self.context.min_count)
        return {"cluster": kept, "counts": counts, "centroids": means, "m2": m2}


class OtherRows(ABC):
    """Rows of a site that are not in this process: steps are computed where they are."""

    @abstractmethod
    def site_rows(self, rng: np.random.Generator, aborted: AbortCheck, context: SiteContext) -> SiteRows:
        """Return the rows for one step."""


def assessed_totals(sums: Message, context: SiteContext) -> Message:
    """Return the sums of an assessment by centroid (k,) as they may leave, and the totals of those that leave in all only."""
    if context.grouped:
        sums = assessment.without_small(sums, context.min_count)
        scale = factor(sums["counts"], context.round_counts, context.min_count)
        sums |= {name: value * scale for name, value in sums.items() if name != "counts"}
    return sums | {name: sums[name].sum() for name in assessment.TOTALS}
