"""How good recovered clusters are: against the truth where it is known, and against the pooled rows where it is not."""

from flareclust.evaluation.metrics.centroids import (
    cosine,
    l2_distance,
    match_centroids,
    mse_matched,
    optimal_centroids,
    relative_distance,
    sigma,
)
from flareclust.evaluation.metrics.labels import (
    accuracy,
    ari,
    correct_aggregation,
    majority_class,
    nmi,
    pooled_label_free,
    purity,
    truth_metrics,
)
from flareclust.evaluation.metrics.masking import assumption_8_rate

__all__ = [
    "accuracy",
    "ari",
    "assumption_8_rate",
    "centroids",
    "correct_aggregation",
    "cosine",
    "l2_distance",
    "majority_class",
    "match_centroids",
    "mse_matched",
    "nmi",
    "optimal_centroids",
    "pooled_label_free",
    "purity",
    "relative_distance",
    "sigma",
    "truth_metrics",
]
