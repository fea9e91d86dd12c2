"""Starts of k-means from sums alone: clusters are split in two until there are k.

Source: Linde, Buzo, Gray (1980), An algorithm for vector quantizer design, section III, "splitting". Which cluster is
split, and in which direction, as in Su and Dy (2007), In search of deterministic methods for initializing K-means and
Gaussian mixture clustering, "Var-Part": the one with the largest sum of squares, along the column with the largest
variance in it, one standard deviation to either side.
"""

from math import ceil, pi

import numpy as np

from flareclust._foundation.typing import FloatArray, IntArray

#: About so many splits in a row give k clusters, however large k is.
SPLITS = 15


def at_once(k: int) -> int:
    """Return how many clusters are split before the rows are looked at again; up to `SPLITS` clusters, one."""
    return ceil(k / SPLITS)


def split(centroids: FloatArray, counts: IntArray, m2: FloatArray, times: int) -> FloatArray:
    """Return the centroids (c, d) with the results of up to so many splits, fewer where no rows differ within a cluster.

    What the halves of a cluster are is taken from the normal distribution, where they are to be split further.

    Args:
        centroids: means of c clusters (c, d).
        counts: their rows (c,).
        m2: squared deviations from the mean by column (c, d).
        times: how many to split.
    """
    split, rows, squares = list(centroids.copy()), list(counts.astype(np.float64)), list(m2.copy())
    for _ in range(times):
        r = int(np.argmax([own.sum() for own in squares]))
        j = int(np.argmax(squares[r]))
        if squares[r][j] <= 0:
            break
        step = np.zeros(centroids.shape[1])
        step[j] = np.sqrt(squares[r][j] / rows[r])
        rows[r] /= 2
        squares[r] = squares[r] / 2
        squares[r][j] *= 1 - 2 / pi
        split.append(split[r] + step)
        split[r] = split[r] - step
        rows.append(rows[r])
        squares.append(squares[r].copy())
    return np.stack(split)
