"""What a site computes and sends: one file per algorithm."""

__all__ = [
    "deepfeca",
    "dkmpp",
    "dp_lloyd",
    "dp_oneshot",
    "feca",
    "ffcm",
    "fkm",
    "gmm",
    "kfed",
    "kprototypes",
    "linear_evaluation",
    "lloyd",
    "local_clusters",
    "masked",
    "mavg",
    "minibatch",
    "pooled",
    "portfolio",
    "proxy",
    "tree",
]
