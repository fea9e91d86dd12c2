"""Whether a site's own clusters describe its rows better than the federation's, from what the server has anyway.

Added to Maritan, Schenato, "Distributed clustering in partially overlapping feature spaces": nobody knows true labels, so the
measure is the sum of squared distances to the nearest centroid. With the scale of the columns a site sends the squared
deviations of its rows from their mean; less those of its clusters' means they are what its own clusters leave. Those of
the federated centroids are in the assessment. d is the number of the site's columns.

Readings:
1. A site needs fewer clusters for its own rows than a federation: it counts as worse off only where three quarters as many
   clusters of its own, rounded down, leave less than the federated centroids that have rows there. On healthy data, also with
   20 clusters, they leave clearly more. A site that lacks clusters cuts others in parts, and fewer do for it: it counts only
   where fewer leave `_APART` times what all those leave that it sent, so that these are no parts.
2. Fewer clusters are made of those that the site sent by merging the two that cost least (Ward), which is at best as good as
   clustering anew. Rows of clusters that were not sent count as if in the mean of all. Both are in favour of the federation.
3. Where rows follow the cluster of their site (`proxy`), merging clusters of one site with one another makes its rows coarser.
   That counts where it loses `_MERGED` of the spread of its rows, of sites with no more clusters than the federation has. It is
   right where a site lacks clusters and cuts others in parts, which loses less (docs/partial-features.md).
4. Clusters of different sites that were confused do not show in this measure, where each site's own rows are well apart.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray, Message
from flareclust.protocol.columns import Columns

_SHARE = 0.75
_APART = 1.5
_MERGED = 0.15


def better_off_alone(
    columns: Columns,
    spreads: FloatArray,
    received: tuple[FloatArray, IntArray, IntArray],
    assessed: Mapping[str, Message],
    group: IntArray | None = None,
) -> list[str]:
    """Return a sentence for each site whose own clusters describe its rows better.

    Args:
        columns: of the sites.
        spreads: squared deviations of each site's rows from their mean (m,), NaN where they are not known.
        received: the centroids (c, D), rows (c,) and sites (c,) of the clusters that the sites sent.
        assessed: the sites' replies in the assessment, by name.
        group: the cluster of the federation that each cluster was merged into (c,), where rows follow it.
    """
    centers, rows, senders = received
    found = []
    for i, site in enumerate(columns.sites):
        own = senders == i
        used = int((assessed[site]["counts"] > 0).sum()) if site in assessed else 0
        if not own.any() or np.isnan(spreads[i]):
            continue
        means = centers[own][:, columns.masks[i]]
        if group is not None and own.sum() <= group.max() + 1:
            kept = np.unique(group[own])
            lost = sum(_between(means[group[own] == g], rows[own & (group == g)]) for g in kept)
            if lost > _MERGED * spreads[i]:
                found.append(
                    f"{site} is better off alone: {int(own.sum())} clusters of its own were merged into {len(kept)}, which loses "
                    f"{lost / spreads[i]:.0%} of the spread of its rows; use masked, share more columns, or cluster it by itself"
                )
                continue
        if used < 2:
            continue
        clusters, left = _enough_alone(used), float(assessed[site]["sse"])
        alone = _left_alone(float(spreads[i]), means, rows[own], clusters)
        if _APART * (spreads[i] - _between(means, rows[own])) < alone < left:
            found.append(
                f"{site} is better off alone: {clusters} clusters of its own leave squared distances of {alone:,.0f} on its "
                f"rows, {used} of the federation {left:,.0f}; its columns may not fit those of the others"
            )
    return found


def _enough_alone(used: int) -> int:
    """Return how many clusters of its own must do for a site instead of `used` federated ones (reading 1), at least 1."""
    return max(1, int(_SHARE * used))


def _left_alone(spread: float, centroids: FloatArray, counts: IntArray, clusters: int) -> float:
    """Return the sum of squared distances that at most `clusters` clusters of a site leave (reading 2).

    Args:
        spread: squared deviations of all rows of the site from their mean, added.
        centroids: means of the clusters that the site sent (c, d), c >= 1.
        counts: their rows (c,).
        clusters: at least 1.
    """
    means, rows = [np.array(mean) for mean in centroids], [float(n) for n in counts]
    left = spread - _between(centroids, counts)
    while len(means) > clusters:
        price, i, j = min((_price(means, rows, i, j), i, j) for i, j in combinations(range(len(means)), 2))
        left += price
        n = rows[i] + rows[j]
        means[i], rows[i] = (rows[i] * means[i] + rows[j] * means[j]) / n, n
        del means[j], rows[j]
    return left


def _between(centroids: FloatArray, counts: IntArray) -> float:
    """Return the sum of squared distances of centroids (c, d), with these rows (c,), to their mean."""
    return float(counts @ ((centroids - counts @ centroids / counts.sum()) ** 2).sum(axis=1))


def _price(means: list[FloatArray], rows: list[float], i: int, j: int) -> float:
    """Return by how much the squared distances grow when clusters i and j are merged."""
    return rows[i] * rows[j] / (rows[i] + rows[j]) * float(((means[i] - means[j]) ** 2).sum())
