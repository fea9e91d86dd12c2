"""How good recovered centroids are: against the true ones, and against the best that the sites' data allow.

Distances are Euclidean and in the data's own unit. k recovered and k* true centroids, d columns of all sites together,
c centroids of all clients together. Unknown entries are NaN: an entry of a centroid is unknown where no site with rows
of the cluster has the column. `l2_distance`, `mse_matched` and `sigma` are of complete centroids only. Other arrays than
`found` (k, d) and `true` (k*, d) are UserErrors.

Sources: FeCA (section 6, appendix B); Maritan and Schenato, "Distributed clustering in partially overlapping feature
spaces" (sections 3.1, 6.1 and 6.2).

Readings, where the latter is misprinted or open:

1. The optimal centroid, eq. (1), is for each entry the mean over the rows that have it: the denominator is the number of
   those rows, and at least 1, where `min` is printed for `max`.
2. Centroids are matched one to one by the least sum of squared distances, each per entry that both know; where
   everything is known the pairs are those of the ordinary distances.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.evaluation.metrics._arrays import (
    as_numbers,
    as_points,
    distances,
    norms,
    one_per_row,
    ratios,
    same_width,
)


def match_centroids(found: ArrayLike, true: ArrayLike) -> tuple[IntArray, IntArray]:
    """Pair recovered with true centroids one to one.

    The assignment minimises the sum of SQUARED distances, so it is the one that makes `l2_distance` smallest. Hungarian
    matching on unsquared distances can choose other pairs when centroids are far off.

    Where entries are unknown, a squared distance is the mean over the entries that both know (reading 2 of this module).
    As many as possible of the pairs have such an entry; a pair without one is left out.

    Returns:
        The indices of min(k, k*) pairs, fewer only where centroids have no entry in common, sorted by those of `found`.

    Raises:
        UserError: an array is not 2-D, is empty, holds infinity, or the widths d differ.
    """
    found, true = same_width("found", found, "true", true, unknown=True)
    # The means would do for complete centroids too, but round otherwise, which can decide between equal pairings.
    complete = not (np.isnan(found).any() or np.isnan(true).any())
    return _match(distances(found, true) ** 2 if complete else _mean_squares(found, true))


def l2_distance(found: ArrayLike, true: ArrayLike) -> float:
    """Frobenius norm of found - true over the matched pairs, in the data's unit.

    FeCA (section 6) names its l2-distance without a formula; this reading reproduces its tables (scaled by 1e4 there).
    Only matched pairs count, so an algorithm that returns FEWER centroids than there are true ones gets a smaller value
    for it, and superfluous centroids cost nothing. Always report the number of centroids found beside this value.
    UserError as of `match_centroids`, or where an entry is NaN.
    """
    found, true = same_width("found", found, "true", true)
    found_index, true_index = match_centroids(found, true)
    return float(np.linalg.norm(found[found_index] - true[true_index]))


def mse_matched(found: ArrayLike, true: ArrayLike) -> float:
    """Mean squared distance of a matched pair: l2_distance^2 / min(k, k*); the square of the data's unit."""
    return float(l2_distance(found, true) ** 2 / min(np.shape(found)[0], np.shape(true)[0]))


def relative_distance(found: ArrayLike, true: ArrayLike) -> float:
    """Mean over the matched pairs of ||found - true|| / ||true||, both over the entries that both know (metric E3).

    Superfluous centroids cost nothing and those that lack are not missed, so report the number of centroids beside it.
    A pair whose true centroid is 0 counts 0 if the other is, else infinity. NaN if no pair can be compared.
    """
    A, B = _pairs(found, true)
    relative = ratios(norms(A - B), norms(B))
    return float(relative.mean()) if len(relative) else np.nan


def cosine(found: ArrayLike, true: ArrayLike) -> float:
    """Mean over the matched pairs of the cosine similarity over the entries that both know (metric E3).

    A pair counts 0 where one of the two is 0 in all of these, and 1 where both are. NaN if no pair can be compared.
    """
    A, B = _pairs(found, true)
    length_a, length_b = norms(A), norms(B)
    similarity, both = np.where((length_a == 0) & (length_b == 0), 1.0, 0.0), (length_a > 0) & (length_b > 0)
    unit_a, unit_b = A[both] / length_a[both, None], B[both] / length_b[both, None]
    similarity[both] = np.nansum(unit_a * unit_b, axis=1)
    return float(similarity.mean()) if len(similarity) else np.nan


def sigma(centroids: ArrayLike, radii: ArrayLike, true: ArrayLike) -> FloatArray:
    """Error of each centroid that clients returned, in units of its group's radius (FeCA, appendix B, eq. 54).

    Every returned centroid belongs to its nearest true centre. In the group of true centre theta_s the centroid with the
    largest radius is c_s, and r_s is that radius. Then sigma_i = ||c_i - theta_s|| / r_s. Values up to 0.5 suffice
    (eq. 51-53) for the ball around c_s to hold the whole group, which is what the server's grouping by radius needs.

    Of the c centroids (c, d) of all clients together, with radii (c,) in the data's unit, (c,) without unit. Where r_s is
    0: infinity, or 0 for a centroid that lies on its true centre. UserError as of `l2_distance`, and for other radii.
    """
    centroids, true = same_width("centroids", centroids, "true", true)
    radii = as_numbers("radii", radii)
    if radii.shape != (len(centroids),) or not np.all(radii >= 0):
        raise UserError(
            f"radii: expected one radius >= 0 for each of {len(centroids)} centroids, shape ({len(centroids)},); "
            f"got shape {radii.shape}" + (f" with smallest value {radii.min():g}." if radii.size else ".")
        )
    distance = distances(centroids, true)
    owner, error = distance.argmin(axis=1), distance.min(axis=1)
    largest = np.zeros(len(true))
    np.maximum.at(largest, owner, radii)
    return ratios(error, largest[owner])


def optimal_centroids(rows: Sequence[ArrayLike], classes: Sequence[ArrayLike]) -> FloatArray:
    """Return the best centroids to be had from what the sites have: eq. (1).

    Args:
        rows: of each site (n_i, d), NaN where the site does not have the column.
        classes: of each site (n_i,) its rows' true classes.

    Returns:
        (k*, d), a row for each class in ascending order; NaN where no site with rows of the class has the column.
    """
    if len(rows) != len(classes):
        raise UserError(f"expected both of the same sites, got rows of {len(rows)}, classes of {len(classes)}")
    points = [as_points(f"rows of site {i + 1}", some) for i, some in enumerate(rows)]
    labels = [one_per_row(f"classes of site {i + 1}", some, len(points[i])) for i, some in enumerate(classes)]
    if sum(map(len, points)) == 0 or len({some.shape[1] for some in points}) > 1:
        raise UserError(
            f"expected at least one row, and the same columns at all sites, got shapes {[some.shape for some in points]}"
        )
    names = np.unique(np.concatenate(labels))
    total = np.zeros((len(names), points[0].shape[1]))
    count = np.zeros(total.shape, dtype=np.int64)
    for some, label in zip(points, labels, strict=True):
        known = ~np.isnan(some)
        for c, name in enumerate(names):
            own = label == name
            count[c] += known[own].sum(axis=0)
            total[c] += np.where(known[own], some[own], 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _match(cost: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the pairs of least cost (k, k*), without those whose cost is NaN: these have nothing to compare."""
    from scipy.optimize import linear_sum_assignment

    comparable = ~np.isnan(cost)
    if not comparable.all():  # such a pair costs more than any set of those that can be compared
        cost = np.where(comparable, cost, 1.0 + cost[comparable].sum())
    index, true_index = linear_sum_assignment(cost)
    kept = comparable[index, true_index]
    return np.asarray(index[kept], dtype=np.int64), np.asarray(true_index[kept], dtype=np.int64)


def _mean_squares(found: FloatArray, true: FloatArray) -> FloatArray:
    """Return (k, k*) the mean squared differences of the entries that both know; NaN where there are none."""
    means = np.full((len(found), len(true)), np.nan)
    for j, point in enumerate(true):
        known = ~np.isnan(found) & ~np.isnan(point)
        squares = np.where(known, found - point, 0.0) ** 2
        np.divide(squares.sum(axis=1), known.sum(axis=1), out=means[:, j], where=known.any(axis=1))
    return means


def _pairs(found: ArrayLike, true: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the matched centroids (pairs, d) with NaN wherever one of the two is unknown."""
    found, true = same_width("found", found, "true", true, unknown=True)
    index, true_index = _match(_mean_squares(found, true))
    A, B = found[index], true[true_index]
    unknown = np.isnan(A) | np.isnan(B)
    return np.where(unknown, np.nan, A), np.where(unknown, np.nan, B)
