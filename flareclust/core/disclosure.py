"""Which clusters a site may describe to others without describing single rows."""

from collections.abc import Sized

import numpy as np

from flareclust._foundation.errors import Refusal
from flareclust._foundation.typing import Array, BoolArray, FloatArray, IntArray
from flareclust.core import group_kernels
from flareclust.core.threads import team

#: Values of fewer rows than this follow from their mean and variance.
LEAST_ROWS = 3


def describable(
    data: FloatArray,
    labels: IntArray,
    centroids: FloatArray,
    min_count: int,
    *,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
) -> BoolArray:
    """Return which of the k clusters may be described to others.

    A cluster of one row is that row, and so is a cluster of one row repeated, however often: the centroid of either
    would be a row of the site's data. A centroid that is a row by chance, as a mean of integers can be, is
    withheld as well, since nobody can distinguish the two; so is one that is a row but for rounding.

    Args:
        data: rows (n, d).
        labels: cluster of each row (n,), in 0..k-1; -1 for rows whose cluster is not sent anyway.
        centroids: mean of each cluster's rows (k, d).
        min_count: smallest number of rows of a cluster that is sent.
        ones: where all columns are of 0 and 1, what 1 is in each of them (d,). Then a cluster of one row repeated is
            described as well if it has `LEAST_ROWS` rows: it is a cell of a table of counts. None for other columns.
        known: which cells were not filled in (n, d): a cluster with fewer than `min_count` of them in a column is not
            described, unless it has none there. None for all.
    """
    counts, varied, is_row, examples = _described(data, labels, centroids)
    mask = describable_groups(counts, varied, is_row, examples, min_count, ones)
    return mask if known is None else mask & describable_where_known(data, known, labels, len(mask), min_count)


def _described(
    X: FloatArray, labels: IntArray, centroids: FloatArray
) -> tuple[IntArray, BoolArray, BoolArray, FloatArray]:
    """Return what `described_groups` does, in threads where there are many rows."""
    with team(4 * (X.size + len(X))) as own:
        if own.threads == 1 or X.shape != (len(labels), centroids.shape[1]):
            return group_kernels.described_groups(X, labels, centroids)
        (counts, first), parts = group_kernels.rows_of_each(labels, len(centroids)), own.parts(len(X))
        least, largest = zip(*own.each(lambda part: group_kernels.range_of(X[part]), parts), strict=True)
        examples, rounding = X[first], group_kernels.rounding_of(np.min(least, axis=0), np.max(largest, axis=0))
        about = centroids, examples, rounding
        found = own.each(lambda part: group_kernels.evidence_of(X[part], labels[part], *about), parts)
        varied, is_row = zip(*found, strict=True)
        return counts, np.any(varied, axis=0), np.any(is_row, axis=0), examples


def describable_groups(
    counts: IntArray, varied: BoolArray, is_row: BoolArray, example: FloatArray, min_count: int, ones: FloatArray | None
) -> BoolArray:
    """Return what `describable` does, from the rows of each cluster (k,), their evidence (`evidence_of`), and a row of each (k, d)."""
    mask: BoolArray = (counts >= min_count) & varied & ~is_row
    if ones is None:
        return mask
    of_categories = ((example == 0) | (example == ones)).all(axis=1)
    mask |= (counts >= max(min_count, LEAST_ROWS)) & ~varied & of_categories
    return mask


def disclosable_clusters(
    data: FloatArray,
    labels: IntArray,
    centroids: FloatArray,
    min_count: int,
    *,
    ones: FloatArray | None = None,
    known: BoolArray | None = None,
) -> BoolArray:
    """Return what `describable` does, or raise Refusal where that is no cluster at all."""
    keep = describable(data, labels, centroids, min_count, ones=ones, known=known)
    if not keep.any():
        raise nothing_to_send(min_count)
    return keep


def describable_where_known(data: FloatArray, known: BoolArray, labels: IntArray, k: int, least: int) -> BoolArray:
    """Return which of k clusters may be described, by the cells that were not filled in; labels may be -1.

    With what gaps were filled with, the means of the known cells follow from what is sent. So these must be of `least` rows
    in each column that the cluster knows, differ in some column, and not be a row that knows all of these columns.
    """
    used = labels >= 0
    rows, known, labels = data[used], known[used], labels[used]
    rounding = group_kernels.rounding_of(data.min(axis=0), data.max(axis=0))
    varied, whole = np.zeros(k, dtype=np.bool_), np.ones(len(rows), dtype=np.bool_)
    for j in range(rows.shape[1]):
        own, values = labels[known[:, j]], rows[known[:, j], j]
        counts = np.bincount(own, minlength=k)
        means = np.bincount(own, values, minlength=k) / np.maximum(counts, 1)
        smallest, largest = np.full(k, np.inf), np.full(k, -np.inf)
        np.minimum.at(smallest, own, values)
        np.maximum.at(largest, own, values)
        varied |= largest > smallest
        at_mean = known[:, j] & (np.abs(rows[:, j] - means[labels]) <= rounding[j])
        whole &= at_mean | (counts == 0)[labels]
    is_row, few = np.bincount(labels[whole], minlength=k) > 0, few_known(known, labels, k, least).any(axis=1)
    return np.asarray(~few & varied & ~is_row, dtype=np.bool_)


def known_cells(known: BoolArray, labels: IntArray, k: int) -> IntArray:
    """Return how many known cells each cluster has in each column (k, d); labels (n,) may be -1."""
    counts = np.empty((k, known.shape[1]), dtype=np.int64)
    for j in range(known.shape[1]):
        counts[:, j] = np.bincount(labels[known[:, j] & (labels >= 0)], minlength=k)
    return counts


def few_known(known: BoolArray, labels: IntArray, k: int, least: int) -> BoolArray:
    """Return which columns (k, d) of clusters of `least` rows or more have some known cells, but fewer than that."""
    counts, rows = known_cells(known, labels, k), np.bincount(labels, minlength=k)
    return (counts > 0) & (counts < least) & (rows >= least)[:, None]


def check_enough(data: Sized, min_count: int) -> None:
    """Raise Refusal where there are fewer rows than a cluster must have to be sent."""
    if len(data) < min_count:
        raise Refusal(f"has fewer rows than min_count={min_count}")


def nothing_to_send(min_count: int) -> Refusal:
    """Return the refusal of a site that has no cluster that may be described."""
    return Refusal(f"has no cluster of at least min_count={min_count} rows that differ, so nothing it may send")


def varies_in_one_feature(data: FloatArray, labels: IntArray, k: int) -> BoolArray:
    """Return which of the k clusters have rows (n, d) that differ in one column at the most.

    Of such a cluster the centroid and the distance of a row are the row: there are two places that far away.
    """
    return np.asarray(group_kernels.columns_that_vary(data, labels, k).sum(axis=1) <= 1)


# Numbers of rows as multiples of what a site's policy says.
#
# A number goes to the nearest multiple, of two as near ones to the even multiple, but never below the site's floor: what
# would end there goes up to the smallest multiple that does not. So 0 stays 0, and everything else is a multiple at or
# above the floor. Sums over these rows are scaled by the same factor, so that means over a cluster stay what they are.


def rounded(values: Array, multiple: int, floor: int) -> Array:
    """Return numbers of rows, or weights, as multiples of `multiple`; those above 0 at or above `floor`."""
    if multiple == 1:
        return values
    minimum, nearest = -(-floor // multiple) * multiple, np.rint(values / multiple) * multiple
    return np.where(values > 0, np.maximum(nearest, minimum), 0).astype(values.dtype)


def factor(counts: Array, multiple: int, floor: int) -> FloatArray:
    """Return by how much the sums over so many rows are scaled; 1 where there are none."""
    if multiple == 1:
        return np.ones(np.shape(counts))
    return np.where(counts > 0, rounded(counts, multiple, floor) / np.maximum(counts, 1), 1.0)
