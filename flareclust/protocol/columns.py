"""How the rows of a job's sites are prepared, and where their columns may differ who has which."""

from dataclasses import dataclass, field

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray, Message
from flareclust.core.scaling import of_length_one
from flareclust.protocol.state import State

#: The array with what missing cells of each column are filled with.
FILL = "fill"


@dataclass(frozen=True, eq=False)
class ColumnFacts(State):
    """What the server learnt of the sites' columns before the rounds; kept with the result, for warnings.

    Attributes:
        scaled_sites: names of the m sites whose replies came one by one.
        site_cells: numbers of known cells of their columns (m, d).
        site_means, site_deviations: of these (m, d), NaN where a site lacks the column or knows too few cells.
        odd_sites: with secure sums in their place, the number of sites by column and what is odd about it (d, u).
        missing_cells: where rows may have missing cells, those of each column at all sites together (d,).
        rows_in_all: and the number of rows.
        rows_by_site: of different columns, the rows of the sites that take part (m,).
        site_spread: of different columns, the squared deviations of each site's rows from their mean, in scaled units (m,).
    """

    scaled_sites: Array | None = None
    site_cells: IntArray | None = None
    site_means: FloatArray | None = None
    site_deviations: FloatArray | None = None
    odd_sites: IntArray | None = None
    missing_cells: IntArray | None = None
    rows_in_all: int | None = None
    rows_by_site: IntArray | None = None
    site_spread: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a federation, D of them: the same at all sites, or of m sites with different ones.

    Attributes:
        mean: what is taken away from each column (D,), by default its mean over all rows; None where nothing is.
        deviation: what divides it then (D,), such as the standard deviation; 1 for a constant column.
        fill: what missing cells are filled with (D,), None where they are not.
        scales: whether rows are scaled; not where the means only stand for columns that a site lacks.
        directions: whether rows are brought to length 1.
        gamma: what a category that differs adds to the squared distance of k-prototypes; None elsewhere.
        codes: of the columns (D,), in the order in which the sites, by their names, bring them; none where all have the same ones.
        names: D of them; "hidden-..." where no site says it.
        sites: names of the m sites, sorted.
        masks: (m, D), which site has which column.
        union: how many columns the sites have together, where these are not all; else None.
    """

    mean: FloatArray | None = None
    deviation: FloatArray | None = None
    fill: FloatArray | None = None
    scales: bool = True
    directions: bool = False
    gamma: float | None = None
    codes: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    names: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    masks: BoolArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.bool_))
    union: int | None = None

    @property
    def different(self) -> bool:
        """Return whether the sites need not have the same columns."""
        return bool(self.sites)

    def spread(self, site: str, values: FloatArray) -> FloatArray:
        """Return a site's values (c, d) of its own columns in the places of all columns (c, D), NaN elsewhere."""
        mask = self.mask(site)
        spread = np.full((len(values), len(mask)), np.nan)
        spread[:, mask] = values
        return spread

    def mask(self, site: str) -> BoolArray:
        """Return which of the columns a site has (D,)."""
        return self.masks[self.sites.index(site)]  # type: ignore[no-any-return]

    def sent(self) -> Message:
        """Return what every task carries: `mean`, `deviation` and `fill` (D,), as far as they are known, and `columns` (D,), the codes."""
        codes = self.codes if self.different else None
        values = {"columns": codes, "mean": self.mean, "deviation": self.deviation, FILL: self.fill}
        return {name: value for name, value in values.items() if value is not None}

    def kept(self) -> Message:
        """Return what a result says of the columns beside that."""
        if not self.different:
            return {} if self.gamma is None else {"gamma": np.array(self.gamma)}
        names = {"column_names": np.array(self.names), "column_sites": np.array(self.sites)}
        union = {} if self.union is None else {"columns_in_all": np.array(self.union)}
        return {**names, "column_masks": self.masks, **union}

    def centers(self, means: FloatArray) -> FloatArray:
        """Return the centers (k, d) of clusters whose rows have these means: the means, or their directions.

        Means of rows of length 1 are shorter the more the rows differ; their directions are the centroids of spherical k-means
        (Dhillon and Modha 2001, section 3).
        """
        return of_length_one(means) if self.directions else means

    def scaled(self, centroids: FloatArray) -> FloatArray:
        """Return centroids (k, D) in the units of the columns as those of prepared rows."""
        if self.mean is None or self.deviation is None or not self.scales:
            return centroids
        return np.asarray((centroids - self.mean) / self.deviation)

    def unscaled(self, centroids: FloatArray) -> FloatArray:
        """Return centroids (..., D) of prepared rows in the units of the columns."""
        if self.mean is None or self.deviation is None or not self.scales:
            return centroids
        return np.asarray(centroids * self.deviation + self.mean)


#: The same columns, as they are.
SAME = Columns()

#: Nothing is known of the columns.
NO_FACTS = ColumnFacts()
