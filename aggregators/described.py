"""The server's side of algorithms for sites that need not have the same columns.

The first exchange, `describe`, forms the union of the sites' columns. From then on every task carries the columns'
codes, and every result who has which column.
"""

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np

from flareclust._foundation.typing import Message
from flareclust.aggregators.base import ClusteringAggregator, Round
from flareclust.aggregators.scaled import MISSING_CELLS
from flareclust.core.missing.alone import enough_alone, left_alone
from flareclust.core.missing.assessment import masked_metrics
from flareclust.core.rounds import HISTORY
from flareclust.core.scaling import pooled_known_spread
from flareclust.executors.described import View
from flareclust.executors.parameters import StandardizeParams
from flareclust.features.columns import Columns, by_column, common, gather, restored, scaled, spreads
from flareclust.protocol.schema import MOST_COLUMNS
from flareclust.protocol.task import ASSESS, CLUSTER, DESCRIBE, KNOWN_MOMENTS, MOMENTS

#: Key of the sites' squared deviations (m,), in scaled units.
SITE_SPREAD = "site_spread"

#: With `missing` other than refuse, the rows of the sites that take part (m,).
ROWS_BY_SITE = "rows_by_site"

_KEPT = (SITE_SPREAD, ROWS_BY_SITE, MISSING_CELLS)


class DescribedAggregator(ClusteringAggregator):
    """The server of sites whose columns may differ.

    Kept with every result: `columns` (D,) codes, `column_names` (D,), `column_sites` (m,) and `column_masks` (m, D), who
    has which column; `mask` (k, D), which entries of the centroids are known, the others being NaN; with `standardize`
    `site_spread` (m,), the squared deviations of each site's rows from their mean in scaled units. With `missing` other than
    refuse `rows_by_site` (m,), the rows that take part; with `mean` `fill` (D,) and `missing_cells` (D,), of all sites.
    """

    params: StandardizeParams

    #: Whether means and variances come as totals.
    _totals = False

    #: As the executor's.
    view: ClassVar[View] = "own"

    def secured(self) -> "DescribedAggregator":
        """Return this aggregator with means and variances from totals, asked for after the columns' names."""
        secured = copy(self)
        secured._totals = True
        return secured

    def begin(self) -> Round:
        """Ask the sites for their columns first."""
        return Round(step=DESCRIBE)

    def merge(self, round_: Round, replies: Mapping[str, Message], rng: np.random.Generator) -> Round:
        """Form the union of the columns, or merge a round of the algorithm."""
        if round_.step == DESCRIBE:
            fills = self.params.missing == "mean"
            sums = self.params.standardize or self.view == "imputed" or fills
            columns = gather(replies, sums=sums and not (self._totals or fills))
            numbers = {
                "columns": float(len(columns.codes)),
                "columns_shared_by_all": float(columns.masks.all(axis=0).sum()),
                "columns_of_one_site": float((columns.masks.sum(axis=0) == 1).sum()),
            }
            if self.view == "common":
                columns = common(columns)
            step = KNOWN_MOMENTS if fills else MOMENTS if sums and self._totals else CLUSTER
            record = columns.kept()
            if self.params.missing != "refuse":
                record[ROWS_BY_SITE] = np.array([int(replies[site]["rows"]) for site in columns.sites])
            if step == CLUSTER and self.params.standardize and self.view == "own":
                record[SITE_SPREAD] = spreads(columns, replies)
            return Round(columns.sent(), diagnostics=numbers, record=record, step=step)
        columns = restored({**round_.record, **round_.task})
        if round_.step in (MOMENTS, KNOWN_MOMENTS):
            return self._described(round_, columns, replies)
        merged = self.merge_described(round_, columns, replies, rng)
        spread = {name: round_.record[name] for name in _KEPT if name in round_.record}
        return replace(
            merged, task={**columns.sent(), **merged.task}, record={**columns.kept(), **spread, **merged.record}
        )

    def _described(self, round_: Round, columns: Columns, replies: Mapping[str, Message]) -> Round:
        """Return the first round of the algorithm, with mean and standard deviation of the columns and what fills gaps."""
        cells, mean, m2 = by_column(replies, len(columns.codes))
        spread = pooled_known_spread(cells, mean, m2)
        columns = scaled(columns, spread.counts, spread.mean, spread.counts * spread.deviation**2)
        record = columns.kept() | {name: round_.record[name] for name in _KEPT if name in round_.record}
        if round_.step == KNOWN_MOMENTS:
            rows = record[ROWS_BY_SITE] @ columns.masks
            record[MISSING_CELLS] = np.maximum(rows - spread.counts, 0)
            filling = replace(columns, fill=spread.mean)
            scales = self.params.standardize or self.view == "imputed"
            columns = filling if scales else replace(filling, mean=None, deviation=None)
        return Round(columns.sent(), record=record)

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
        if round_.step in (DESCRIBE, MOMENTS, KNOWN_MOMENTS, ASSESS) or "column_masks" not in round_.record:
            return {}
        masks = round_.record["column_masks"]
        widths = masks.sum(axis=1) if self.view == "own" else np.full(len(masks), masks.shape[1])
        sites = round_.record["column_sites"].tolist()
        return {site: {"d": int(d)} for site, d in zip(sites, widths, strict=True)}

    def limits(self, round_: Round) -> dict[str, int]:
        """Return the most entries that a reply can have; the names of columns have about 16 bytes each, four to a number."""
        if round_.step == DESCRIBE:
            return {"o": MOST_COLUMNS, "s": MOST_COLUMNS, "b": 4 * MOST_COLUMNS}
        return {"k": MOST_COLUMNS, "d": 1} if round_.step == KNOWN_MOMENTS else super().limits(round_)

    def quality(self, round_: Round, sums: Message) -> dict[str, float | None]:
        """Return the label-free metrics over the entries that are known."""
        return masked_metrics(round_.task["centroids"], sums)

    def warnings(self, round_: Round, assessed: Mapping[str, Message]) -> list[str]:
        """Name the sites whose own clusters describe their rows better (core/missing/alone.py)."""
        record, found = round_.record, []
        # Squared distances are not what is made small then.
        by_direction = getattr(self.params, "phi", "euclidean") != "euclidean"
        if by_direction or SITE_SPREAD not in record or "received_centroids" not in record:
            return []
        for i, site in enumerate(record["column_sites"].tolist()):
            own = record["received_site"] == i
            used = int((assessed[site]["counts"] > 0).sum()) if site in assessed else 0
            if used < 2 or not own.any() or np.isnan(record[SITE_SPREAD][i]):
                continue
            clusters, left = enough_alone(used), float(assessed[site]["sse"])
            centroids = record["received_centroids"][own][:, record["column_masks"][i]]
            alone = left_alone(float(record[SITE_SPREAD][i]), centroids, record["received_counts"][own], clusters)
            if alone < left:
                found.append(
                    f"{site} is better off alone: {clusters} clusters of its own leave squared distances of {alone:,.0f} on its "
                    f"rows, {used} of the federation {left:,.0f}; its columns may not fit those of the others"
                )
        return found

    def result(self, round_: Round) -> Message:
        """Return the arrays of the result, the centroids in the data's units and with `mask`, which entries are known."""
        arrays = super().result(round_)
        if self.params.standardize:
            for name in ("centroids", HISTORY):
                if name in arrays:
                    arrays[name] = arrays[name] * arrays["deviation"] + arrays["mean"]
            arrays["standardized"] = np.array(True)
        return arrays | {"mask": ~np.isnan(arrays["centroids"])}
