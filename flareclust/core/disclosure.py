"""Which clusters a site may describe to others without describing single rows."""

import numpy as np

from flareclust.errors import Refusal
from flareclust.typing import BoolArray, FloatArray, IntArray


def describable(data: FloatArray, labels: IntArray, k: int, min_count: int) -> BoolArray:
    """Return which of the k clusters may be described to others.

    A cluster of one row is that row, and so is a cluster of one row repeated, however often: the centroid of either
    would be a row of the site's data.

    Args:
        data: rows (n, d).
        labels: cluster of each row (n,), in 0..k-1; -1 for rows whose cluster is not sent anyway.
        k: number of clusters.
        min_count: smallest number of rows of a cluster that is sent.
    """
    used = labels >= 0
    counts = np.bincount(labels[used], minlength=k)
    first = np.zeros(k, dtype=np.int64)
    present, where = np.unique(labels[used], return_index=True)
    first[present] = np.flatnonzero(used)[where]
    differs = np.zeros(len(data), dtype=bool)
    differs[used] = (data[used] != data[first[labels[used]]]).any(axis=1)
    varied = np.bincount(labels[differs], minlength=k) > 0
    mask: BoolArray = (counts >= min_count) & varied
    return mask


def may_leave(data: FloatArray, labels: IntArray, k: int, min_count: int) -> BoolArray:
    """Return what `describable` does, or raise Refusal where that is no cluster at all."""
    keep = describable(data, labels, k, min_count)
    if not keep.any():
        raise Refusal(f"has no cluster of at least min_count={min_count} rows that differ, so nothing it may send")
    return keep
