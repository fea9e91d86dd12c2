"""Rows that lie far from all centroids, left out: for tables with spoilt rows.

Source: Cuesta-Albertos, Gordaliza, Matran (1997), Trimmed k-means: an attempt to robustify quantizers. The share of rows
that is left out is that of the rows farthest from their centroids, and follows the centroids from step to step.
"""

import numpy as np

from flareclust._foundation.errors import stop_if
from flareclust._foundation.typing import AbortCheck, FloatArray
from flareclust.core.lloyd import assign, labels_of

#: Steps of a start, at the most; each leaves out the farthest rows and moves the centroids to the means of the others.
_STEPS = 20


def nearest_rows(data: FloatArray, centroids: FloatArray, share: float) -> FloatArray:
    """Return the rows (n, d) without the `share` of them that lies farthest from the centroids (k, d), in their order.

    All of them where the share is less than one row.
    """
    dropped = int(share * len(data))
    if not dropped:
        return data
    squared = assign(data, centroids)[1]
    kept = np.sort(np.argsort(squared, kind="stable")[: len(data) - dropped])
    return data[kept]


def trimmed_rows(
    data: FloatArray, k: int, share: float, rng: np.random.Generator, *, n_init: int, aborted: AbortCheck
) -> FloatArray:
    """Return the rows (n, d) that trimmed k-means keeps, from the best of `n_init` starts at random rows.

    Starts of k-means++ would look for the spoilt rows, as they are far from all others.

    Raises Aborted when `aborted` says so; it is asked before each step.
    """
    if not int(share * len(data)):
        return data
    best, least = data, np.inf
    for _ in range(n_init):
        kept, before = data, np.inf
        centroids = data[rng.choice(len(data), size=min(k, len(data)), replace=False)]
        for _ in range(_STEPS):
            stop_if(aborted, "while rows were trimmed")
            kept = nearest_rows(data, centroids, share)
            found = _means(kept, centroids)
            cost = float(assign(kept, found)[1].sum())
            if cost >= before:
                break
            centroids, before = found, cost
        if before < least:
            best, least = kept, before
    return best


def _means(data: FloatArray, centroids: FloatArray) -> FloatArray:
    """Return the means of the rows (n, d) nearest to each of the centroids (k, d); those without rows stay.

    Deviations from the centroids are added up; `recompute_centroids` starts from the overall mean, which gives other last digits.
    """
    labels = labels_of(data, centroids)
    counts, sums = np.bincount(labels, minlength=len(centroids)), np.zeros_like(centroids)
    np.add.at(sums, labels, data - centroids[labels])
    return centroids + sums / np.maximum(counts, 1)[:, None]
