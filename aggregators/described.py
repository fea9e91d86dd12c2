"""The server's side of algorithms for sites that need not have the same columns.

The first exchange, `describe`, forms the union of the sites' columns. From then on every task carries the columns'
codes, and every result who has which column.
"""

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from itertools import combinations
from typing import Self

import numpy as np

from flareclust._foundation.errors import JobFailed
from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.aggregators.base import ClusteringAggregator
from flareclust.aggregators.odd_columns import OF_SITES, log_before_rounds, odd_between_sites, of_described, of_known
from flareclust.aggregators.scaled import MISSING_CELLS, MOMENTS_DEVIATION, MOMENTS_MEAN, begun, scaled_by_bins
from flareclust.core import categories as category_columns
from flareclust.core.missing.assessment import masked_metrics
from flareclust.core.rounds import HISTORY
from flareclust.core.scaling import KnownSpread, pooled_known_spread
from flareclust.features import alignment
from flareclust.features.columns import by_column, common, gather, restored, scaled, spreads
from flareclust.protocol.columns import FILL, Columns
from flareclust.preparation import settings
from flareclust.protocol.replies import ALL
from flareclust.protocol.rounds import Round
from flareclust.protocol.schema import MOST_COLUMNS
from flareclust.protocol.task import StepName

#: Key of the sites' squared deviations (m,), in scaled units.
_SITE_SPREAD = "site_spread"

#: With `missing` other than refuse, the rows of the sites that take part (m,).
ROWS_BY_SITE = "rows_by_site"

#: What every round keeps.
_KEPT = (_SITE_SPREAD, ROWS_BY_SITE, MISSING_CELLS, *OF_SITES)


class DescribedAggregator(ClusteringAggregator):
    """The server of sites whose columns may differ.

    Kept with every result: `columns` (D,) codes, `column_names` (D,), `column_sites` (m,) and `column_masks` (m, D), who
    has which column; `mask` (k, D), which entries of the centroids are known, the others being NaN; with `scale=standard`
    `site_spread` (m,), the squared deviations of each site's rows from their mean in scaled units. With `missing` other than
    refuse `rows_by_site` (m,), the rows that take part; with `mean` `fill` (D,) and `missing_cells` (D,), of all sites.
    """

    params: settings.ColumnsParams

    #: Whether means and variances come as totals.
    _totals = False

    def secured(self) -> Self:
        """Return this aggregator with means and variances from totals, asked for after the columns' names."""
        secured = copy(self)
        secured._totals = True
        return secured

    def begin(self) -> Round:
        """Ask the sites for their columns first."""
        return Round(step=StepName.DESCRIBE)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Form the union of the columns, or merge a round of the algorithm."""
        if round_.step == StepName.DESCRIBE:
            fills, by_bins = self.params.missing == "mean", self.params.scale in settings.BY_BINS
            sums = fills or self.params.scale != "none" or self.params.shown == "imputed"
            columns = gather(replies, sums=sums and not (fills or by_bins or self._totals))
            numbers = {
                "columns": float(len(columns.codes)),
                "columns_shared_by_all": float(columns.masks.all(axis=0).sum()),
                "columns_of_one_site": float((columns.masks.sum(axis=0) == 1).sum()),
            }
            if self.params.shown == "common":
                columns = common(columns)
            record = columns.kept()
            if self.params.missing != "refuse":
                record[ROWS_BY_SITE] = np.array([int(replies[site]["rows"]) for site in columns.sites])
            if sums and columns.mean is None:
                step = StepName.KNOWN_MOMENTS if fills or by_bins else StepName.MOMENTS
                return Round(columns.sent(), diagnostics=numbers, record=record, step=step)
            if sums:
                record |= self._compared(columns, of_described(columns, replies))
            columns = self._of_one_category(columns)
            if self.params.scale == "standard" and self.params.shown == "own":
                record[_SITE_SPREAD] = spreads(columns, replies)
            return Round(columns.sent(), diagnostics=numbers, record=record)
        columns = restored({**round_.record, **round_.task})
        if round_.step in (StepName.MOMENTS, StepName.KNOWN_MOMENTS):
            return self._described(round_, columns, replies)
        if round_.step in (StepName.BINNED, StepName.FINER_BINNED):
            total = np.sum([reply["counts"] for reply in replies.values()], axis=0)
            return self._by_bins(columns, scaled_by_bins(self.params.scale, self._ranges(columns), round_, total))
        merged = self.merge_described(round_, columns, replies, rng)
        spread = {name: round_.record[name] for name in _KEPT if name in round_.record}
        return replace(
            merged, task={**columns.sent(), **merged.task}, record={**columns.kept(), **spread, **merged.record}
        )

    def _described(self, round_: Round, columns: Columns, replies: Mapping[str, Message]) -> Round:
        """Return what follows mean and standard deviation of the columns: a question about bins, or the algorithm's first round."""
        cells, mean, m2 = by_column(replies, len(columns.codes))
        spread = pooled_known_spread(cells, mean, m2)
        columns = scaled(columns, spread)
        record = columns.kept() | {name: round_.record[name] for name in _KEPT if name in round_.record}
        if ALL not in replies:
            record |= self._compared(columns, of_known(columns, replies))
        if self.params.missing == "mean":
            if ALL not in replies:  # a site that has refused since gave no cells
                record[ROWS_BY_SITE] = record[ROWS_BY_SITE] * np.isin(columns.sites, list(replies))
            record[MISSING_CELLS] = np.maximum(record[ROWS_BY_SITE] @ columns.masks - spread.counts, 0)
            columns = replace(columns, fill=columns.mean)
        if self.params.scale in settings.BY_BINS:
            if self.params.shown == "imputed":
                columns = replace(columns, fill=columns.mean)
            carried = {name: values for name, values in columns.sent().items() if name != "columns"}
            record |= {MOMENTS_MEAN: carried["mean"], MOMENTS_DEVIATION: spread.deviation}
            return self._by_bins(columns, begun(self.params.scale, self._ranges(columns), carried, record))
        if self.params.scale == "none" and self.params.shown != "imputed":
            columns = replace(columns, mean=None, deviation=None)
        return Round(self._of_one_category(columns).sent(), record=record)

    def _compared(self, columns: Columns, of_sites: Message) -> Message:
        """Return what is kept of the sites' own columns, after a warning of those that are odd at one of them."""
        valued = {name for group in self.params.categories or [] for name in group}
        log_before_rounds(odd_between_sites(of_sites, columns.names, np.isin(columns.names, list(valued))))
        return of_sites

    def _by_bins(self, columns: Columns, after: Round) -> Round:
        """Return the next question about bins, or the algorithm's first round with the scaling that follows from them."""
        if after.step in (StepName.BINNED, StepName.FINER_BINNED):
            return replace(after, task={"columns": columns.codes, **after.task})
        record = dict(after.record)
        mean, deviation = record.pop(MOMENTS_MEAN), record.pop(MOMENTS_DEVIATION)
        cells = np.ones(len(mean), dtype=np.int64)
        columns = scaled(
            replace(columns, fill=after.task.get(FILL)),
            KnownSpread(cells, after.task["mean"], after.task["deviation"]),
        )
        return Round(self._of_one_category(columns, mean, deviation).sent(), record=record)

    def _ranges(self, columns: Columns) -> list[list[float] | None]:
        """Return least and largest value of each column by the schema, None where it does not say."""
        ranges = self.params.table_ranges or {}
        return [ranges.get(name) for name in columns.names]

    def _of_one_category(
        self, columns: Columns, mean: FloatArray | None = None, deviation: FloatArray | None = None
    ) -> Columns:
        """Return the columns with those of each category scaled together, as `ScaledAggregator` does.

        Args:
            columns: with or without a scaling.
            mean: over all rows (D,), None for that of the scaling.
            deviation: over all rows (D,), 0 for a constant column; None for that of the scaling.
        """
        if self.params.scale == "none" or columns.mean is None or columns.deviation is None:
            return columns
        shares, spread = columns.mean if mean is None else mean, columns.deviation if deviation is None else deviation
        location, divisor = columns.mean.copy(), columns.deviation.copy()
        numbers = ~np.isin(columns.names, [name for group in self.params.categories or [] for name in group])
        of_number = category_columns.number_variance(spread[numbers], divisor[numbers])
        for group in self.params.categories or []:
            own = [j for j, name in enumerate(columns.names) if name in group]
            if not own and not any(name.startswith(alignment.HIDDEN) for name in columns.names):
                raise JobFailed(
                    f"no site has a column {' or '.join(map(repr, group))}, which categories name; correct them"
                )
            location[own] = shares[own]
            divisor[own] = category_columns.category_divisor(shares[own], spread[own], of_number) if own else 1.0
        return replace(columns, mean=location, deviation=divisor)

    @abstractmethod
    def merge_described(
        self, round_: Round, columns: Columns, replies: Mapping[str, Message], rng: np.random.Generator
    ) -> Round:
        """Merge one round's replies, as `merge` does for sites with the same columns.

        Args:
            round_: the round whose `task` the replies answer.
            columns: who has which column.
            replies: checked replies by site name, their columns (d) those that the site has, in the federation's order.
            rng: the server's generator of this round.

        Returns:
            The next round; its `centroids` (k, D) are NaN where nothing is known.
        """

    def own_sizes(self, round_: Round) -> dict[str, dict[str, int]]:
        """Return how many columns each site's reply must have."""
        if round_.step in (*StepName.BEFORE_ROUNDS, StepName.ASSESS) or "column_masks" not in round_.record:
            return {}
        masks = round_.record["column_masks"]
        widths = masks.sum(axis=1) if self.params.shown == "own" else np.full(len(masks), masks.shape[1])
        sites = round_.record["column_sites"].tolist()
        return {site: {"d": int(d)} for site, d in zip(sites, widths, strict=True)}

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries that a reply can have; the names of columns have about 16 bytes each, four to a number."""
        if round_.step == StepName.DESCRIBE:
            return {"o": MOST_COLUMNS, "s": MOST_COLUMNS, "b": 4 * MOST_COLUMNS}
        return {"k": MOST_COLUMNS, "d": 1} if round_.step == StepName.KNOWN_MOMENTS else super().limits(round_)

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return the label-free metrics over the entries that are known."""
        return masked_metrics(round_.task["centroids"], sums)

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Name the sites whose own clusters describe their rows better (aggregators/described.py)."""
        record, found = round_.record, []
        # Squared distances are not what is made small then.
        by_direction = self.params.distance != "euclidean"
        if by_direction or _SITE_SPREAD not in record or "received_centroids" not in record:
            return []
        for i, site in enumerate(record["column_sites"].tolist()):
            own = record["received_site"] == i
            used = int((assessed[site]["counts"] > 0).sum()) if site in assessed else 0
            if used < 2 or not own.any() or np.isnan(record[_SITE_SPREAD][i]):
                continue
            clusters, left = _enough_alone(used), float(assessed[site]["sse"])
            centroids = record["received_centroids"][own][:, record["column_masks"][i]]
            alone = _left_alone(float(record[_SITE_SPREAD][i]), centroids, record["received_counts"][own], clusters)
            if alone < left:
                found.append(
                    f"{site} is better off alone: {clusters} clusters of its own leave squared distances of {alone:,.0f} on its "
                    f"rows, {used} of the federation {left:,.0f}; its columns may not fit those of the others"
                )
        return found

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, the centroids in the data's units and with `mask`, which entries are known."""
        arrays = super().result(round_)
        if self.params.scale != "none":
            for name in ("centroids", HISTORY):
                if name in arrays:
                    arrays[name] = arrays[name] * arrays["deviation"] + arrays["mean"]
            arrays["standardized"] = np.array(True)
        return arrays | {"mask": ~np.isnan(arrays["centroids"])}


# Whether a site's own clustering describes its rows better than the federation's, from what the server has anyway.
#
# Added to Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": nobody knows true labels, so the
# measure is the sum of squared distances to the nearest centroid. With the scale of the columns a site sends the squared
# deviations of its rows from their mean; less those of its clusters' means they are what its own clusters leave. Those of
# the federated centroids are in the assessment. d is the number of the site's columns.
#
# Readings:
# 1. A site needs fewer clusters for its own rows than a federation: it counts as worse off only where three quarters as many
#    clusters of its own, rounded down, leave less than the federated centroids that have rows there. On healthy data, also with
#    20 clusters, they leave clearly more.
# 2. Fewer clusters are made of those that the site sent by merging the two that cost least (Ward), which is at best as good as
#    clustering anew. Rows of clusters that were not sent count as if in the mean of all. Both are in favour of the federation.
# 3. Clusters of different sites that were confused do not show in this measure, where each site's own rows are well apart.

_SHARE = 0.75


def _enough_alone(used: int) -> int:
    """Return how many clusters of its own must do for a site instead of `used` federated ones (reading 1), at least 1."""
    return max(1, int(_SHARE * used))


def _left_alone(spread: float, centroids: FloatArray, counts: IntArray, clusters: int) -> float:
    """Return the sum of squared distances that at most `clusters` clusters of a site leave (reading 2).

    Args:
        spread: squared deviations of all rows of the site from their mean, added.
        centroids: means of the clusters that the site sent (c, d), c >= 1.
        counts: their rows (c,).
        clusters: at least 1.
    """
    means, rows = [np.array(mean) for mean in centroids], [float(n) for n in counts]
    left = spread - float(counts @ ((centroids - counts @ centroids / counts.sum()) ** 2).sum(axis=1))
    while len(means) > clusters:
        price, i, j = min((_price(means, rows, i, j), i, j) for i, j in combinations(range(len(means)), 2))
        left += price
        n = rows[i] + rows[j]
        means[i], rows[i] = (rows[i] * means[i] + rows[j] * means[j]) / n, n
        del means[j], rows[j]
    return left


def _price(means: list[FloatArray], rows: list[float], i: int, j: int) -> float:
    """Return by how much the squared distances grow when clusters i and j are merged."""
    return rows[i] * rows[j] / (rows[i] + rows[j]) * float(((means[i] - means[j]) ** 2).sum())
