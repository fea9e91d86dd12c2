"""Quality of a clustering over the entries that are known: the assessment for sites with different columns.

Where every site has every column and all centroids are known, the numbers are those of `flareclust.core.assessment`.
"""

import numpy as np

from flareclust._foundation.typing import FloatArray, Message
from flareclust.core.assessment import assessment_sums, cells_index, label_free_metrics
from flareclust.core.missing.distances import centroid_distances


def masked_sums(X: FloatArray, centroids: FloatArray, phi: str = "euclidean") -> Message:
    """Add up, for each cluster, what quality measures need, as `assessment_sums` does.

    A row belongs to the centroid with the smallest scaled distance (Maritan, Schenato, equations 2-3, over the
    centroids), and its silhouette compares scaled distances. `sse` adds the squared distances over the entries that
    are known; `scatter` the distances scaled up to all entries, the root of d / (entries known) times the squares. Rows
    that can be compared with no centroid count nowhere.

    Args:
        X: rows (n, d).
        centroids: (k, d), NaN where unknown.
        phi: the distance by which rows find their centroid; the sums are of Euclidean ones but for the silhouette.
    """
    known = ~np.isnan(centroids)
    if known.all() and phi == "euclidean":
        return assessment_sums(X, centroids)[1]
    k, d = centroids.shape
    scaled = centroid_distances(X, centroids, phi)
    comparable = ~np.isnan(scaled).all(axis=1)
    X, scaled = X[comparable], np.where(np.isnan(scaled), np.inf, scaled)[comparable]
    labels, own = scaled.argmin(axis=1), scaled.min(axis=1)
    scaled[np.arange(len(X)), labels] = np.inf
    other = scaled.min(axis=1) if k > 1 else np.full(len(X), np.inf)
    silhouette = np.zeros(len(X))
    np.divide(other - own, other, out=silhouette, where=np.isfinite(other) & (other > 0))
    squared = np.where(known[labels], (X - np.nan_to_num(centroids)[labels]) ** 2, 0.0).sum(axis=1)
    up = d / known.sum(axis=1).clip(1)
    return {
        "counts": np.bincount(labels, minlength=k),
        "sse": np.bincount(labels, squared, minlength=k),
        "silhouette": np.bincount(labels, silhouette, minlength=k),
        "scatter": np.bincount(labels, np.sqrt(squared * up[labels]), minlength=k),
    }


def masked_metrics(centroids: FloatArray, sums: Message) -> dict[str, float | None]:
    """Return the measures of `label_free_metrics`; distances of centroids are scaled up from the entries that both know.

    `inertia` is the sum of squares over the entries that are known. With sites that lack columns it is smaller than that
    of the complete rows would be. `davies_bouldin` is None where two centroids of clusters with rows share no entry.
    """
    if not np.isnan(centroids).any():
        return label_free_metrics(centroids, sums)
    metrics = label_free_metrics(np.nan_to_num(centroids), sums)
    return metrics | {"davies_bouldin": cells_index(centroids, sums["counts"], sums["scatter"], _separation)}


def _separation(centroids: FloatArray) -> FloatArray:
    """Return the distances (k, k) of centroids, scaled up to all entries; NaN where two share none."""
    known = ~np.isnan(centroids)
    squared = np.stack([np.nansum((centroids - centroid) ** 2, axis=1) for centroid in centroids])
    common = np.stack([(known & one).sum(axis=1) for one in known])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sqrt(squared * centroids.shape[1] / np.where(common, common, np.nan)))
