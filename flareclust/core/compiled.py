"""Compiling the kernels of reading tables, k-means, groups and private sums once, so that processes started later load them from disk."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from flareclust._foundation.machine import usable_cores
from flareclust._foundation.typing import FloatArray
from flareclust.core import microaggregation
from flareclust.core.arrays import TURNED, turn
from flareclust.core.assessment import assessment_sums
from flareclust.core.disclosure import describable
from flareclust.core.dp.sums import add_rows
from flareclust.core.group_kernels import add_means, columns_that_vary, rows_unlike, squares_of_each
from flareclust.core.kernels import nearest_centroids
from flareclust.core.lloyd import Clustering, cluster_statistics, labels_of, lloyd, recompute_centroids
from flareclust.core.pyramid import build, pyramid_steps
from flareclust.core.screen import labels_once
from flareclust.core.seeds import farthest_first, kmeans_plusplus


def compiles_first(last: Any = None) -> bool:
    """Return whether the next use compiles kernels, up to the `last`, and keeps them, which takes seconds; later ones load them."""
    stats = getattr(kernel := last or nearest_centroids, "stats", None)  # numba can be switched off
    if stats is None or stats.cache_path is None:
        return False
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"
    kept = Path(stats.cache_path).glob(f"{name}-*.py{sys.version_info.major}{sys.version_info.minor}*.nbi")
    source = Path(kernel.__code__.co_filename).stat().st_mtime
    return not any(file.stat().st_mtime >= source for file in kept)


def compile_side_by_side(more: bool = False) -> None:
    """Compile what every k-means needs, or more, in two processes, which keep it on disk; not with one core, or no Python to start."""
    if usable_cores() == 1 or not sys.executable:
        return
    nowhere = subprocess.DEVNULL
    package = Path(__file__).resolve().parents[2]  # Python would import what the current folder has
    with ExitStack() as ended:
        for first, then in ((iterations, _rest), (starts, _groups)):
            calls = "; ".join(f"compiled.{part.__name__}()" for part in ((first, then) if more else (first,)))
            # What numba makes lives to the end: collecting garbage takes a tenth of the time.
            command = [sys.executable, "-c", f"import gc; gc.disable(); from flareclust.core import compiled; {calls}"]
            ended.enter_context(subprocess.Popen(command, cwd=package, stdin=nowhere, stdout=nowhere, stderr=nowhere))


def warm_up() -> None:
    """Compile every kernel of reading tables, k-means, groups and private sums, or load it from the cache on disk."""
    if compiles_first(microaggregation.pull_in):
        compile_side_by_side(more=True)
    for part in (iterations, starts, _rest, _groups):
        part()


def iterations() -> None:
    """Compile the iterations of k-means and its assessment, which takes as long as the next part."""
    X, _ = _rows()
    lloyd(X, X[:2], max_iter=1)  # ends before the labels settle
    assessment_sums(X, X[:2])


def starts() -> None:
    """Compile the starts of k-means, and what is asked of its clusters."""
    X, ones = _rows()
    labels, centroids = np.array([0, 1, 1]), X[:2]
    kmeans_plusplus(X, 2, np.random.default_rng(0))
    recompute_centroids(X, Clustering(centroids, labels, np.array([1, 2]), 0.0, 1))
    describable(X, labels, centroids, 1)
    cluster_statistics(X, labels, centroids)
    columns_that_vary(X, labels, 2)
    squares_of_each(X, labels, centroids)
    rows_unlike(X, X[0])
    add_means(centroids, ones[:2], labels[:2], centroids.copy(), np.zeros(2, np.bool_), np.zeros((2, 2)))


def _rest() -> None:
    X, ones = _rows()
    labels = labels_of(X, X[:2])
    labels_once(X, X[0], 0.25, X[:2], labels)
    farthest_first(X, 2, [0])
    farthest_first(np.eye(5), 2, [0])
    pyramid = build(X, ones, np.zeros(2), 1, 3.0)
    assert pyramid is not None
    pyramid_steps(pyramid, np.zeros(2), X[:2].copy(), np.full((2, 2), np.nan), 1, 0.0)
    ones.flags.writeable = False
    turn((ones,) * TURNED, np.zeros(TURNED, np.int64), np.empty((3, 1)))
    add_rows(np.ones((3, 4), np.int64), labels, np.zeros((2, 4), np.int64))


def _groups() -> None:
    X = np.arange(12.0).reshape(6, 2)
    microaggregation.released(X, microaggregation.groups_of(X, microaggregation.SMALLEST_GROUP))


def _rows() -> tuple[FloatArray, FloatArray]:
    return np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]), np.ones(3)
