"""How unlike the centroids of one site are those of the others, in blocks: no table of sites times centroids is kept."""

from collections.abc import Iterator

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.jit import kernel

#: Distances that are kept at once: 16 MiB, beside what is made of them.
_BLOCK = 1 << 21


def outlier_score(points: FloatArray, site: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return how far each centroid of three sites or more lies from those of the others.

    A centroid's distance is the median, over the other sites, of that to their nearest centroid. It is divided by the same
    figure of those nearest centroids (the median over the other sites, too), so that the centroids of a wide cluster may
    lie farther apart than those of a narrow one. Time O(c^2 d) for c centroids; memory O(c d + m) beside some blocks.

    Returns:
        The quotient (c,), about 1 for centroids that all sites have; and which distances (c,) are larger than the
        largest one between two sites' centroids usually is (the median, over the sites, of the median over the others).
    """
    of = np.unique(site, return_inverse=True)[1].reshape(-1)
    order = np.argsort(of, kind="stable")
    rows, ends = points[order], np.cumsum(np.bincount(of))
    own, usual, extent = np.empty(len(rows)), np.empty(len(rows)), np.empty(len(ends))
    for sites, block, (nearest, _, farthest) in _blocks(rows, ends):
        own[block] = _median_of_others(nearest, of[order[block]])
        first = ends[sites] - np.diff(ends, prepend=0)[sites] - block.start
        extent[sites] = _median_of_others(np.maximum.reduceat(farthest, first, axis=0), np.arange(len(ends))[sites])
    for _, block, (_, matches, _) in _blocks(rows, ends):
        usual[block] = _median_of_others(own[matches], of[order[block]])
    with np.errstate(over="ignore"):  # what is beyond all numbers is strange enough
        quotient = np.divide(own, usual, out=np.where(own > 0, np.inf, 1.0), where=usual > 0)
    back = np.argsort(order)
    return quotient[back], (own > np.median(extent))[back]


def _blocks(rows: FloatArray, ends: IntArray) -> Iterator[tuple[slice, slice, tuple[FloatArray, IntArray, FloatArray]]]:
    """Give sites, their rows (b,), and to each site the nearest distance, the row it is to, and the farthest one (b, m)."""
    from scipy.spatial.distance import cdist

    first, m = 0, len(ends)
    while first < m:
        start = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, start + _BLOCK // len(rows), side="right")))
        block = slice(start, int(ends[last - 1]))
        shape = (block.stop - start, m)
        found = np.empty(shape), np.empty(shape, np.int64), np.empty(shape)
        _nearest_and_farthest(cdist(rows[block], rows), ends, *found)
        yield slice(first, last), block, found
        first = last


@kernel()
def _nearest_and_farthest(
    distances: FloatArray, ends: IntArray, nearest: FloatArray, matches: IntArray, farthest: FloatArray
) -> None:
    """Find the least distance (b, m) among those to each site's rows, the first of equals, and the largest one."""
    for i in range(distances.shape[0]):
        start = 0
        for s in range(ends.shape[0]):
            least, at, most = distances[i, start], start, distances[i, start]
            for j in range(start + 1, ends[s]):
                value = distances[i, j]
                most = max(most, value)
                if value < least:
                    least, at = value, j
            nearest[i, s], matches[i, s], farthest[i, s] = least, at, most
            start = ends[s]


def _median_of_others(values: FloatArray, own: IntArray) -> FloatArray:
    """Return the median of each row's values (b, m) but for the one at its own place (b,); spoils the values."""
    others = values.shape[1] - 1
    values[np.arange(len(values)), own] = np.inf  # behind all others
    low, high = (others - 1) // 2, others // 2
    values.partition(sorted({low, high}), axis=1)
    middle: FloatArray = (values[:, low] + values[:, high]) / 2 if low < high else values[:, low].copy()
    return middle
