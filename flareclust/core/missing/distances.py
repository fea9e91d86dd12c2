"""Distances of points with unknown entries: these are NaN, and only common entries count.

Source: Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces", section 3.4: a distance on
the common entries of two points is divided by the largest distance that those entries allow, which makes distances in
different subspaces comparable.

Readings, and what is added:
1. Equation 2: the extremes of an entry are taken over the points that know it. An entry that no point of S knows has no
   scale and does not count.
2. Two points without a common entry have no distance: NaN, which every user of this module ignores.
3. The divisor is 0 where S does not vary on the common entries. 0 / 0 is no distance: NaN, as without a common entry. An
   entry counts as constant where its extremes differ by rounding only, at most 1e-12 of their size (for cosine: the
   divisor is at most 1e-12).
4. Where rows are compared with centroids, entries that one centroid alone knows do not count (`_contrasts`). A row for
   which no centroid has a distance by reading 3 belongs to the first that it has an entry in common with.
5. The cosine distance 1 - cos of a zero vector is 1, of two zero vectors 0.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust._foundation.validation import check_choice
from flareclust.core.arrays import check_rows
from flareclust.core.lloyd import labels_of
from flareclust.core.missing.kernels import Points, pair_distances
from flareclust.core.runtime import one_thread

#: The distances between points whose entries are all known.
PHIS = ("euclidean", "cosine")

#: Relative differences and cosine distances up to it are rounding (reading 3).
_ROUNDING = 1e-12

#: A distance this far below the points' lengths has lost half of its digits in a difference of products: done again.
_CLOSE = 1e-6

#: Numbers in a temporary array: 32 MiB.
_BLOCK = 1 << 22


class Extremes(NamedTuple):
    """Largest and smallest known value of each entry, both (D,), NaN where no point knows the entry."""

    high: FloatArray
    low: FloatArray


def extremes(points: ArrayLike) -> Extremes:
    """Return ewmax and ewmin of equation 2 over points (s, D), unknown entries ignored.

    Raises UserError where points are not (s, D), or hold infinite numbers.
    """
    values = as_masked(points, "points")
    return Extremes(np.fmax.reduce(values, axis=0, initial=np.nan), np.fmin.reduce(values, axis=0, initial=np.nan))


def _contrasts(centroids: ArrayLike) -> Extremes:
    """Return the extremes of centroids (k, D) by which rows are compared with them: of entries that two or more know.

    An entry that one centroid alone knows does not show which centroid is nearer, but would count against that one:
    it adds to a distance and nothing to the divisor. It counts only for a centroid that knows no other.

    Raises UserError as `extremes`.
    """
    values = as_masked(centroids, "centroids")
    known = ~np.isnan(values)
    several = known.sum(axis=0) > 1
    counted = several | known[~(known & several).any(axis=1)].any(axis=0)
    high, low = extremes(values)
    return Extremes(np.where(counted, high, np.nan), np.where(counted, low, np.nan))


def scaled_distances(A: ArrayLike, B: ArrayLike, over: Extremes, phi: str = "euclidean") -> FloatArray:
    """Return the distances of equation 3 between A (a, D) and B (b, D), (a, b), without unit.

    In [0, 1] for points within the extremes `over` (euclidean; cosine may exceed 1). NaN where two points have no common
    entry, or the extremes do not differ in any (reading 3). Beside the result, memory for a few copies of B and some blocks of 32 MiB is used. Not to be called within
    `one_thread`, which it uses.

    Args:
        A, B: points, NaN where unknown.
        over: extremes of the set S.
        phi: "euclidean" or "cosine".

    Raises UserError for input that does not fit the above.
    """
    A, B = as_masked(A, "A"), as_masked(B, "B")
    check_choice("phi", phi, PHIS)
    if not A.shape[1] == B.shape[1] == len(over.high) == len(over.low):
        raise UserError(
            f"A, B and over must have the same columns, got {A.shape[1]}, {B.shape[1]} and {len(over.high)}; "
            "spread each over the union of all columns, with NaN where unknown"
        )
    with one_thread():
        return scaled(A, B, over, phi)


def nearest(X: ArrayLike, centroids: ArrayLike, phi: str = "euclidean") -> IntArray:
    """Return the nearest centroid of each row, labels (n,), in scaled distances with S = the centroids (`_contrasts`).

    Ties go to the lower index; -1 where a row has no known entry in common with any centroid.

    Args:
        X: rows (n, d), NaN where unknown.
        centroids: (k, d), k >= 1, NaN where unknown.
        phi: "euclidean" or "cosine".

    Raises UserError for input that does not fit the above.
    """
    X, centroids = as_masked(X, "X"), as_masked(centroids, "centroids")
    check_choice("phi", phi, PHIS)
    check_rows(centroids, "centroids")
    if X.shape[1] != centroids.shape[1]:
        raise UserError(f"centroids have {centroids.shape[1]} columns, X has {X.shape[1]}; give both the same columns")
    known = ~np.isnan(centroids)
    if not known.any():
        return np.full(len(X), -1, np.int64)
    shared = known[0]
    if phi == "euclidean" and (known == shared).all() and not np.isnan(X[:, shared]).any():
        return labels_of(X[:, shared], centroids[:, shared])  # one subspace: scaling changes no order
    labels = np.empty(len(X), np.int64)
    for rows in blocks(len(X), max(centroids.shape)):
        labels[rows] = lowest(centroid_distances(X[rows], centroids, phi))
    return labels


def nearest_by_known(X: FloatArray, centroids: FloatArray, phi: str = "euclidean") -> IntArray:
    """Return what `nearest` does, of each row by the columns that it knows alone, as at a site that has no others."""
    labels = np.full(len(X), -1, dtype=np.int64)
    has, known_entries = np.unique(~np.isnan(X), axis=0, return_inverse=True)
    for pattern, columns in enumerate(has):
        rows = known_entries.reshape(-1) == pattern
        if columns.any():
            labels[rows] = nearest(np.ascontiguousarray(X[np.ix_(rows, columns)]), centroids[:, columns], phi)
    return labels


def centroid_distances(X: ArrayLike, centroids: ArrayLike, phi: str = "euclidean") -> FloatArray:
    """Return the scaled distances (n, k) of rows (n, D) to centroids (k, D), S being the centroids (`_contrasts`).

    A row that has no distance to any centroid gets 0 for those with which it has a known entry in common (reading 4).

    Raises UserError as `scaled_distances`.
    """
    X, centroids = as_masked(X, "X"), as_masked(centroids, "centroids")
    distances = scaled_distances(X, centroids, _contrasts(centroids), phi)
    lost = np.isnan(distances).all(axis=1)
    if lost.any():
        common = (~np.isnan(X[lost])).astype(np.float64) @ (~np.isnan(centroids)).T
        distances[lost] = np.where(common > 0, 0.0, np.nan)
    return distances


def lowest(distances: FloatArray) -> IntArray:
    """Return the column of the smallest distance in each row of (a, b), the first of equals; -1 where all are NaN."""
    filled = np.where(np.isnan(distances), np.inf, distances)
    return np.where(np.isnan(distances).all(axis=1), -1, filled.argmin(axis=1)).astype(np.int64)


def scaled(A: FloatArray, B: FloatArray, over: Extremes, phi: str) -> FloatArray:
    """Compute what `scaled_distances` promises from checked input, with as many threads as BLAS has."""
    out, b = np.empty((len(A), len(B))), as_points(B, over, phi)
    for rows in blocks(len(A), max(B.shape)):
        a = as_points(A[rows], over, phi)
        divisors = largest(a.masks, b.masks, over, phi)
        out[rows] = _distances(a, b, phi) / divisors[a.which[:, None], b.which]
    return out


def largest(A: FloatArray, B: FloatArray, over: Extremes, phi: str) -> FloatArray:
    """Return equation 2 for the masks A (u, D) and B (v, D) of `Points`, (u, v); NaN where nothing common varies."""
    middle = _middle(over, phi)
    high = Points(np.nan_to_num(over.high - middle) * A, A, np.arange(len(A)))
    low = Points(np.nan_to_num(over.low - middle) * B, B, np.arange(len(B)))
    divisor = _distances(high, low, phi)
    divisor[(divisor <= (0.0 if phi == "euclidean" else _ROUNDING)) | (A @ B.T == 0)] = np.nan
    return divisor


def masks_of_sites(known: BoolArray, labels: IntArray) -> tuple[BoolArray, IntArray]:
    """Return the different masks (u, D) among clusters of points (N, D), and which each cluster has (c,)."""
    first = np.unique(labels, return_index=True)[1]
    masks, site = np.unique(known[first], axis=0, return_inverse=True)
    return masks, site.reshape(-1)


def varying(over: Extremes) -> BoolArray:
    """Return in which entries (D,) the extremes differ by more than rounding; not where nobody knows the entry."""
    size = np.fmax(np.abs(over.high), np.abs(over.low))
    return over.high - over.low > _ROUNDING * size


def as_points(values: FloatArray, over: Extremes, phi: str) -> Points:
    """Return points (a, D) with NaN in the form that products need; constant entries do not count (reading 3)."""
    known = ~np.isnan(values) & (varying(over) if phi == "euclidean" else ~np.isnan(over.high))
    centred = np.where(known, values - _middle(over, phi), 0.0)
    masks, pattern = _different(known)
    return Points(centred, masks, pattern)


def as_masked(values: ArrayLike, name: str) -> FloatArray:
    """Return points as a (rows, columns) float64 array, in which NaN stands for unknown.

    Raises UserError where it has not two axes or no column, or holds infinite numbers or no numbers.
    """
    try:
        points = np.require(values, np.float64, ["C", "A"])
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a table of numbers, with NaN where a value is unknown") from None
    if points.ndim != 2 or points.shape[1] == 0:
        raise UserError(f"{name} must have two axes (rows, columns) and a column, got shape {points.shape}")
    if np.isinf(points).any():
        raise UserError(f"{name} must not hold infinite numbers; use NaN where a value is unknown")
    return points


def blocks(n: int, width: int) -> Iterator[slice]:
    """Return slices of n rows, so that rows times width stay below the size of a block."""
    step = max(1, _BLOCK // width)
    return (slice(start, start + step) for start in range(0, n, step))


def _middle(over: Extremes, phi: str) -> FloatArray:
    """Return the origin of `Points.values` (D,): shifting changes no euclidean distance, and makes sums smaller."""
    return over.high / 2 + over.low / 2 if phi == "euclidean" else 0 * over.high


def _different(known: BoolArray) -> tuple[FloatArray, IntArray]:
    """Return the different rows of masks (a, D) as 0 and 1, and which of them each row is; sites have one mask each."""
    packed = np.packbits(known, axis=1)
    if (packed == packed[:1]).all():
        return known[:1].astype(np.float64), np.zeros(len(known), np.int64)
    _, first, index = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return known[first].astype(np.float64), index.reshape(-1).astype(np.int64)


def _distances(a: Points, b: Points, phi: str) -> FloatArray:
    """Return phi on the common entries of each pair, (a, b); 0 or 1 where there are none."""
    dot, xx = a.values @ b.values.T, (a.values**2 @ b.masks.T)[:, b.which]
    yy = (a.masks @ (b.values**2).T)[a.which]
    if phi == "euclidean":
        squared = xx + yy - 2 * dot
        close, out = squared <= _CLOSE * (xx + yy), np.sqrt(np.maximum(squared, 0.0))
    else:
        lengths = np.sqrt(xx) * np.sqrt(yy)
        out = 1.0 - np.divide(dot, lengths, out=np.zeros_like(dot), where=lengths > 0)
        out[(xx == 0) & (yy == 0)] = 0.0
        close = (out <= _CLOSE) & (lengths > 0)
    i, j = np.nonzero(close)
    again = np.empty(len(i))
    pair_distances(a, i, b, j, phi == "cosine", again)
    out[i, j] = again
    return out
