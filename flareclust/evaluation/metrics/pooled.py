"""How good centroids are on the pooled rows of all sites, without any truth."""

import numpy as np
from numpy.typing import ArrayLike

from flareclust.evaluation.metrics._arrays import distances, same_width


def pooled_label_free(X: ArrayLike, centroids: ArrayLike) -> dict[str, float | None]:
    """Inertia, simplified silhouette and Davies-Bouldin index, computed plainly on pooled rows.

    This is the reference that a federation's own figures, added up from sums of its sites, must equal. It shares no code with them.
    Each row belongs to its nearest centroid, the first of equally near ones.

    Args:
        X: (n, d) rows of all sites together.
        centroids: (k, d); they need not be the means of their rows.

    Returns:
        `inertia`: sum of squared distances to the own centroid.
        `simplified_silhouette`: mean of (b - a) / max(a, b), a the distance to the own centroid and b to the nearest
        other one, empty ones included; a row with a = b = 0 counts 0.
        `davies_bouldin`: mean over clusters r with rows of the largest (S_r + S_s) / ||c_r - c_s|| over the other clusters s with
        rows, S the mean distance to the centroid (Davies and Bouldin 1979).
        The last two are None with fewer than two clusters that have rows; Davies-Bouldin also where two of their centroids coincide.

    Raises:
        UserError: as `l2_distance`.
    """
    X, centroids = same_width("X", X, "centroids", centroids)
    distance = distances(X, centroids)
    labels = distance.argmin(axis=1)
    own = distance.min(axis=1)
    present = np.unique(labels)
    result: dict[str, float | None] = {
        "inertia": float(np.sum(own**2)),
        "simplified_silhouette": None,
        "davies_bouldin": None,
    }
    if len(present) < 2:
        return result
    others = distance.copy()
    others[np.arange(len(X)), labels] = np.inf
    other = others.min(axis=1)
    silhouette = np.zeros(len(X))
    np.divide(other - own, other, out=silhouette, where=other > 0)  # own <= other, so other is the larger
    result["simplified_silhouette"] = float(silhouette.mean())

    between = distances(centroids, centroids)
    if all(between[r, s] > 0 for r in present for s in present if s != r):
        scatter = {int(r): own[labels == r].mean() for r in present}
        worst = [max((scatter[r] + scatter[s]) / between[r, s] for s in scatter if s != r) for r in scatter]
        result["davies_bouldin"] = float(np.mean(worst))
    return result
