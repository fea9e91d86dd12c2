"""Shapes of the data sets, and their check."""

import os

import numpy as np
import pytest

from flareclust.data.datasets import Dataset

STORED = os.environ.get("FLARECLUST_DATA", "")

needs_files = pytest.mark.skipif(
    not STORED, reason="FLARECLUST_DATA does not name a folder with the published data sets"
)

FILE_SHAPES = {
    **{f"s{i}": (5000, 2, 15, True) for i in (1, 2, 3, 4)},
    "birch1": (100_000, 2, 100, True),
    "birch2": (100_000, 2, 100, True),
    **{f"dim{d}": (1024, int(d), 16, True) for d in ("032", "128", "512", "1024")},
    "har": (10_299, 561, 6, False),
    "femnist": (30_653, 784, None, False),
    "garst_grid": (800, 2, 16, True),
    "cifar10_subset": (5000, 3072, 10, False),
}


def _expect(data: Dataset, n: int, d: int, k: int | None, has_centroids: bool) -> None:
    assert data.X.shape == (n, d)
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    assert np.isfinite(data.X).all()
    assert data.n_clusters == k
    assert (data.centroids is not None) == has_centroids
    if has_centroids:
        assert data.centroids.shape == (k, d)
        assert data.centroids.dtype == np.float64
    if k is not None:
        assert data.y.dtype == np.int64
        np.testing.assert_array_equal(np.arange(k), np.unique(data.y))
    for per_row in (data.y, data.owners):
        assert per_row is None or per_row.shape == (n,)
    if data.columns is not None:
        assert len(set(data.columns)) == d
