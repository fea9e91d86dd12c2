"""Where rows are among the clusters of a result: the row's cluster, the second one, and whether a row is far from all.

All distances are in the space in which the clusters were computed: of scaled columns, or of rows of length 1. Of a mixture they are
Mahalanobis distances, and probabilities decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core import mixtures
from flareclust.core.kernels import two_nearest
from flareclust.core.lloyd import assign
from flareclust.preparation.assignment import OF_REPRESENTATIVES, REACH, REPRESENTATIVES, assign_rows, mixture_of
from flareclust.preparation.scaling import OPEN_GAPS, as_clustered, of_directions, scaling_of
from flareclust.protocol import cluster_arrays
from flareclust.protocol.columns import FILL

#: A row is far from a centroid beyond so many root mean square distances of its cluster. At most 1/9 of a cluster's rows are,
#: whatever their distribution (Markov's inequality of the squared distances).
FAR = 3.0

#: Distances up to this part of the largest coordinate of a centroid are rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Placements:
    """Where n rows are among k clusters.

    Attributes:
        cluster: of the nearest centroid, or the most probable component (n,); the first of equals, -1 for a row without a direction.
        distance: to it (n,); NaN for a row without a direction, as the other numbers are.
        second: cluster of the second nearest centroid, or second most probable component (n,); -1 where there is none.
        second_distance: to it (n,); NaN where there is none.
        silhouette: simplified silhouette (n,), from 0 (between two clusters) to 1; 0 where there is one cluster only, None for a mixture.
        probability: of the cluster, in a mixture (n,); else None.
        log_density: the logarithm of a mixture's density at the row (n,), in the space of the distances; else None.
        threshold: distance from the nearest centroid beyond which a row is far from it (n,); None where it is not known.
        far: whether a row is beyond the threshold of every cluster, or without a direction (n,); None where these are not known.
        outlier: whether a mixture's density at the row is below the level that was asked for (n,); None for none.
    """

    cluster: IntArray
    distance: FloatArray
    second: IntArray
    second_distance: FloatArray
    silhouette: FloatArray | None
    probability: FloatArray | None
    log_density: FloatArray | None
    threshold: FloatArray | None
    far: BoolArray | None
    outlier: BoolArray | None = None

    def table(self) -> dict[str, list[Any]]:
        """Return a line per row; the threshold and `far` are None where they are not known, and of other numbers there is no column."""
        nothing = dict.fromkeys(("threshold", "far"), np.full(len(self.cluster), None))
        columns = {name: nothing.get(name) if values is None else values for name, values in vars(self).items()}
        return {name: values.tolist() for name, values in columns.items() if values is not None}


def placements(
    arrays: Mapping[str, Array], X: FloatArray, thresholds: FloatArray | None, outliers: float | None = None
) -> _Placements:
    """Return where complete rows (n, d), in the units of the data, are among the clusters of a result.

    The thresholds (k,) are those of `thresholds_of`, None where they are not known. Where clusters have representatives, distances
    are to the nearest one of a cluster, and its reach is the threshold. `outliers` is the share of rows drawn from a mixture that are
    called outliers, as `mixtures.outlier_level` takes it.
    """
    mixture = mixture_of(arrays)
    level = None if outliers is None else mixtures.outlier_level(mixture, outliers)
    if mixture is not None:
        return _among_components(np.ascontiguousarray(as_clustered(arrays, X)), mixture, thresholds, level)
    if REPRESENTATIVES in arrays:
        return _among_representatives(arrays, X)
    cluster, rows = assign_rows(arrays, X), np.ascontiguousarray(as_clustered(arrays, X))
    centroids = np.ascontiguousarray(as_clustered(arrays, arrays["centroids"]))
    n, k = len(rows), len(centroids)
    own, second = _two(rows, centroids)
    a, b = (_distances(rows, centroids, place) for place in (own, second))
    silhouette = np.zeros(n)
    if k > 1:
        np.divide(b - a, b, out=silhouette, where=b > 0)
    threshold = far = None
    if thresholds is not None:
        threshold, far = thresholds[own], np.ones(n, dtype=bool)
        for r in range(k):
            far &= _distances(rows, centroids, np.full(n, r)) > thresholds[r]
    without = cluster < 0
    if without.any():
        a, b, silhouette = (np.where(without, np.nan, values) for values in (a, b, silhouette))
        second = np.where(without, -1, second)
        threshold = None if threshold is None else np.where(without, np.nan, threshold)
        far = None if far is None else far | without
    return _Placements(cluster, a, second, b, silhouette, None, None, threshold, far)


def _among_components(
    rows: FloatArray, mixture: mixtures.Mixture, thresholds: FloatArray | None, level: float | None
) -> _Placements:
    """Return where rows (n, d), in the units of the mixture, are among its components."""
    n, k, each = len(rows), len(mixture.means), np.arange(len(rows))
    distances = mixtures.distances(rows, mixture)
    densities = mixtures.log_scales(mixture) - distances**2 / 2
    own, probability, density = mixtures.most_likely(rows, mixture)
    densities[each, own] = -np.inf
    second = densities.argmax(axis=1)
    a, b = distances[each, own], distances[each, second]
    if k == 1:
        second, b = np.full(n, -1), np.full(n, np.nan)
    outlier = None if level is None else density < level
    reach = None if thresholds is None else thresholds[own]
    far = None if thresholds is None else np.asarray((distances > thresholds).all(axis=1))
    return _Placements(own, a, second, b, None, probability, density, reach, far, outlier)


def _among_representatives(arrays: Mapping[str, Array], X: FloatArray) -> _Placements:
    """Return what `placements` does by the distances to the nearest representative of each cluster."""
    rows, n, k = as_clustered(arrays, X), len(X), len(arrays["centroids"])
    own, second, far = np.full(n, -1), np.full(n, -1), np.ones(n, dtype=bool)
    a, b, threshold = np.full(n, np.inf), np.full(n, np.inf), np.full(n, np.nan)
    for r in range(k):
        mine = arrays[OF_REPRESENTATIVES] == r
        distance, reach = np.sqrt(assign(rows, arrays[REPRESENTATIVES][mine])[1]), arrays[REACH][mine].max()
        nearer, next_ = distance < a, (distance >= a) & (distance < b)
        b, second = np.where(nearer, a, np.where(next_, distance, b)), np.where(nearer, own, np.where(next_, r, second))
        a, own = np.where(nearer, distance, a), np.where(nearer, r, own)
        threshold, far = np.where(nearer, reach, threshold), far & (distance > reach)
    b, silhouette = np.where(second < 0, np.nan, b), np.zeros(n)
    np.divide(b - a, b, out=silhouette, where=b > 0)
    return _Placements(assign_rows(arrays, X), a, second, b, silhouette, None, None, threshold, far)


def thresholds_of(
    arrays: Mapping[str, Array], inertia: float | None, rows: int | None, times: float = FAR
) -> FloatArray | None:
    """Return the distance from each centroid (k,) beyond which a row is far from it; None where nothing says it.

    It is `reach_of`. Of a mixture it is `times` the root mean square Mahalanobis distance of a component's rows, the root of the
    number of columns. Arguments are those of `reach_of`.
    """
    if mixture_of(arrays) is None:
        return reach_of(arrays, inertia, rows, times)
    k, d = arrays["centroids"].shape
    return np.full(k, times * np.sqrt(d))


def reach_of(
    arrays: Mapping[str, Array], inertia: float | None, rows: int | None, times: float = 1.0
) -> FloatArray | None:
    """Return `times` the root mean square distance of each cluster's rows to its centroid (k,); None where nothing says it.

    It is exact from the moments of a profile. Without a profile, and for clusters that it does not describe, it is that of all rows.

    Args:
        arrays: of the result.
        inertia: sum of the squared distances of `rows` to their centroids.
        rows: how many.
        times: above 0.
    """
    centroids = as_clustered(arrays, arrays["centroids"])
    squared = np.full(len(centroids), np.nan)
    if cluster_arrays.ROWS in arrays and not of_directions(arrays):  # moments of columns say nothing of directions
        squared = _mean_squares(arrays)
    known = ~np.isnan(squared)
    if inertia is not None and rows:
        rest = inertia / rows
    elif known.any():
        rest = float(np.average(squared[known], weights=arrays[cluster_arrays.ROWS][known]))
    else:
        return None
    least = _ROUNDING * float(np.abs(centroids).max())  # for clusters of equal rows
    found: FloatArray = np.maximum(times * np.sqrt(np.where(known, squared, rest)), least)
    return found


def _mean_squares(arrays: Mapping[str, Array]) -> FloatArray:
    """Return the mean squared distance of each cluster's rows to the centroid (k,), NaN for those that are not described."""
    rows, centroids = arrays[cluster_arrays.ROWS], arrays["centroids"]
    scaling = scaling_of(arrays)
    unit = 1.0 if scaling is None else scaling.deviation
    cells = arrays.get(cluster_arrays.CELLS, rows[:, None])
    columns = arrays[cluster_arrays.SQUARES] / np.maximum(cells, 1) + (arrays[cluster_arrays.MEANS] - centroids) ** 2
    if cluster_arrays.CELLS in arrays:
        # Cells that were filled are at a distance of their own, those that stay open at none.
        filled = 0.0 if OPEN_GAPS in arrays else (arrays[FILL] - centroids) ** 2
        part = cells / np.maximum(rows, 1)[:, None]
        columns = part * columns + (1 - part) * filled
    return np.where(rows > 0, (columns / np.square(unit)).sum(axis=1), np.nan)


def _two(rows: FloatArray, centroids: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the nearest and the second nearest centroid of each row, each (n,); -1 where there is no second one."""
    n, k = len(rows), len(centroids)
    own, squared, other = np.empty(n, np.int64), np.empty(n), np.empty(n)
    two_nearest(rows, centroids, own, squared, other)
    second = np.full(n, -1, dtype=np.int64)
    for r in range(k if k > 1 else 0):
        at, rest = np.flatnonzero(own == r), np.delete(np.arange(k), r)
        found, left, right = np.empty(len(at), np.int64), np.empty(len(at)), np.empty(len(at))
        two_nearest(np.ascontiguousarray(rows[at]), np.ascontiguousarray(centroids[rest]), found, left, right)
        second[at] = rest[found]
    return own, second


def _distances(rows: FloatArray, centroids: FloatArray, places: IntArray) -> FloatArray:
    """Return the distance of each row to the centroid at its place (n,); NaN at -1."""
    found: FloatArray = np.linalg.norm(rows - centroids[places], axis=1)
    return np.where(places < 0, np.nan, found)
