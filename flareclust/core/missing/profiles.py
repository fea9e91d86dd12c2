"""What describes clusters of rows with missing cells: moments and counts in bins of the known cells.

Which cells a site describes, of each column by itself:
1. A cluster's column with fewer known cells than the floor is left out, unless it has none.
2. A site's number of known cells in a column, less those of all other clusters, would be the number in such a cluster. Where
   sums of filled rows leave the site (missing=mean), the sum of these cells would follow. So at least as many cells as the floor
   are left out together: if there are fewer, the cluster with the fewest others is left out in that column as well.
3. A cluster is left out where its known cells are equal in all columns, or a row that knows all of these is its mean.

Rows of a tree's leaf are split by filled cells, so that a row stays in one leaf whatever it knows. Where a split leaves fewer
known cells of a column than the floor on one side, the column is counted on neither side, nor further down: the leaf above less
the other side would give them.
"""

from typing import NamedTuple

import numpy as np

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.disclosure import LEAST_ROWS, describable_where_known, known_cells
from flareclust.core.lloyd import sums_by_label
from flareclust.core.profiles import edges_between, moments
from flareclust.core.shallow_tree import SPLITS


class _KnownMoments(NamedTuple):
    """Of the clusters that are described: their numbers (c,), rows (c,), and of each column the known cells, their means and
    squared deviations, each (c, d); all three are 0 in columns that are left out.
    """

    clusters: IntArray
    rows: IntArray
    cells: IntArray
    means: FloatArray
    m2: FloatArray


def described(X: FloatArray, known: BoolArray, labels: IntArray, k: int, floor: int) -> BoolArray:
    """Return which columns (k, d) of the clusters a site describes, by the rules of this module.

    Rows X are (n, d), their known cells (n, d), labels (n,), -1 for none; `floor` is the smallest number of known cells that is
    described, three at least.
    """
    floor, cells = max(floor, LEAST_ROWS), known_cells(known, labels, k)
    large = np.bincount(labels[labels >= 0], minlength=k) >= floor
    if not large.any():
        return np.zeros(cells.shape, dtype=np.bool_)
    shown = large[:, None] & (cells >= floor)
    hidden = np.where(large[:, None] & ~shown, cells, 0).sum(axis=0)
    for j in np.flatnonzero((hidden > 0) & (hidden < floor) & shown.any(axis=0)):
        others = np.flatnonzero(shown[:, j])
        shown[others[cells[others, j].argmin()], j] = False
    counted = known & shown[labels] & (labels >= 0)[:, None]
    values = np.where(counted, X, 0.0)
    shown &= describable_where_known(values, counted, labels, k, floor)[:, None]
    return shown


def known_moments(X: FloatArray, known: BoolArray, labels: IntArray, k: int, floor: int) -> _KnownMoments:
    """Return moments of the known cells of each cluster; arguments as for `described`."""
    if known.all():
        kept, rows, means, m2 = moments(X, labels, k, floor)
        return _KnownMoments(kept, rows, np.repeat(rows[:, None], X.shape[1], axis=1), means, m2)
    shown = described(X, known, labels, k, floor)
    cells = np.where(shown, known_cells(known, labels, k), 0)
    means, m2 = np.zeros(cells.shape), np.zeros(cells.shape)
    for j in np.flatnonzero(shown.any(axis=0)):
        counted = known[:, j] & (labels >= 0)
        own, values = labels[counted], X[counted, j]
        origin = values.mean()
        mean = origin + sums_by_label(own, values - origin, k) / np.maximum(cells[:, j], 1)
        means[:, j] = np.where(shown[:, j], mean, 0.0)
        m2[:, j] = np.where(shown[:, j], sums_by_label(own, (values - mean[own]) ** 2, k), 0.0)
    kept, rows = np.flatnonzero(shown.any(axis=1)), np.bincount(labels[labels >= 0], minlength=k)
    return _KnownMoments(kept, rows[kept], cells[kept], means[kept], m2[kept])


def edges_of_known(cells: IntArray, means: FloatArray, m2: FloatArray, bins: int) -> FloatArray:
    """Return edges of bins (d, bins - 1) as `edges_between` does, of each column from its known cells (k, d); 0 where none is."""
    edges = np.zeros((cells.shape[1], bins - 1))
    for j in np.flatnonzero(cells.any(axis=0)):
        edges[j] = edges_between(cells[:, j], means[:, [j]], m2[:, [j]], bins)[0]
    return edges


def shown_in_nodes(known: BoolArray, node: IntArray, labels: IntArray, shown: BoolArray, floor: int) -> BoolArray:
    """Return which columns of the clusters are counted in the nodes of a tree (31, k, d).

    `node` (n,) is where each row ends, see `flareclust.core.shallow_tree.reached`, `shown` the columns of the clusters that
    are described (k, d), and `floor` the smallest number that may be counted; known cells (n, d) and labels (n,) are as for
    `described`.
    """
    k, nodes = len(shown), 2 * SPLITS + 1
    place = np.where(labels >= 0, node * k + labels, -1)
    cells = known_cells(known, place, nodes * k).reshape(nodes, k, -1)
    for i in range(nodes - 1, 0, -1):
        cells[(i - 1) // 2] += cells[i]
    enough, found = (cells == 0) | (cells >= floor), np.zeros(cells.shape, dtype=np.bool_)
    found[0] = shown
    for i in range(SPLITS):
        left, right = 2 * i + 1, 2 * i + 2
        found[left] = found[right] = found[i] & enough[left] & enough[right]
    return found


def with_missing(counts: IntArray, rows: IntArray, filled: IntArray) -> IntArray:
    """Return counts (l, k, d, h) with the rows (l, k) that do not know a column in the bin of what fills it (d,)."""
    found = counts.copy()
    found[:, :, np.arange(counts.shape[2]), filled] += np.maximum(rows[..., None] - counts.sum(axis=-1), 0)
    return found
