"""What a result says about its clusters: tables of moments, quantiles and association, from the arrays of its profile."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core import shallow_tree
from flareclust.core.profiles import are_shares, in_bins, is_binary, quantiles
from flareclust.data.cells import levels_in, nearest_level, without_log
from flareclust.protocol import cluster_arrays as keys

#: The quantiles that tables have.
_QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}

#: Mean and median of a skewed column are so many standard deviations apart; those of an exponential distribution are 0.31 apart.
_SKEWED = 0.2

#: Sums of integers may be off by this part of their size.
_ROUNDING = 1e-9

#: So many deviations of a cluster around its mean are where the outer bins end, which are open.
_ENDS = 2.0


def categories_among(columns: Sequence[str], places: Iterable[int]) -> dict[str, list[int]]:
    """Return which of these places of columns are the categories of one, such as `sex=f` and `sex=m`, by its name."""
    found: dict[str, list[int]] = {}
    for j in places:
        name, equals, _ = columns[j].partition("=")
        if equals:
            found.setdefault(name, []).append(j)
    return found


@dataclass(frozen=True)
class Profiles:
    """Profiles of k clusters in d columns.

    Attributes:
        columns: names (d,).
        arrays: of the result, as `flareclust.protocol.cluster_arrays` names them.
        row_name: what rows are called.
    """

    columns: tuple[str, ...]
    arrays: Mapping[str, Array]
    row_name: str = "rows"

    def unit(self, j: int) -> str:
        """Return the unit of a column, "" where it has none."""
        return keys.unit_of(self.arrays, j)

    def levels(self, j: int) -> tuple[str, ...]:
        """Return the values of an ordered column, from the least to the largest; none for others."""
        return levels_in(self.unit(j))

    @property
    def rows(self) -> IntArray:
        """Return how many rows of each cluster are described (k,); 0 for clusters with too few."""
        return self.arrays[keys.ROWS]

    @cached_property
    def cells(self) -> IntArray:
        """Return how many known cells of each cluster and column are described (k, d): of all rows, where no cell is missing."""
        return self.arrays.get(keys.CELLS, np.broadcast_to(self.rows[:, None], self.arrays[keys.MEANS].shape))

    @property
    def mean(self) -> FloatArray:
        """Return the means (k, d); NaN for clusters that are not described."""
        return np.where(self.cells > 0, self.arrays[keys.MEANS], np.nan)

    @cached_property
    def sd(self) -> FloatArray:
        """Return the sample standard deviations (k, d)."""
        found: FloatArray = np.sqrt(self.arrays[keys.SQUARES] / np.maximum(self.cells - 1, 1))
        return np.where(self.cells > 1, found, np.nan)

    @cached_property
    def overall(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sample standard deviation of each column over all described rows, each (d,); NaN where none knows it."""
        n, total = self.cells.astype(np.float64), self.cells.sum(axis=0)
        means = self.arrays[keys.MEANS]
        center = np.where(total > 0, (n * means).sum(axis=0) / np.maximum(total, 1), np.nan)
        squares = self.arrays[keys.SQUARES].sum(axis=0) + (n * (means - center) ** 2).sum(axis=0)
        return center, np.sqrt(squares / np.maximum(total - 1, 1))

    @cached_property
    def z(self) -> FloatArray:
        """Return how many standard deviations of all rows each cluster's mean is from that of all rows (k, d)."""
        center, deviation = self.overall
        return np.divide(self.mean - center, deviation, out=np.zeros(self.mean.shape), where=deviation > 0)

    @property
    def apart(self) -> FloatArray:
        """Return how much each column says of a cluster (k, d): its z, and 0 where that is not known."""
        return np.nan_to_num(self.z)

    def undescribed(self, cluster: int) -> str:
        """Return why nothing is said of a cluster, "" where something is."""
        where = "at every site" if keys.SITE_ROWS in self.arrays else "in all"
        return "" if self.rows[cluster] else f"too few {self.row_name} {where} to be described"

    @property
    def alike(self) -> str:
        """Return what is said of a cluster that differs in no column."""
        return f"near the average of all {self.row_name} in every column"

    @cached_property
    def eta_squared(self) -> FloatArray:
        """Return the share of each column's variation that is between the clusters (d,); NaN for constant columns."""
        within = self.arrays[keys.SQUARES].sum(axis=0)
        between = (self.cells * (self.arrays[keys.MEANS] - self.overall[0]) ** 2).sum(axis=0)
        total = within + between
        return np.asarray(np.divide(between, total, out=np.full(len(total), np.nan), where=total > 0))

    @cached_property
    def categories(self) -> dict[str, list[int]]:
        """Return the places of the columns that are the categories of one, such as `sex=f` and `sex=m`, by its name."""
        inside = are_shares(self.arrays[keys.MEANS])
        return categories_among(self.columns, (j for j in range(len(self.columns)) if inside[j]))

    @cached_property
    def shares(self) -> BoolArray:
        """Return which columns' means are shares of rows (d,): those of 0 and 1, and categories."""
        found = is_binary(self.cells, self.arrays[keys.MEANS], self.arrays[keys.SQUARES])
        for places in self.categories.values():
            found[places] = True
        return found

    @cached_property
    def ordered(self) -> list[int]:
        """Return the places of the ordered columns."""
        return [j for j in range(len(self.columns)) if self.levels(j)]

    @cached_property
    def level_counts(self) -> Mapping[int, IntArray]:
        """Return the known cells (k, l) of each cluster by their ordered value, of the ordered columns by their places.

        Of a column whose bins tell its values apart, and whose cells are values: the means of groups that stand in the place
        of rows lie between them.
        """
        found: dict[int, IntArray] = {}
        for j in self.ordered if keys.BIN_COUNTS in self.arrays else ():
            places = np.arange(len(self.levels(j)), dtype=np.float64)[:, None]
            bins, counts = in_bins(places, self.arrays[keys.BIN_EDGES][[j]])[:, 0], self.arrays[keys.BIN_COUNTS][:, j]
            n, mean, squares = self.cells[:, j], self.arrays[keys.MEANS][:, j], self.arrays[keys.SQUARES][:, j]
            sums = np.array([n * mean, squares + n * mean**2])
            whole = np.abs(sums - np.round(sums)) <= _ROUNDING * np.maximum(np.abs(sums), 1)
            if len(np.unique(bins)) == len(bins) and whole.all() and counts[:, bins].sum() == counts.sum():
                found[j] = counts[:, bins]
        return found

    @cached_property
    def cramers_v(self) -> dict[str, float]:
        """Return Cramer's V of the clusters and each column of categories, from 0 to 1; NaN where either has one value only."""
        return {name: self._cramers_v(places) for name, places in self.categories.items()}

    @cached_property
    def quantiles(self) -> Mapping[str, FloatArray]:
        """Return the quantiles (k, d) by their names, read off counts in bins; NaN for shares, and without counts."""
        if keys.BIN_COUNTS not in self.arrays:
            return {name: np.full(self.mean.shape, np.nan) for name in _QUANTILES}
        means, width = self.arrays[keys.MEANS], _ENDS * np.sqrt(self.arrays[keys.SQUARES] / np.maximum(self.cells, 1))
        shares = np.array(list(_QUANTILES.values()))
        found = quantiles(
            self.arrays[keys.BIN_COUNTS], self.arrays[keys.BIN_EDGES], (means - width, means + width), shares
        )
        found[:, :, self.shares] = np.nan
        for j in self.ordered:
            found[:, :, j] = self._quantile_levels(j, shares, found[:, :, j])
        return dict(zip(_QUANTILES, found, strict=True))

    def _quantile_levels(self, j: int, shares: FloatArray, found: FloatArray) -> FloatArray:
        """Return the quantiles (q, k) of an ordered column as places of its values; from those `found` in bins where nothing counts them."""
        if j in self.level_counts:
            up_to = np.cumsum(self.level_counts[j], axis=1)
            at = (up_to[None] >= shares[:, None, None] * up_to[None, :, -1:]).argmax(axis=2)
            return np.where(up_to[:, -1] > 0, at, np.nan)
        last = len(self.levels(j)) - 1
        return np.where(np.isfinite(found), np.clip(np.floor(found + 0.5), 0, last), np.nan)

    @cached_property
    def skewed(self) -> BoolArray:
        """Return of which columns (d,) quantiles say more than moments: those of skewed clusters, and logarithms; none without quantiles,
        and no ordered ones.

        Mean and median differ by more than half a bin there, since the median is no more exact.
        """
        if keys.BIN_EDGES not in self.arrays:
            return np.zeros(len(self.columns), dtype=np.bool_)
        edges = self.arrays[keys.BIN_EDGES]
        bins = np.ptp(edges, axis=1) / max(edges.shape[1] - 1, 1)
        known = np.isfinite(self.quantiles["median"]) & (self.cells > 1)
        apart = np.where(known, self.cells * np.abs(self.mean - self.quantiles["median"]), 0.0).sum(axis=0)
        width = np.where(known, self.cells * np.maximum(_SKEWED * self.sd, bins / 2), 0.0).sum(axis=0)
        logs = np.array([without_log(self.unit(j)) is not None for j in range(len(self.columns))])
        found = np.asarray(known.any(axis=0) & (logs | (apart > width)))
        found[self.ordered] = False
        return found

    @property
    def site_means(self) -> FloatArray | None:
        """Return the means of each site's described rows (m, d), in the order of `site_rows`; None where these are not known."""
        return self.arrays.get(keys.SITE_MEANS)

    @property
    def site_rows(self) -> dict[str, IntArray] | None:
        """Return the described rows of each site in the clusters (k,), by site; None with secure sums."""
        if keys.SITE_ROWS not in self.arrays:
            return None
        return dict(zip(self.arrays[keys.SITES].tolist(), self.arrays[keys.SITE_ROWS], strict=True))

    @cached_property
    def tree(self) -> shallow_tree.Tree | None:
        """Return the tree that tells the clusters apart; None where there is none. Its edges are values, in `edges`."""
        if keys.TREE_COLUMN not in self.arrays:
            return None
        return shallow_tree.Tree(
            self.arrays[keys.TREE_COLUMN], np.zeros(shallow_tree.SPLITS, dtype=np.int64), self.arrays[keys.TREE_ROWS]
        )

    @property
    def edges(self) -> FloatArray:
        """Return the values at which the nodes of the tree are split (15,)."""
        return self.arrays[keys.TREE_EDGE]

    def table(self) -> dict[str, list[Any]]:
        """Return a line per cluster and column: size, moments, quantiles, and how far the clusters differ in the column.

        Of logarithms also `expm1_mean`, the mean in the unit of the column; all others are of the logarithms. Of ordered columns also
        `level`, the value nearest to the mean; None for others, and of clusters that are not described.
        """
        k, d = self.mean.shape
        share = self.rows / max(int(self.rows.sum()), 1)
        logs, v = np.array([without_log(self.unit(j)) is not None for j in range(d)]), np.full(d, np.nan)
        for name, places in self.categories.items():
            v[places] = self.cramers_v[name]
        return {
            "cluster": np.repeat(np.arange(k), d).tolist(),
            "rows": np.repeat(self.rows, d).tolist(),
            "share": np.repeat(share, d).tolist(),
            "column": list(self.columns) * k,
            **({"cells": self.cells.ravel().tolist()} if keys.CELLS in self.arrays else {}),
            **({"unit": self.arrays[keys.UNITS].tolist() * k} if keys.UNITS in self.arrays else {}),
            **{name: values.ravel().tolist() for name, values in (("mean", self.mean), ("sd", self.sd), ("z", self.z))},
            **{name: values.ravel().tolist() for name, values in self.quantiles.items()},
            **(
                {"expm1_mean": np.where(logs, np.expm1(np.where(logs, self.mean, 0.0)), np.nan).ravel().tolist()}
                if logs.any()
                else {}
            ),
            **({"level": self._nearest_levels()} if self.ordered else {}),
            "eta_squared": np.tile(self.eta_squared, k).tolist(),
            "cramers_v": np.tile(v, k).tolist(),
        }

    def _nearest_levels(self) -> list[str | None]:
        def level(value: float, j: int) -> str | None:
            levels = self.levels(j)
            return levels[nearest_level(levels, value)] if levels and np.isfinite(value) else None

        return [level(value, j) for own in self.mean for j, value in enumerate(own.tolist())]

    def site_table(self) -> dict[str, list[Any]]:
        """Return a line per cluster and site: rows, and their shares of the cluster and of the site; none with secure sums."""
        sites = self.site_rows or {}
        counts = np.array(list(sites.values()), dtype=np.float64).reshape(len(sites), len(self.rows))
        of_cluster = counts / np.maximum(counts.sum(axis=0), 1)
        of_site = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return {
            "cluster": np.repeat(np.arange(len(self.rows)), len(sites)).tolist(),
            "site": list(sites) * len(self.rows),
            "rows": counts.T.ravel().astype(int).tolist(),
            "share_of_cluster": of_cluster.T.ravel().tolist(),
            "share_of_site": of_site.T.ravel().tolist(),
        }

    def _cramers_v(self, places: Sequence[int]) -> float:
        known = self.cells[:, places].min(axis=1)
        used = known > 0
        counts = known[used, None] * self.arrays[keys.MEANS][used][:, places]
        rest = np.maximum(known[used] - counts.sum(axis=1), 0)  # of a category without a column
        table = np.column_stack([counts, rest]) if (rest > 1e-6 * known[used]).any() else counts
        table = table[:, table.sum(axis=0) > 0]
        least = min(table.shape) - 1
        if least < 1:
            return float("nan")
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
        return float(np.sqrt((((table - expected) ** 2) / expected).sum() / (table.sum() * least)))


def profiles_of(arrays: Mapping[str, Array], columns: Sequence[str] | None, row_name: str = "rows") -> Profiles | None:
    """Return the profiles of a result, None where it has none; columns (d,) without names are called by their numbers."""
    if keys.ROWS not in arrays:
        return None
    d = arrays[keys.MEANS].shape[1]
    return Profiles(tuple(columns or (f"column {j + 1}" for j in range(d))), arrays, row_name)
