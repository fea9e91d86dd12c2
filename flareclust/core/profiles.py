"""What describes clusters, from sums over rows: means, deviations, and counts in agreed bins.

Sites add up their rows; the server chooses the bins from the moments of all sites, and reads quantiles off their counts.
A bin with fewer rows than may be counted is added to its neighbour on the side of the median, so that all rows stay in.
"""

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.disclosure import LEAST_ROWS, describable
from flareclust.core.lloyd import sums_by_label

#: Bins of a column.
BINS = 20

#: Edges are multiples of the power of ten at or below this part of a column's deviation, so that they read well.
_STEP = 0.1

#: Shares of rows, and variances of 0 and 1, may be off by the first; means of shares in groups lie beyond 0 and 1 by less than the second.
_ROUNDING, _BEYOND = 1e-9, 0.05

#: Halvings of the interval that an edge is sought in, and standard deviations around the means that it covers.
_HALVINGS, _REACH = 50, 4.0


def moments(X: FloatArray, labels: IntArray, k: int, floor: int) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return the clusters of the rows (n, d) that may be described, with rows (c,), means (c, d) and squared deviations (c, d).

    Labels (n,) are those of k clusters, or -1; one that is described has `floor` rows, and at least three.
    """
    counts, means, m2 = moments_of_all(X, labels, k)
    kept = np.flatnonzero(describable(X, labels, means, max(floor, LEAST_ROWS))) if counts.any() else np.arange(0)
    return kept, counts[kept], means[kept], m2[kept]


def moments_of_all(X: FloatArray, labels: IntArray, k: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the rows (k,), means (k, d) and squared deviations (k, d) of all clusters, however small; arguments as above."""
    used = labels >= 0
    own, rows = labels[used], X[used]
    counts = np.bincount(own, minlength=k)
    size = np.maximum(counts, 1)
    origin = rows.mean(axis=0) if len(rows) else np.zeros(X.shape[1])
    means, m2 = np.empty((k, X.shape[1])), np.empty((k, X.shape[1]))
    for j in range(X.shape[1]):
        means[:, j] = origin[j] + sums_by_label(own, rows[:, j] - origin[j], k) / size
        m2[:, j] = sums_by_label(own, (rows[:, j] - means[own, j]) ** 2, k)
    return counts, means, m2


def is_binary(counts: IntArray, means: FloatArray, m2: FloatArray) -> BoolArray:
    """Return which columns (d,) hold only 0 and 1, from means (k, d) and squared deviations (k, d) of clusters.

    A column's values between 0 and 1 are all 0 or 1 exactly where its variance is p (1 - p). `counts` are the rows of each
    cluster (k,), or the known cells of each column (k, d).
    """
    n = np.broadcast_to(counts if counts.ndim == 2 else counts[:, None], means.shape)
    inside = (means >= -_ROUNDING) & (means <= 1 + _ROUNDING)
    fits = inside & (np.abs(m2 - n * means * (1 - means)) <= _ROUNDING * n)
    return np.asarray((fits | (n == 0)).all(axis=0) & (n > 0).any(axis=0))


def are_shares(means: FloatArray) -> BoolArray:
    """Return which columns (d,) have means (k, d) from 0 to 1, or a little beyond, as rows in the place of groups can have."""
    return np.asarray(((means >= -_BEYOND) & (means <= 1 + _BEYOND)).all(axis=0))


def edges_between(counts: IntArray, means: FloatArray, m2: FloatArray, bins: int = BINS) -> FloatArray:
    """Return the edges (d, bins - 1) of bins that hold about equally many rows, were each cluster normally distributed;
    where clusters are apart in a column, some lie between them.

    The outer bins are open; bin b holds the values x with edge[b - 1] < x <= edge[b]. Of columns with few different values
    edges repeat; those of 0 and 1 have the edge 0.5 alone. There are two bins at least, and in the clusters' counts (k,)
    one row at least; `m2` are the squared deviations from the means (k, d).
    """
    from scipy.special import ndtr  # sites, which need it not, start in a tenth less time without it

    known = counts > 0
    n, mean = counts[known].astype(np.float64), means[known]
    deviation, center = np.sqrt(m2[known] / n[:, None]), n @ mean / n.sum()
    total = np.sqrt((n @ (deviation**2 + (mean - center) ** 2)) / n.sum())
    spread = np.maximum(deviation, 1e-9 * total)
    low = np.repeat((mean - _REACH * spread).min(axis=0)[:, None], bins - 1, axis=1)
    high = np.repeat((mean + _REACH * spread).max(axis=0)[:, None], bins - 1, axis=1)
    wanted, safe = np.arange(1, bins) / bins, np.where(spread > 0, spread, 1.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = sum(
            share * ndtr((middle - m[:, None]) / s[:, None])
            for share, m, s in zip(n / n.sum(), mean, safe, strict=True)
        )
        low, high = np.where(below < wanted, middle, low), np.where(below < wanted, high, middle)
    edges = _readable(_at_borders(high, mean, deviation), total)
    edges[is_binary(counts, means, m2)] = 0.5
    constant = total == 0
    edges[constant] = center[constant, None]
    return np.sort(edges, axis=1)


def _at_borders(edges: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return edges (d, e) of which up to half, those nearest to them, are moved to where neighbouring clusters (k, d) are best
    kept apart: as many of their deviations from the one as from the other.
    """
    moved, most = edges.copy(), edges.shape[1] // 2
    for j in range(len(edges)):
        order = np.argsort(mean[:, j], kind="stable")
        m, s = mean[order, j], deviation[order, j]
        width, apart = s[1:] + s[:-1], np.flatnonzero(np.diff(m) > 0)
        score = np.full(len(width), np.inf)
        np.divide(np.diff(m), width, out=score, where=width > 0)
        free = np.ones(edges.shape[1], dtype=bool)
        for i in apart[np.argsort(-score[apart], kind="stable")][:most]:
            part = s[i] / width[i] if width[i] > 0 else 0.5
            border = m[i] + part * (m[i + 1] - m[i])
            nearest = int(np.where(free, np.abs(edges[j] - border), np.inf).argmin())
            moved[j, nearest], free[nearest] = border, False
    return moved


def _readable(edges: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return edges (d, e) with as many digits as their column needs."""
    rounded = edges.copy()
    for j, size in enumerate(deviation):
        if size > 0 and (digits := -int(np.floor(np.log10(_STEP * size)))) <= 15:
            rounded[j] = np.round(edges[j], digits)
    return rounded


def in_bins(X: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin (n, d) of every value of the rows (n, d)."""
    found = np.empty(X.shape, dtype=np.int64)
    for j, own in enumerate(edges):
        found[:, j] = np.searchsorted(own, X[:, j], side="left")
    return found


def counted(
    bins: IntArray,
    leaves: IntArray,
    labels: IntArray,
    shape: tuple[int, int, int],
    floor: int,
    known: BoolArray | None = None,
    shown: BoolArray | None = None,
) -> IntArray:
    """Return how many rows, or known cells, each leaf and cluster has in each column's bins (l, k, d, h).

    Args:
        bins: of every value (n, d).
        leaves: leaf of each row (n,); -1 for rows that are not counted.
        labels: cluster of each row (n,); -1 likewise.
        shape: numbers of leaves l, clusters k and bins h.
        floor: smallest number that may be counted; smaller bins are added to their neighbours.
        known: which of the values are known (n, d); None for all.
        shown: which columns of leaves and clusters are counted (l, k, d); None for those with `floor` rows.
    """
    n_leaves, k, h = shape
    used, cell = (labels >= 0) & (leaves >= 0), leaves * k + labels
    found = np.empty((n_leaves, k, bins.shape[1], h), dtype=np.int64)
    for j in range(bins.shape[1]):
        own = used if known is None else used & known[:, j]
        code = cell[own] * h + bins[own, j]
        found[:, :, j] = np.bincount(code, minlength=n_leaves * k * h).reshape(n_leaves, k, h)
    shown = found[:, :, :1].sum(axis=-1) >= floor if shown is None else shown
    return _without_small_bins(np.where(shown[..., None], found, 0), floor)


def _without_small_bins(counts: IntArray, floor: int) -> IntArray:
    """Return counts (..., h) where bins of 1 to `floor` - 1 rows are added to their neighbours, towards the median."""
    h = counts.shape[-1]
    kept = counts.reshape(-1, h).copy()
    total = kept.sum(axis=1)
    median = (np.cumsum(kept, axis=1) * 2 >= total[:, None]).argmax(axis=1)
    for b in range(h - 1):
        _move(kept, b, b + 1, (b < median) & (kept[:, b] < floor))
    for b in range(h - 1, 0, -1):
        _move(kept, b, b - 1, (b > median) & (kept[:, b] < floor))
    at = kept[np.arange(len(kept)), median]
    for i in np.flatnonzero((at > 0) & (at < floor)):
        others = np.flatnonzero(kept[i] >= floor)
        if len(others):
            kept[i, others[np.abs(others - median[i]).argmin()]] += at[i]
        kept[i, median[i]] = 0
    return kept.reshape(counts.shape)


def _move(counts: IntArray, source: int, target: int, which: BoolArray) -> None:
    counts[which, target] += counts[which, source]
    counts[which, source] = 0


def quantiles(
    counts: IntArray, edges: FloatArray, ends: tuple[FloatArray, FloatArray], shares: FloatArray
) -> FloatArray:
    """Return the quantiles (q, k, d) of each cluster's columns, read off the counts (k, d, h) in bins by straight lines;
    NaN without rows.

    `edges` are those of the bins (d, h - 1), `ends` the lower ends of the first and upper ends of the last bins, each (k,
    d), and `shares` say which quantiles (q,), above 0 and below 1.
    """
    k, d, h = counts.shape
    inner = np.broadcast_to(edges, (k, d, h - 1))
    low, high = np.minimum(ends[0], edges[:, 0]), np.maximum(ends[1], edges[:, -1])
    borders = np.concatenate([low[..., None], inner, high[..., None]], axis=-1)
    total, up_to = counts.sum(axis=-1), np.cumsum(counts, axis=-1)
    found = np.full((len(shares), k, d), np.nan)
    rows, columns = np.indices((k, d))
    for i, share in enumerate(shares):
        wanted = share * total
        b = (up_to >= wanted[..., None]).argmax(axis=-1)
        own = counts[rows, columns, b]
        part = (wanted - (up_to[rows, columns, b] - own)) / np.maximum(own, 1)
        left, right = borders[rows, columns, b], borders[rows, columns, b + 1]
        found[i] = np.where(total > 0, left + part * (right - left), np.nan)
    return found
