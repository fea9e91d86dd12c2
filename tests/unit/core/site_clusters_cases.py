"""Rows and clusters of one site that several test files use."""

import numpy as np

from flareclust._foundation.typing import never_abort
from flareclust.core.site_clusters import (
    site_clusters,
)


def blobs(k, n_each, d=3, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    centers = 12 * rng.permutation(np.eye(max(k, d)))[:k, :d] + 12 * np.arange(k)[:, None]
    y = np.repeat(np.arange(k), n_each)
    return centers[y] + spread * rng.normal(size=(len(y), d)), y


def clusters(data, k, seed=0, **settings_):
    settings_ = {"min_count": 2, "aborted": never_abort} | settings_
    return site_clusters(data, k, np.random.default_rng(seed), **settings_)
