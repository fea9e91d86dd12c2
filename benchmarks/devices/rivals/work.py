"""The work of the comparison: what a device computes, and what the server makes of it.

All contenders call these functions, or are compared with them, on the same rows. Only NumPy and `flareclust.core` are
imported here, which another simulator's environment has without NVFlare.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.devices.mixture import GRID
from flareclust._foundation.seeding import SERVER, stream
from flareclust._foundation.typing import FloatArray, Message, never_abort
from flareclust.core import clusterers
from flareclust.core.local import lloyd_update, local_clusters

K, ROWS, MIN_COUNT, SEED = 16, 50, 2, 0

#: The centroids of the round of Lloyd.
START: FloatArray = GRID + 0.5


@cache
def rows_in(file: Path) -> FloatArray:
    """Return the rows (m * ROWS, d) of all devices as a map of their file, which each process opens once."""
    return np.load(file, mmap_mode="r")


def rows_of(file: Path, i: int) -> FloatArray:
    """Return the rows of device i."""
    return np.array(rows_in(file)[i * ROWS : (i + 1) * ROWS])


def one_shot(rows: FloatArray, i: int, sent: FloatArray) -> Message:
    """Run k-means on a device's rows, as `pooled` does; nothing was sent to it."""
    rng = stream(SEED, 0, device_name(i))
    found = local_clusters(rows, K, rng, n_init=1, min_count=MIN_COUNT, aborted=never_abort)
    return {"centroids": found.centroids, "counts": found.counts}


def lloyd(rows: FloatArray, i: int, sent: FloatArray) -> Message:
    """Return a device's part of one update of the centroids that were sent."""
    found = lloyd_update(rows, sent, MIN_COUNT)
    return {"centroids": found.centroids, "counts": found.counts, "cluster": found.source}


def device_name(i: int) -> str:
    """Return the name of device i, which its random numbers come from."""
    return f"device-{i:07d}"


def merge_one_shot(replies: Sequence[Message]) -> FloatArray:
    """Cluster the centroids of all devices, each weighted by its rows."""
    points = np.concatenate([reply["centroids"] for reply in replies])
    weights = np.concatenate([reply["counts"] for reply in replies]).astype(np.float64)
    return clusterers.weighted_kmeans(points, weights, K, 1, stream(SEED, 0, SERVER))[0]


def merge_lloyd(replies: Sequence[Message]) -> FloatArray:
    """Return the means of the rows of all devices by centroid; that of one without rows is as it was."""
    points = np.concatenate([reply["centroids"] for reply in replies])
    counts = np.concatenate([reply["counts"] for reply in replies]).astype(np.float64)
    cluster = np.concatenate([reply["cluster"] for reply in replies])
    sums, total = np.zeros_like(START), np.bincount(cluster, counts, K)
    np.add.at(sums, cluster, counts[:, None] * points)
    return np.where(total[:, None] > 0, sums / np.maximum(total, 1)[:, None], START)


#: By name of the work: what a device does with its rows, its number and what was sent; and the merge.
WORK: dict[str, tuple[Callable[[FloatArray, int, FloatArray], Message], Callable[[Sequence[Message]], FloatArray]]] = {
    "one-shot": (one_shot, merge_one_shot),
    "lloyd": (lloyd, merge_lloyd),
}


def versions(*packages: str) -> dict[str, Any]:
    """Return the installed versions of packages."""
    from importlib.metadata import version

    return {package: version(package) for package in packages}
