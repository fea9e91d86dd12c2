"""What the server does with the sites' replies: one file per algorithm."""

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
    "masked",
    "mavg",
    "minibatch",
    "placed",
    "pooled",
    "portfolio",
    "proxy",
    "tree",
]
