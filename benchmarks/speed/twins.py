"""Plain NumPy for what the tables about the server compare with: what one would write without this package."""

import numpy as np
from scipy.spatial.distance import cdist

from flareclust._foundation.typing import BoolArray, FloatArray, IntArray
from flareclust.core.missing.distances import extremes, scaled


def farthest_first(points: FloatArray, k: int) -> IntArray:
    """Return k points from the first on, each the farthest from those before."""
    chosen, closest = [0], ((points - points[0]) ** 2).sum(axis=1)
    while len(chosen) < k:
        chosen.append(int(closest.argmax()))
        np.minimum(closest, ((points - points[chosen[-1]]) ** 2).sum(axis=1), out=closest)
    return np.array(chosen)


def method_a(points: FloatArray, counts: IntArray, site: IntArray, seeds: IntArray) -> IntArray:
    """Return the groups of method A: the distances of all centroids to all groups anew in each step."""
    k, over = len(seeds), extremes(points)
    group = np.full(len(points), -1, np.int64)
    group[seeds] = np.arange(k)
    while True:
        merged = np.array([_merged(points[group == g], counts[group == g]) for g in range(k)])
        distances = scaled(points, merged, over, "euclidean")
        taken = np.array([[(site[group == g] == s).any() for g in range(k)] for s in range(site.max() + 1)])
        distances[np.isnan(distances) | taken[site] | (group >= 0)[:, None]] = np.inf
        member, g = divmod(int(distances.argmin()), k)
        if distances[member, g] == np.inf:
            return group
        group[member] = g


def _merged(points: FloatArray, counts: IntArray) -> FloatArray:
    known = ~np.isnan(points)
    return np.where(known.any(axis=0), counts @ np.where(known, points, 0.0) / np.maximum(1, counts @ known), np.nan)


def outlier_score(points: FloatArray, site: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return `flareclust.core.robust.outlier_score`, with tables of sites times points."""
    m, c = int(site.max()) + 1, len(points)
    nearest, matches, across = np.empty((m, c)), np.empty((m, c), np.int64), np.zeros((m, m))
    for row in range(m):
        its = np.flatnonzero(site == row)
        distances = cdist(points[its], points)
        nearest[row], matches[row] = distances.min(axis=0), its[distances.argmin(axis=0)]
        np.maximum.at(across[row], site, distances.max(axis=0))
    other = site != np.arange(m)[:, None]
    own = np.nanmedian(np.where(other, nearest, np.nan), axis=0)
    usual = np.nanmedian(np.where(other, own[matches], np.nan), axis=0)
    with np.errstate(over="ignore"):
        quotient = np.divide(own, usual, out=np.where(own > 0, np.inf, 1.0), where=usual > 0)
    return quotient, own > np.median(np.nanmedian(np.where(np.eye(m, dtype=bool), np.nan, across), axis=0))


def squared_distances(X: FloatArray, C: FloatArray) -> FloatArray:
    """Return (n, k) by one product of matrices."""
    return np.maximum((X**2).sum(axis=1)[:, None] + (C**2).sum(axis=1) - 2 * X @ C.T, 0.0)


def fuzzy_step(X: FloatArray, C: FloatArray, fuzzifier: float) -> FloatArray:
    """Return the centroids after one step of fuzzy c-means."""
    power = squared_distances(X, C) ** (-1 / (fuzzifier - 1))
    weights = (power / power.sum(axis=1, keepdims=True)) ** fuzzifier
    return np.asarray(weights.T @ X / weights.sum(axis=0)[:, None])


def singular_projection(X: FloatArray, k: int) -> FloatArray:
    """Return the rows' coordinates along the k leading right singular vectors."""
    return np.asarray(X @ np.linalg.svd(X, full_matrices=False)[2][:k].T)


def covariance_factor(rows: FloatArray) -> FloatArray:
    """Return a factor of the covariance."""
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    return np.asarray(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T)


def silhouette_sums(X: FloatArray, C: FloatArray) -> FloatArray:
    """Return the sum of the simplified silhouettes by cluster."""
    distances = np.sqrt(squared_distances(X, C))
    labels = distances.argmin(axis=1)
    two = np.partition(distances, 1, axis=1)[:, :2]
    return np.bincount(labels, (two[:, 1] - two[:, 0]) / two[:, 1], minlength=len(C))


def lloyd_update(X: FloatArray, C: FloatArray) -> FloatArray:
    """Return the means of the rows nearest to each centroid; each has some."""
    labels = squared_distances(X, C).argmin(axis=1)
    counts = np.bincount(labels, minlength=len(C))
    return np.stack([np.bincount(labels, column, len(C)) for column in X.T], axis=1) / counts[:, None]


def kmeans_of_known(X: FloatArray, C: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return labels and centroids after one step of k-means on the known entries of rows, which may be NaN."""
    known = ~np.isnan(X)
    filled, ones = np.where(known, X, 0.0), known.astype(float)
    labels = (ones @ (C**2).T - 2 * filled @ C.T).argmin(axis=1)
    member = (labels == np.arange(len(C))[:, None]).astype(float)
    return labels, member @ filled / np.maximum(member @ ones, 1)


def bounded_sums(X: FloatArray, low: FloatArray, high: FloatArray, C: FloatArray, radii: FloatArray) -> IntArray:
    """Return the sums of differential privacy by cluster (k, d + 2), in integers."""
    values = np.clip(X, low, high)
    labels = squared_distances(values, C).argmin(axis=1)
    shift = values - C[labels]
    length = np.sqrt((shift**2).sum(axis=1))
    whole = (shift / np.maximum(length, radii[labels])[:, None] * (2**20 * (1 - 1e-9))).astype(np.int64)
    square = (np.minimum(length / radii[labels], 1) ** 2 * 2**18).astype(np.int64)
    sums = np.zeros((len(C), X.shape[1] + 2), np.int64)
    np.add.at(sums, labels, np.column_stack([whole, np.full(len(X), 2**19), square]))
    return sums
