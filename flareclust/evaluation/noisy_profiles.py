"""Profiles of a result under differential privacy, from what it has released: they ask no site and cost no budget.

A mean is the released centroid, a size the noisy number of rows. Nothing is known of deviations: a query for them would cost budget,
and deviations between the centroids would make a column in which no cluster differs look like any other. So a mean is compared with
the mean of all clusters in parts of its column's declared range, which is public, and nothing is said of a difference that noise alone can make.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flareclust._foundation.display import all_of, some
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core.dp import lloyd as dp_steps
from flareclust.core.dp import sums as dp_sums
from flareclust.core.dp.box import Box
from flareclust.data.cells import levels_in
from flareclust.evaluation.profiles import categories_among
from flareclust.protocol import cluster_arrays

#: What a reader of such profiles must know.
FREE = (
    "Sizes and means are released numbers, each with noise of its own; measures and outcomes are of other releases. So the tables do "
    "not add up to each other, nor to counts of labels on this machine. Describing the clusters cost no further privacy budget."
)

#: A mean differs much from that of all clusters from this part of its column's range on.
_MUCH = 0.25

#: Means are shown with the digits of this part of their column's range, or those of their noise if that is more.
_SHOWN = 0.01

#: So many columns are named in a sentence.
_MOST_NAMED = 12

#: A difference says nothing up to so many deviations of its noise.
_WITHIN_NOISE = 2.0


@dataclass(frozen=True)
class NoisyProfiles:
    """Profiles of k clusters in d columns.

    Attributes:
        columns: names (d,).
        mean: the released centroids (k, d).
        arrays: of the result, as `flareclust.protocol.cluster_arrays` names them.
    """

    columns: tuple[str, ...]
    mean: FloatArray
    arrays: Mapping[str, Array]

    @property
    def rows(self) -> IntArray:
        """Return the noisy numbers of rows (k,)."""
        return self.arrays[cluster_arrays.COUNTS][: len(self.mean)]

    @property
    def signal(self) -> FloatArray:
        """Return the radius of each cluster over the distance by which noise moves its centroid (k,)."""
        return self.arrays[cluster_arrays.SIGNAL][: len(self.mean)]

    @property
    def clear(self) -> BoolArray:
        """Return which clusters stand out of the noise (k,)."""
        return self.signal >= dp_sums.CLEAR

    @property
    def center(self) -> FloatArray:
        """Return the mean of the centroids (d,), by their noisy numbers of rows; of all alike where these are 0."""
        return np.asarray(np.average(self.mean, axis=0, weights=self._weights))

    @property
    def _weights(self) -> FloatArray:
        """Return what part of all rows each cluster has (k,)."""
        rows = np.asarray(self.rows if self.rows.any() else np.ones(len(self.mean)), dtype=np.float64)
        return np.asarray(rows / rows.sum())

    @property
    def noise(self) -> FloatArray:
        """Return about how much noise moves a mean (k,), as a standard deviation in any one column.

        Noise moves a centroid by radius / signal in all d columns together, where the radius is half the way to the next centroid.
        What few rounds, or cells of a grid, get wrong is not in it, so it is no error of a mean.
        """
        radii, d = dp_steps.half_way(self.mean, Box.of(self.arrays)), self.mean.shape[1]
        unknown = np.full(len(self.mean), np.inf)
        return np.asarray(np.divide(radii / np.sqrt(d), self.signal, out=unknown, where=self.signal > 0))

    @property
    def in_noise(self) -> BoolArray:
        """Return which means (k, d) say nothing: those of clusters within noise, and where noise is as wide as the declared range."""
        return ~self.clear[:, None] | (2 * _WITHIN_NOISE * self.noise[:, None] >= self._range)

    @property
    def center_in_noise(self) -> BoolArray:
        """Return for which columns (d,) the noise of the mean of all clusters is as wide as the declared range."""
        moved = self._weights[:, None] * np.minimum(self.noise[:, None], self._range)
        return np.asarray(2 * _WITHIN_NOISE * np.sqrt((moved**2).sum(axis=0)) >= self._range)

    @property
    def _range(self) -> FloatArray:
        """Return the width of each column's declared range (d,)."""
        return np.asarray(self.arrays[cluster_arrays.HIGH] - self.arrays[cluster_arrays.LOW])

    @property
    def of_range(self) -> FloatArray:
        """Return how far each mean is from that of all clusters, in parts of its column's declared range (k, d)."""
        return np.asarray((self.mean - self.center) / self._range)

    @cached_property
    def apart(self) -> FloatArray:
        """Return how much each column says of a cluster (k, d): 1 from a quarter of its range on; 0 within noise."""
        says = np.abs(self.mean - self.center) > _WITHIN_NOISE * self.noise[:, None]
        return np.where(says, self.of_range / _MUCH, 0.0)

    @property
    def overall(self) -> tuple[FloatArray, FloatArray]:
        """Return the mean of all clusters, and by what digits are shown: a part of the range, or the noise of most means."""
        part, noise = _SHOWN * self._range, float(np.median(self.noise))
        return self.center, np.maximum(part, noise if np.isfinite(noise) else 0.0)

    @property
    def categories(self) -> dict[str, list[int]]:
        """Return the places of the columns that are the categories of one, such as `sex=f` and `sex=m`, by its name."""
        return categories_among(self.columns, np.flatnonzero(self.shares).tolist())

    @property
    def shares(self) -> BoolArray:
        """Return which columns' means are shares of rows (d,): categories between 0 and 1."""
        named = np.array(["=" in name for name in self.columns])
        return np.asarray(named & (self.arrays[cluster_arrays.LOW] == 0) & (self.arrays[cluster_arrays.HIGH] == 1))

    def unit(self, j: int) -> str:
        """Return the unit of a column, "" where it has none."""
        return cluster_arrays.unit_of(self.arrays, j)

    def levels(self, j: int) -> tuple[str, ...]:
        """Return the values of an ordered column, from the least to the largest; none for others."""
        return levels_in(self.unit(j))

    def undescribed(self, cluster: int) -> str:
        """Return why nothing is said of a cluster, "" where something is."""
        return "" if self.clear[cluster] else "cannot be distinguished from noise"

    @property
    def alike(self) -> str:
        """Return what is said of a cluster that differs in no column."""
        return "near the mean of all clusters in every column, or within noise"

    def table(self) -> dict[str, list[Any]]:
        """Return a line per cluster and column."""
        k, d = self.mean.shape
        return {
            "cluster": np.repeat(np.arange(k), d).tolist(),
            "rows": np.repeat(self.rows, d).tolist(),
            "share": np.repeat(self.rows / max(int(self.rows.sum()), 1), d).tolist(),
            "signal_to_noise": np.repeat(self.signal, d).tolist(),
            "column": list(self.columns) * k,
            **({"unit": self.arrays[cluster_arrays.UNITS].tolist() * k} if cluster_arrays.UNITS in self.arrays else {}),
            "mean": self.mean.ravel().tolist(),
            "of_range": self.of_range.ravel().tolist(),
        }

    def unclear(self) -> str:
        """Return a sentence that names the clusters that do not stand out of the noise; "" where there are none."""
        names = [str(cluster) for cluster in np.flatnonzero(~self.clear)]
        if not names:
            return ""
        what = f"cluster{'s' if len(names) > 1 else ''} {all_of(names)} cannot"
        return f"{what} be distinguished from noise, which moves a centroid by more than half a radius there"

    def unknown(self) -> str:
        """Return a sentence that names the columns of which noise leaves nothing known; "" where there are none."""
        names = [self.columns[j] for j in np.flatnonzero(self.in_noise[self.clear].all(axis=0))]
        if not names or not self.clear.any():
            return ""
        listed = some(names, _MOST_NAMED, "more columns")
        return f"nothing is known of {listed}: the noise of their means is as wide as their declared range"


def noisy_profiles_of(
    arrays: Mapping[str, Array], centroids: FloatArray, columns: Sequence[str] | None
) -> NoisyProfiles | None:
    """Return the profiles of a result under differential privacy; None of another one, or of an older version.

    Columns (d,) without names are called by their numbers.
    """
    if (
        not {
            cluster_arrays.COUNTS,
            cluster_arrays.SIGNAL,
            cluster_arrays.REACH,
            cluster_arrays.LOW,
            cluster_arrays.HIGH,
        }
        <= arrays.keys()
    ):
        return None
    return NoisyProfiles(tuple(columns or (f"column {j + 1}" for j in range(centroids.shape[1]))), centroids, arrays)
