"""Sites and runs of FFCM that several test files use."""

import numpy as np

from flareclust.protocol.registry import get

FFCM = get("ffcm")


def twin_describable(X, u, centroids, m, min_count):
    """The rules, row by row and as they are written in the documentation."""
    allowed = []
    for c in range(len(centroids)):
        cell = [x for x, own in zip(X.tolist(), u.tolist(), strict=True) if own.index(max(own)) == c]
        weights = [(own**m, x) for own, x in zip(u[:, c].tolist(), X.tolist(), strict=True)]
        heaviest, row = max(weights, key=lambda pair: pair[0])
        rest = sum(w for w, x in weights if x != row)
        allowed.append(
            len(cell) >= min_count
            and any(x != cell[0] for x in cell)
            and all(np.abs(np.array(x) - centroids[c]).max() > 1e-9 for x in X.tolist())
            and heaviest <= (1 + 1e-9) * rest
            and min_count * heaviest <= (1 + 1e-9) * sum(w for w, _ in weights)
        )
    return allowed
