"""Attraction between clusters of points that know different columns.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 5.1, equation 10.
Two points attract each other by the scaled distance between them (core/missing/distances.py, S = all points) to the power
-w; two points without a common column do not. N is the number of points, D that of columns, c that of clusters.

Readings, and what is added:
1. The scaled distance is taken to be at least 1e-12: proxies of clusters without spread may coincide.
2. Clusters count as having no common column where the divisor of equation 2 is 0: where no two points differ in their
   common columns or, for cosine, the extremes point the same way, as they always do in one column of positive numbers.
   Uninformative distances of 0 would outweigh all others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import check_choice
from flareclust.core.arrays import as_labels, check_rows
from flareclust.core.missing.distances import PHIS, Extremes, as_masked, extremes, masks_of_sites, varying
from flareclust.core.runtime import kernel, one_thread

#: Least scaled distance (reading 1).
_NEAREST = 1e-12

#: Largest exponent for which the attraction of coinciding points, added up, is a finite number.
LARGEST_W = 20

#: A squared distance this far below the squared lengths is computed again from differences.
_CLOSE = 1e-4

#: Points of one site that are compared at once, if its clusters are no larger.
_POINTS = 2048

#: Rows of distances that are computed at once: with as many columns as a piece has, they stay in the second-level cache.
_ROWS = 64


class _Forces(NamedTuple):
    """Attraction between c clusters, both (c, c), symmetric, with 0 on the diagonal.

    Attributes:
        force: over the comparable pairs of points from two clusters, the sum of distance to the power -w.
        pairs: number of these pairs, int64.
    """

    force: FloatArray
    pairs: IntArray


class PointSums(NamedTuple):
    """Sums over the points of each cluster, as each point sees them.

    Attributes:
        sums: (N, c), 0 where the point and the cluster are not comparable.
        comparable: whether clusters have common columns that vary (reading 2), (c, c).
        size: points of each cluster (c,).
    """

    sums: FloatArray
    comparable: BoolArray
    size: IntArray


def pair_forces(points: ArrayLike, cluster: ArrayLike, w: float = 2.0, phi: str = "euclidean") -> _Forces:
    """Return the attraction between all pairs of clusters: f' of equation 10, and the number of pairs behind it.

    Args:
        points: (N, D), NaN where unknown. All points of a cluster know the same columns, those of its site.
        cluster: of each point (N,), every number from 0 to c - 1.
        w: exponent, 1 < w <= 20. The larger, the more the nearest pairs decide.
        phi: "euclidean" or "cosine".

    Returns:
        Forces. Time O(N^2 D / 2) where all know all columns, less where sites know few; memory O(N (D + c)).

    Raises UserError for input that does not fit the above.
    """
    if not 1 < w <= LARGEST_W:
        raise UserError(f"w must be a number above 1 and at most {LARGEST_W}, got {w!r}; the paper uses 2")

    sums, comparable, size = point_sums(points, cluster, -w, phi)
    order = np.argsort(np.asarray(cluster), kind="stable")
    force = np.triu(np.add.reduceat(sums[order], np.cumsum(size) - size, axis=0), 1)
    pairs = np.where(comparable, np.outer(size, size), 0)
    np.fill_diagonal(pairs, 0)
    return _Forces(force + force.T, pairs)


def point_sums(points: ArrayLike, cluster: ArrayLike, power: float = 1.0, phi: str = "euclidean") -> PointSums:
    """Return for every point and cluster the sum of the scaled distances to the cluster's points, to a power.

    Args:
        points, cluster, phi: as for `pair_forces`.
        power: if negative, distances are at least 1e-12 (reading 1). A point's distance to itself, 0, is among them.

    Raises UserError as for `pair_forces`.
    """
    values, labels, over = _checked(points, cluster, phi)
    size, (masks, site) = np.bincount(labels), masks_of_sites(~np.isnan(values), labels)
    # Clusters of one site side by side, and the points in this order of clusters.
    ordered = np.argsort(site, kind="stable")
    place = np.argsort(ordered)
    order = np.argsort(place[labels], kind="stable")
    values, ends = values[order], np.concatenate([[0], np.cumsum(size[ordered])])
    sums = np.zeros((len(labels), len(size)))
    centred = np.nan_to_num(values - np.nanmean(values, axis=0)) if phi == "euclidean" else values
    scales = np.array([[_scale(over, mine & theirs, phi) for theirs in masks] for mine in masks])
    with one_thread():
        pieces = _pieces(site[ordered], ends)
        for i, mine in enumerate(pieces):
            for theirs in pieces[i:]:
                g, h = site[ordered[[mine[0], theirs[0]]]]
                if scales[g, h] > 0:
                    _add_between(
                        sums, values, centred, ends, mine, theirs, masks[g] & masks[h], scales[g, h], power, phi
                    )
    unsorted = np.empty_like(sums)
    unsorted[order] = sums[:, place]
    return PointSums(unsorted, (scales > 0)[np.ix_(site, site)], size)


def _pieces(site: IntArray, ends: IntArray) -> list[range]:
    """Return ranges of clusters of one site each, in order, with about as many points as fit into a block."""
    pieces, first = [], 0
    for p in range(1, len(site) + 1):
        if p == len(site) or site[p] != site[first] or ends[p + 1] - ends[first] > _POINTS:
            pieces.append(range(first, p))
            first = p
    return pieces


def _add_between(
    sums: FloatArray,
    values: FloatArray,
    centred: FloatArray,
    ends: IntArray,
    mine: range,
    theirs: range,
    common: BoolArray,
    scale: float,
    power: float,
    phi: str,
) -> None:
    """Add to the sums of the points in two pieces what they are to each other; points of cluster p end at ends[p + 1].

    Squared distances are |x|^2 + |y|^2 - 2 x.y, of `centred` points or, for cosine, of directions (of which they are twice the
    distance); pairs that lose many digits are computed again from differences of `values`.
    """
    begin, end = slice(ends[mine[0]], ends[mine[-1] + 1]), slice(ends[theirs[0]], ends[theirs[-1] + 1])
    columns = np.flatnonzero(common)

    def prepared(points: slice) -> tuple[FloatArray, FloatArray]:
        if phi == "euclidean":
            return values[points], centred[points] if common.all() else centred[points].take(columns, axis=1)
        found = _directions(values[points] if common.all() else values[points].take(columns, axis=1))
        return found, found

    others, y = prepared(end)
    own, x = (others, y) if mine == theirs else prepared(begin)
    if phi != "euclidean":
        columns = np.arange(x.shape[1])
    xx, yy = np.einsum("id,id->i", x, x), np.einsum("jd,jd->j", y, y)
    # Of |x - y|^2, beside the scaled distance to the power: what it is divided by, the exponent, and the least value.
    unit, exponent = (scale**2, power / 2) if phi == "euclidean" else (2 * scale, power)
    least = unit * _NEAREST ** (power / exponent) if power < 0 else 0.0
    products = np.empty(_ROWS * len(y))
    for p in mine:
        q = max(p, theirs[0])  # pairs within a piece once
        later, borders = slice(ends[q] - end.start, None), ends[q : theirs[-1] + 2] - ends[q]
        column = np.zeros(len(y) - later.start)
        for first in range(ends[p], ends[p + 1], _ROWS):
            rows = slice(first, min(first + _ROWS, ends[p + 1]))
            some = slice(rows.start - begin.start, rows.stop - begin.start)
            found = products[: (rows.stop - rows.start) * len(column)].reshape(-1, len(column))
            np.matmul(x[some], y[later].T, out=found)
            _squared_distances(own[some], others[later], columns, xx[some], yy[later], _CLOSE, least, found)
            _raise(found, unit, exponent)
            _add_terms(found, borders, p == q, sums[rows, q : theirs[-1] + 1], column)
        sums[ends[q] : end.stop, p] += column


def _raise(squares: FloatArray, unit: float, exponent: float) -> None:
    """Let squares / unit to a power take the place of squares; NumPy's power takes seven times as long as a division."""
    if exponent == -1:
        np.divide(unit, squares, out=squares)
        return
    squares /= unit
    if exponent == -2:
        np.divide(1.0, np.multiply(squares, squares, out=squares), out=squares)
    elif exponent == 0.5:
        np.sqrt(squares, out=squares)
    elif exponent != 1:
        np.power(squares, exponent, out=squares)


def _scale(over: Extremes, common: BoolArray, phi: str) -> float:
    """Return equation 2 on the common columns; 0 where distances have no scale (reading 2)."""
    if not common.any():
        return 0.0
    ends = np.stack([over.high[common], over.low[common]])
    if phi == "euclidean":
        return float(np.sqrt(((ends[0] - ends[1]) ** 2).sum()))
    u, v = _directions(ends)
    divisor = float(((u - v) ** 2).sum()) / 2
    return divisor if divisor > _NEAREST else 0.0


def _directions(points: FloatArray) -> FloatArray:
    """Return points (a, d) as unit vectors (a, d + 1): half their squared distance is 1 - cos.

    The last column is 1 for a zero vector, whose distance to all others then is 1.
    """
    length = np.sqrt((points**2).sum(axis=1, keepdims=True))
    return np.hstack([np.divide(points, length, out=np.zeros_like(points), where=length > 0), length == 0])


def _checked(points: ArrayLike, cluster: ArrayLike, phi: str) -> tuple[FloatArray, IntArray, Extremes]:
    """Return points without the columns that do not vary (reading 2), their clusters, and their extremes."""
    values = as_masked(points, "points")
    check_choice("phi", phi, PHIS)
    check_rows(values, "points")
    labels = as_labels(cluster, len(values), len(values))
    sizes, first = np.bincount(labels), np.unique(labels, return_index=True)[1]
    if not sizes.all():
        raise UserError(f"cluster must hold all numbers from 0 to {len(sizes) - 1}; {int(sizes.argmin())} has no point")
    known = ~np.isnan(values)
    if (known != known[first][labels]).any():
        raise UserError("all points of a cluster must know the same columns, those of its site")
    over = extremes(values)
    if phi == "euclidean":
        varied = varying(over)
        values, over = values[:, varied], Extremes(over.high[varied], over.low[varied])
    return values, labels, over


# Numba kernels around the products of matrices that distances between clusters of points come from.
#
# A product of matrices takes a sixth of the time that array expressions take to turn it into distances and to add them up: each
# of these reads and writes a block that does not fit the cache, or is new memory. Sums may be added in any order, which differs
# between processors in their last bits only.

_FAST = {"contract", "nsz", "nnan", "reassoc"}


@kernel()
def _squared_distances(
    x: FloatArray,
    y: FloatArray,
    columns: IntArray,
    xx: FloatArray,
    yy: FloatArray,
    close: float,
    least: float,
    products: FloatArray,
) -> None:
    """products[i, j] become xx_i + yy_j - 2 products[i, j], at least `least`.

    Below `close` times xx_i + yy_j they become |x_i - y_j|^2 in these columns.
    """
    for i in range(products.shape[0]):
        row, own, again = products[i], xx[i], False
        for j in range(yy.shape[0]):
            total = own + yy[j]
            square = total - 2.0 * row[j]
            row[j] = square if square > least else least  # noqa: FURB136
            again |= row[j] < close * total
        if again:
            for j in range(yy.shape[0]):
                if row[j] < close * (own + yy[j]):
                    row[j] = max(_squared(x[i], y[j], columns), least)


@kernel(fastmath=_FAST)
def _squared(x: FloatArray, y: FloatArray, columns: IntArray) -> float:
    total = 0.0
    for j in columns:
        total += (x[j] - y[j]) * (x[j] - y[j])
    return total


@kernel(fastmath=_FAST)
def _add_terms(terms: FloatArray, ends: IntArray, own: bool, by_row: FloatArray, by_column: FloatArray) -> None:
    """by_row[i, q] += the sum of terms (a, b) over the columns ends[q] to ends[q + 1]; by_column[j] += that over all rows.

    The columns of the first q are left out of the latter if they are the rows' `own`.
    """
    for q in range(ends.shape[0] - 1):
        column = by_column[ends[q] : ends[q + 1]]
        for i in range(terms.shape[0]):
            row, total = terms[i, ends[q] : ends[q + 1]], 0.0
            for j in range(column.shape[0]):
                total += row[j]
                column[j] += row[j]
            by_row[i, q] += total
        if own and q == 0:
            column[:] = 0.0
