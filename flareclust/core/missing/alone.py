"""Whether a site's own clustering describes its rows better than the federation's, from what the server has anyway.

Added to Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": nobody knows true labels, so the
measure is the sum of squared distances to the nearest centroid. With the scale of the columns a site sends the squared
deviations of its rows from their mean; less those of its clusters' means they are what its own clusters leave. Those of
the federated centroids are in the assessment. d is the number of the site's columns.

Readings:
1. A site needs fewer clusters for its own rows than a federation: it counts as worse off only where three quarters as many
   clusters of its own, rounded down, leave less than the federated centroids that have rows there. On healthy data, also with
   20 clusters, they leave clearly more.
2. Fewer clusters are made of those that the site sent by merging the two that cost least (Ward), which is at best as good as
   clustering anew. Rows of clusters that were not sent count as if in the mean of all. Both are in favour of the federation.
3. Clusters of different sites that were confused do not show in this measure, where each site's own rows are well apart.
"""

from itertools import combinations

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

_SHARE = 0.75


def enough_alone(used: int) -> int:
    """Return how many clusters of its own must do for a site instead of `used` federated ones (reading 1), at least 1."""
    return max(1, int(_SHARE * used))


def left_alone(spread: float, centroids: FloatArray, counts: IntArray, clusters: int) -> float:
    """Return the sum of squared distances that at most `clusters` clusters of a site leave (reading 2).

    Args:
        spread: squared deviations of all rows of the site from their mean, added.
        centroids: means of the clusters that the site sent (c, d), c >= 1.
        counts: their rows (c,).
        clusters: at least 1.
    """
    means, rows = [np.array(mean) for mean in centroids], [float(n) for n in counts]
    left = spread - float(counts @ ((centroids - counts @ centroids / counts.sum()) ** 2).sum(axis=1))
    while len(means) > clusters:
        price, i, j = min((_price(means, rows, i, j), i, j) for i, j in combinations(range(len(means)), 2))
        left += price
        n = rows[i] + rows[j]
        means[i], rows[i] = (rows[i] * means[i] + rows[j] * means[j]) / n, n
        del means[j], rows[j]
    return left


def _price(means: list[FloatArray], rows: list[float], i: int, j: int) -> float:
    """Return by how much the squared distances grow when clusters i and j are merged."""
    return rows[i] * rows[j] / (rows[i] + rows[j]) * float(((means[i] - means[j]) ** 2).sum())
