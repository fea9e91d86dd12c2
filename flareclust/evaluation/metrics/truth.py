"""All metrics that the truth at hand allows."""

from numpy.typing import ArrayLike

from flareclust.evaluation.metrics.centroids import l2_distance, mse_matched
from flareclust.evaluation.metrics.labels import class_metrics


def truth_metrics(
    centroids: ArrayLike, labels: ArrayLike | None, y: ArrayLike | None = None, true_centroids: ArrayLike | None = None
) -> dict[str, float]:
    """Every measure that the truth at hand allows.

    Args:
        centroids: (k, d) recovered centroids.
        labels: (n,) cluster numbers >= 0 of the rows, or None if no rows were labelled.
        y: (n,) true classes, if known.
        true_centroids: (k*, d), if known.

    Returns:
        `l2` and `mse_matched` with true centroids; `ari`, `nmi`, `purity`, `accuracy` with labels and y. Values are floats.

    Raises:
        UserError: as `l2_distance` and `purity`.
    """
    result: dict[str, float] = {}
    if true_centroids is not None:
        result["l2"] = l2_distance(centroids, true_centroids)
        result["mse_matched"] = mse_matched(centroids, true_centroids)
    if labels is not None and y is not None:
        result |= class_metrics(labels, y)
    return result
