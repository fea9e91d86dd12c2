"""Devices whose rows follow one of several opposite rules, in places that show which."""

import numpy as np

from flareclust.personal.rows import Labelled, Split, hold_out


def planted(
    devices: int = 8, rows: int = 60, clusters: int = 2, per_device: int = 1, seed: int = 0
) -> tuple[Split, np.ndarray]:
    """Return devices and the clusters of each, (devices, per_device).

    In cluster c the class is the sign of a direction of its own, turned by 180 degrees from cluster to cluster; a third
    column has the cluster, so that clustering of the rows can find it, and a linear model cannot use it.
    """
    rng = np.random.default_rng(seed)
    own = np.array([[(i + j) % clusters for j in range(per_device)] for i in range(devices)])
    made = {}
    for i in range(devices):
        cluster = np.repeat(own[i], rows // per_device)
        X = rng.normal(size=(len(cluster), 2))
        side = np.where(cluster % 2 == 0, X[:, 0], -X[:, 0])
        made[f"device-{i:02}"] = Labelled(np.column_stack([X, 6.0 * cluster]), (side > 0).astype(np.int64))
    return hold_out(made, 0.25, seed), own


def without_place(split: Split) -> Split:
    """Return the rows without the column that shows the cluster, as the models are to see them."""
    cut = [{name: Labelled(one.X[:, :2], one.y) for name, one in side.items()} for side in (split.train, split.test)]
    return Split(*cut, split.classes)
